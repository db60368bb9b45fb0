//! What stands behind the objects of a hub, where that is the home: Services, endpoints, `ConfigMap`s, Secrets. The
//! objects themselves are kept as those of a folder are.

use crate::database::{Database, DatabaseError, HUB};

impl Database {
    /// What was kept last, by its key.
    pub fn behind(&self) -> Result<Vec<(String, Vec<u8>)>, DatabaseError> {
        let mut entries = Vec::new();
        self.visit(HUB, "", |key, content| {
            entries.push((key.to_owned(), content.to_vec()));
            Ok(())
        })?;
        Ok(entries)
    }

    /// Returns once it is on disk.
    pub fn keep_behind(&self, changes: &[(String, Option<Vec<u8>>)]) -> Result<(), DatabaseError> {
        self.write_with(|transaction| {
            let mut table = transaction.open_table(HUB)?;
            for (key, content) in changes {
                match content {
                    Some(content) => _ = table.insert(key.as_str(), content.as_slice())?,
                    None => _ = table.remove(key.as_str())?,
                }
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_behind_a_hubs_objects_is_kept_and_goes() {
        let folder = tempfile::tempdir().unwrap();
        let entry = |key: &str, content: &str| (key.to_owned(), Some(content.as_bytes().to_vec()));
        {
            let database = Database::open(folder.path()).unwrap();
            database.keep_behind(&[entry("services/a/x", "1"), entry("services/a/y", "2")]).unwrap();
            database.keep_behind(&[entry("services/a/x", "3"), ("services/a/y".to_owned(), None)]).unwrap();
        }
        let behind = Database::open(folder.path()).unwrap().behind().unwrap();
        assert_eq!(behind, [("services/a/x".to_owned(), b"3".to_vec())]);
    }
}
