//! Which addresses have been given to whom. What a hub keeps as `Address` objects stands here in the same form.

use std::net::IpAddr;

use manifest::address::AddressSpec;
use model::address::{AddressName, Allocation};

use crate::database::{ADDRESSES, Database, DatabaseError};

impl Database {
    pub fn allocations(&self) -> Result<Vec<(IpAddr, Allocation)>, DatabaseError> {
        let mut known = Vec::new();
        self.visit(ADDRESSES, "", |name, value| {
            let read = || {
                let spec: AddressSpec = serde_json::from_slice(value).ok()?;
                Some((name.parse::<AddressName>().ok()?.0, spec.into_model()))
            };
            known.push(read().ok_or_else(|| DatabaseError::Entry(name.into()))?);
            Ok(())
        })?;
        Ok(known)
    }

    /// Returns once it is on disk: nobody has an address before.
    pub fn allocate(&self, changes: &[(IpAddr, Option<Allocation>)]) -> Result<(), DatabaseError> {
        self.write_with(|transaction| {
            let mut table = transaction.open_table(ADDRESSES)?;
            for (address, allocation) in changes {
                let name = AddressName(*address).to_string();
                match allocation {
                    Some(allocation) => {
                        let value = serde_json::to_vec(&AddressSpec::from(allocation));
                        let value = value.expect("an allocation is made of texts");
                        table.insert(name.as_str(), value.as_slice())?;
                    }
                    None => _ = table.remove(name.as_str())?,
                }
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use model::Timestamp;
    use model::address::ClaimId;

    use super::*;

    #[test]
    fn what_was_given_is_known_after_reopening() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Database::open(folder.path()).unwrap();
        let claim = ClaimId { namespace: "acme".parse().unwrap(), name: "web".parse().unwrap() };
        let given = |until: Option<u64>| Allocation {
            pool: "public".parse().unwrap(),
            claim: claim.clone(),
            uid: "17".into(),
            released_until: until.map(Timestamp),
        };
        let [v4, v6]: [IpAddr; 2] = ["198.51.100.7", "2001:db8::7"].map(|address| address.parse().unwrap());
        assert_eq!(open().allocations().unwrap(), []);
        open().allocate(&[(v4, Some(given(None))), (v6, Some(given(None)))]).unwrap();
        open().allocate(&[(v4, None), (v6, Some(given(Some(1_700_000_000_123_456_789))))]).unwrap();
        assert_eq!(open().allocations().unwrap(), [(v6, given(Some(1_700_000_000_123_456_789)))]);
    }
}
