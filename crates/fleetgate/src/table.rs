//! Columns that line up, with colours where somebody looks at them.

use std::io::Write as _;

use crate::paint::Paint;

/// Words that say that all is well with an object; whatever else stands in the column `ACCEPTED` or `CODE` is a reason to look.
const WELL: [&str; 2] = ["Valid", "-"];

/// On standard output.
pub(crate) fn show(table: &str, paint: Paint) {
    write(&if paint.is_on { colour(table, paint) } else { table.to_owned() });
}

/// On standard output, as it is.
pub(crate) fn write(text: &str) {
    // Who closes it has seen enough.
    _ = std::io::stdout().lock().write_all(text.as_bytes());
}

/// The header bold, and what is well green, what is not red, in the columns that say so.
fn colour(table: &str, paint: Paint) -> String {
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
        let cell = if WELL.contains(&cell.trim_end()) { paint.green(cell) } else { paint.red(cell) };
        format!("{}{cell}{}\n", &line[..start], &line[end..])
    };
    let body: String = body.lines().map(line).collect();
    format!("{}\n{body}", paint.bold(header))
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
        let paint = Paint { is_on: true };
        let coloured = colour(&table, paint);
        assert!(coloured.contains("\x1b[32mValid       \x1b[0mall"), "{coloured:?}");
        assert!(coloured.contains("\x1b[31mNameTaken   \x1b[0mx"), "{coloured:?}");
        assert!(coloured.starts_with("\x1b[1mNAME"));
        let codes = ["\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[0m"];
        assert_eq!(codes.iter().fold(coloured, |text, code| text.replace(code, "")), table);
        assert_eq!(colour("nothing found\n", paint), "nothing found\n");
    }

    #[test]
    fn columns_line_up() {
        let rows = vec![vec!["a".into(), "long cell".into()], vec!["longer".into(), "x".into()]];
        assert_eq!(render(&["NAME", "B"], &rows), "NAME     B\na        long cell\nlonger   x\n");
    }
}
