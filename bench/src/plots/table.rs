//! The tables of figures, as `report` prints them.

/// What was measured of one thing.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    pub(super) label: String,
    pub(super) median: Figure,
    pub(super) p99: Option<Figure>,
    pub(super) max: Option<Figure>,
    /// Whether it is the least, else the most, and how much.
    pub(super) bar: Option<(bool, Figure)>,
    /// None where there is no bar.
    pub(super) is_met: Option<bool>,
}

/// A number with its unit.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Figure {
    pub(super) number: f64,
    /// As it is written.
    pub(super) text: String,
}

/// The first table behind a line that begins with the name.
pub(super) fn find(readme: &str, name: &str) -> Option<Vec<Row>> {
    let start = format!("`{name}`: ");
    let lines = readme.lines().skip_while(|line| !line.starts_with(&start));
    let table = lines.skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    // The header, and the line below it.
    let rows: Vec<Row> = table.skip(2).filter_map(read).collect();
    (!rows.is_empty()).then_some(rows)
}

fn read(line: &str) -> Option<Row> {
    let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
    let [label, _count, median, p99, max, bar, met] = cells.as_slice() else { return None };
    let limit = bar.strip_prefix(">= ").map(|least| (true, least));
    let limit = limit.or_else(|| bar.strip_prefix("<= ").map(|most| (false, most)));
    Some(Row {
        label: (*label).to_owned(),
        median: figure(median)?,
        p99: figure(p99),
        max: figure(max),
        bar: limit.and_then(|(is_least, limit)| Some((is_least, figure(limit)?))),
        is_met: match *met {
            "yes" => Some(true),
            "NO" => Some(false),
            _ => None,
        },
    })
}

fn figure(cell: &str) -> Option<Figure> {
    let number = cell.split(' ').next()?.parse().ok()?;
    Some(Figure { number, text: cell.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const README: &str = "\
# Figures

`other`: a machine

| | n | median | p99 | max | bar | met |
|---|--:|--:|--:|--:|--:|--:|
| nothing | 1 | 1.00 x | | | | |

`dns`: a machine

|          |   n |    median |    p99 |       max |       bar | met |
|----------|----:|----------:|-------:|----------:|----------:|----:|
| a ratio  |   5 |    1.40 x |        |    1.51 x | >= 1.35 x | yes |
| a change | 200 |    1.3 ms | 2.9 ms |    5.1 ms | <= 5.0 ms |  NO |

| of another table | 1 | 1.00 x | | | | |
";

    #[test]
    fn a_table_is_read_as_it_is_printed() {
        let rows = find(README, "dns").unwrap();
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0].label, "a ratio");
        assert_eq!(rows[0].median.number.to_string(), "1.4");
        let bar = rows[0].bar.as_ref().map(|(is_least, figure)| (*is_least, figure.text.as_str()));
        assert_eq!((bar, rows[0].is_met), (Some((true, "1.35 x")), Some(true)));
        assert_eq!(rows[1].p99.as_ref().map(|figure| figure.text.as_str()), Some("2.9 ms"));
        assert_eq!(rows[1].is_met, Some(false));
        assert_eq!(find(README, "none"), None);
    }
}
