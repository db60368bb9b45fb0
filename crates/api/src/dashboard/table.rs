//! Tables, pages of them, and links with a query.

use std::fmt::Write as _;

use maud::{Markup, html};

/// Rows of one page: a screen or two, some 10 KiB.
pub(super) const ROWS: usize = 50;

pub(super) struct Column {
    name: &'static str,
    is_number: bool,
}

pub(super) const fn text(name: &'static str) -> Column {
    Column { name, is_number: false }
}

pub(super) const fn number(name: &'static str) -> Column {
    Column { name, is_number: true }
}

/// The first cell of each row is its heading; on a phone each cell has the name of its column before it.
pub(super) fn table(caption: &str, columns: &[Column], rows: Vec<Vec<Markup>>, empty: &str) -> Markup {
    if rows.is_empty() {
        return html! { h2 { (caption) } p.empty { (empty) } };
    }
    let class = |column: &Column| column.is_number.then_some("number");
    html! {
        table {
            caption { h2 { (caption) } }
            thead { tr { @for column in columns { th scope="col" class=[class(column)] { (column.name) } } } }
            tbody {
                @for row in rows {
                    tr {
                        @for (place, (column, cell)) in columns.iter().zip(row).enumerate() {
                            @if place == 0 {
                                th scope="row" data-label=(column.name) class=[class(column)] { (cell) }
                            } @else {
                                td data-label=(column.name) class=[class(column)] { div { (cell) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// One page of many rows.
pub(super) struct Paged<T> {
    pub(super) rows: Vec<T>,
    page: usize,
    pages: usize,
    total: usize,
}

impl<T> Paged<T> {
    /// `page` is from 1; one that there is not is the last.
    pub(super) fn of(rows: impl Iterator<Item = T>, total: usize, page: usize) -> Self {
        let pages = total.div_ceil(ROWS).max(1);
        let page = page.clamp(1, pages);
        Self { rows: rows.skip((page - 1) * ROWS).take(ROWS).collect(), page, pages, total }
    }

    /// What the others are reached by; `fields` are those of the query, the page aside.
    pub(super) fn links(&self, path: &str, fields: &[(&str, &str)]) -> Markup {
        let link = |page: usize| {
            let page = page.to_string();
            let fields: Vec<_> = fields.iter().copied().chain([("page", &*page)]).collect();
            format!("{path}?{}", query(&fields))
        };
        html! {
            @if self.pages > 1 {
                nav.pages aria-label="Pages of the table" {
                    @if self.page > 1 { a rel="prev" href=(link(self.page - 1)) { "← Before" } }
                    span { "page " (self.page) " of " (self.pages) ", " (grouped(self.total)) " in all" }
                    @if self.page < self.pages { a rel="next" href=(link(self.page + 1)) { "Next →" } }
                }
            }
        }
    }
}

/// Fields that are empty are left out.
pub(super) fn query(fields: &[(&str, &str)]) -> String {
    let fields = fields.iter().filter(|(_, value)| !value.is_empty());
    fields.map(|(name, value)| format!("{name}={}", encode(value))).collect::<Vec<_>>().join("&")
}

/// RFC 3986 2.1, for all but what never needs it.
fn encode(text: &str) -> String {
    text.bytes().fold(String::new(), |mut encoded, octet| {
        match octet {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'/' => encoded.push(octet.into()),
            // Writing to a text never fails.
            _ => _ = write!(encoded, "%{octet:02X}"),
        }
        encoded
    })
}

/// `12,345`.
pub(super) fn grouped(count: usize) -> String {
    let digits = count.to_string();
    let places = digits.len();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (places - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `one cluster`, `2 clusters`.
pub(super) fn counted(count: usize, one: &str) -> String {
    if count == 1 { format!("one {one}") } else { format!("{} {one}s", grouped(count)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_queries_as_people_and_browsers_read_them() {
        for (count, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(count), text);
        }
        assert_eq!(query(&[("q", "a b&c=\"<"), ("state", ""), ("page", "2")]), "q=a%20b%26c%3D%22%3C&page=2");
        assert_eq!(Paged::of(0..101, 101, 9).rows, [100]);
        assert_eq!(Paged::of(0..101, 101, 0).rows[0], 0);
    }
}
