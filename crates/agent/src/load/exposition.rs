//! Prometheus' text format, as far as it takes to find some metrics in a page: a reader of our own, as a page comes every second from every pod, and
//! nearly all of it is of no interest.

/// What stands in a page under one name, over all of its labels.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Found {
    /// Of how many lines.
    pub(super) count: usize,
    pub(super) sum: f64,
    pub(super) largest: f64,
}

/// A line of a metric that is wanted, and cannot be read; counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BadLine(pub(super) usize);

/// One for each of the names. Values that are no numbers (`NaN`, of a summary of nothing, and infinities) are passed over.
pub(super) fn find(page: &[u8], names: &[&str]) -> Result<Vec<Found>, BadLine> {
    let mut found = vec![Found::default(); names.len()];
    for (number, line) in page.split(|octet| *octet == b'\n').enumerate() {
        let line = line.trim_ascii();
        let end = line.iter().position(|octet| !is_of_name(*octet)).unwrap_or(line.len());
        let (name, rest) = line.split_at(end);
        if name.is_empty() || !names.iter().any(|wanted| wanted.as_bytes() == name) {
            continue;
        }
        let value = value(rest).ok_or(BadLine(number + 1))?;
        if !value.is_finite() {
            continue;
        }
        for (found, _) in found.iter_mut().zip(names).filter(|(_, wanted)| wanted.as_bytes() == name) {
            found.largest = if found.count == 0 { value } else { found.largest.max(value) };
            found.count += 1;
            found.sum += value;
        }
    }
    Ok(found)
}

fn is_of_name(octet: u8) -> bool {
    octet.is_ascii_alphanumeric() || matches!(octet, b'_' | b':')
}

/// What stands behind the name: labels, the value, and perhaps a moment or an exemplar, which nobody asks for.
fn value(rest: &[u8]) -> Option<f64> {
    let spaced = rest.trim_ascii_start();
    let after_labels = match spaced.first()? {
        b'{' => behind_labels(&spaced[1..])?,
        // A value has to be set apart from the name.
        _ if spaced.len() < rest.len() => spaced,
        _ => return None,
    };
    let text = after_labels.trim_ascii_start();
    let end = text.iter().position(u8::is_ascii_whitespace).unwrap_or(text.len());
    std::str::from_utf8(&text[..end]).ok()?.parse().ok()
}

/// What follows on the bracket that closes; one within quotes does not.
fn behind_labels(labels: &[u8]) -> Option<&[u8]> {
    let (mut quoted, mut escaped) = (false, false);
    for (at, octet) in labels.iter().enumerate() {
        match octet {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'}' if !quoted => return Some(&labels[at + 1..]),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PAGE: &str = "\
# HELP http_requests_total Requests.
# TYPE http_requests_total counter
http_requests_total{code=\"200\",path=\"/\"} 100 1395066363000
http_requests_total{code=\"500\", path=\"a } \\\" \\\\\" } 2.5e1
http_requests_total_more 7
http_requests 9
in_flight 3
in_flight{door=\"b\"}4
empty NaN
full +Inf
temperature -2.5 # {trace=\"x\"} 1
temperature{at=\"night\"}\t-7
no_value
{\"utf-8.name\"} 5
# EOF
";

    #[test]
    fn a_metric_is_summed_over_its_labels() {
        let found = |names: &[&str]| find(PAGE.as_bytes(), names);
        let of = |count, sum, largest| Found { count, sum, largest };
        let names = ["http_requests_total", "in_flight", "nothing", "empty", "full", "temperature"];
        let expected = [
            of(2, 125.0, 100.0),
            of(2, 7.0, 4.0),
            Found::default(),
            Found::default(),
            Found::default(),
            of(2, -9.5, -2.5),
        ];
        assert_eq!(found(&names), Ok(expected.to_vec()));
        assert_eq!(
            found(&["in_flight", "in_flight"]).unwrap()[1],
            of(2, 7.0, 4.0),
            "the same name may be wanted twice"
        );
        assert_eq!(found(&["no_value"]), Err(BadLine(13)));
    }

    #[test]
    fn lines_that_are_cut_or_garbled_are_told_where_they_matter() {
        for line in
            ["a", "a{", "a{b=\"}\" 1", "a{b=\"c\"}", "a x", "a 1x", "a{b=\"c\\\"} 1", "a\u{e4} 1", "a}1", "a{} \u{e4}"]
        {
            assert_eq!(find(line.as_bytes(), &["a"]), Err(BadLine(1)), "{line}");
            assert_eq!(find(line.as_bytes(), &["b"]), Ok(vec![Found::default()]), "{line}");
        }
        for line in ["a 1", " a 1\r", "a\t1", "a{} 1", "a {b=\"c\"} 1", "a{b=\"c\"}1 2 3"] {
            assert_eq!(find(line.as_bytes(), &["a"]).map(|found| found[0].sum), Ok(1.0), "{line}");
        }
    }

    proptest! {
        #[test]
        fn any_page_is_read_or_told(page in proptest::collection::vec(any::<u8>(), 0..2000), at in 0..=PAGE.len(), octet: u8) {
            let _ = find(&page, &["a", "b"]);
            // What is nearly right, too.
            let mut page = PAGE.as_bytes().to_vec();
            page.insert(at, octet);
            let _ = find(&page, &["http_requests_total", "in_flight", "temperature"]);
            page.truncate(at);
            let _ = find(&page, &["http_requests_total", "in_flight", "temperature"]);
        }

        #[test]
        fn what_is_written_is_read(values in proptest::collection::vec((-1e9..1e9_f64, "[ -~]{0,20}"), 0..20)) {
            let line = |(value, label): &(f64, String)| {
                format!("m{{l=\"{}\"}} {value}\n", label.replace('\\', "\\\\").replace('"', "\\\""))
            };
            let page: String = values.iter().map(line).collect();
            let found = find(page.as_bytes(), &["m"]).unwrap()[0];
            let sum: f64 = values.iter().map(|(value, _)| value).sum();
            prop_assert_eq!(found.count, values.len());
            prop_assert!((found.sum - sum).abs() <= 1e-6 * (1.0 + sum.abs()));
        }
    }
}
