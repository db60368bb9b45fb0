//! Columns that line up, with colours where somebody looks at them.

use std::io::{IsTerminal as _, Write as _};

const BOLD: &str = "\x1b[1m";
const GREEN: &str = "\x1b[32m";
const RED: &str = "\x1b[31m";
const PLAIN: &str = "\x1b[0m";

/// Words that say that all is well with an object; whatever else stands in the column `ACCEPTED` or `CODE` is a reason to look.
const WELL: [&str; 2] = ["Valid", "-"];

/// On standard output, in colours where that is a terminal that shows them and nobody minds (`NO_COLOR`).
pub(crate) fn show(table: &str) {
    let wanted = std::io::stdout().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty())
        && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
    let shown = if wanted { colour(table) } else { table.to_owned() };
    // Who closes it has seen enough.
    let _ = std::io::stdout().lock().write_all(shown.as_bytes());
}

/// The header bold, and what is well green, what is not red, in the columns that say so.
fn colour(table: &str) -> String {
    let Some((header, body)) = table.split_once('\n').filter(|(header, _)| header.starts_with(char::is_uppercase))
    else {
        return table.to_owned();
    };
    let column = ["ACCEPTED", "CODE"].iter().find_map(|title| {
        let start = header.find(title)?;
        let end = header[start..].find("   ").map_or(usize::MAX, |_| {
            start + header[start + title.len()..].find(|c: char| c != ' ').unwrap_or(0) + title.len()
        });
        Some((start, end))
    });
    let line = |line: &str| {
        let Some((start, end)) = column else { return format!("{line}\n") };
        let cut = |at: usize| line.char_indices().nth(at).map_or(line.len(), |(octet, _)| octet);
        let (start, end) = (cut(start), cut(end));
        let cell = &line[start..end];
        let paint = if WELL.contains(&cell.trim_end()) { GREEN } else { RED };
        format!("{}{paint}{cell}{PLAIN}{}\n", &line[..start], &line[end..])
    };
    let body: String = body.lines().map(line).collect();
    format!("{BOLD}{header}{PLAIN}\n{body}")
}

/// Pads every column to its widest cell; the last one is left as it is.
pub(crate) fn render(header: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([header[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded: Vec<String> = cells.zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        padded.join("   ").trim_end().to_owned() + "\n"
    };
    let body: String = rows.iter().map(|row| line(&mut row.iter().map(String::as_str))).collect();
    line(&mut header.iter().copied()) + &body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_well_is_red() {
        let rows =
            vec![vec!["ä".into(), "Valid".into(), "all".into()], vec!["b".into(), "NameTaken".into(), "x".into()]];
        let table = render(&["NAME", "ACCEPTED", "REMARKS"], &rows);
        let coloured = colour(&table);
        assert!(coloured.contains("\x1b[32mValid       \x1b[0mall"), "{coloured:?}");
        assert!(coloured.contains("\x1b[31mNameTaken   \x1b[0mx"), "{coloured:?}");
        assert!(coloured.starts_with("\x1b[1mNAME"));
        let plain = coloured.replace(BOLD, "").replace(GREEN, "").replace(RED, "").replace(PLAIN, "");
        assert_eq!(plain, table);
        assert_eq!(colour("nothing found\n"), "nothing found\n");
    }

    #[test]
    fn columns_line_up() {
        let rows = vec![vec!["a".into(), "long cell".into()], vec!["longer".into(), "x".into()]];
        assert_eq!(render(&["NAME", "B"], &rows), "NAME     B\na        long cell\nlonger   x\n");
    }
}
