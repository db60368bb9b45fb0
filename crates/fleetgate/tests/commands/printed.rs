//! Whether a command printed what the page says.
//!
//! `…` stands for anything within a line, and for any lines where it is one by itself. What differs from one time to the next
//! stands for its like: moments in RFC 3339, ids of 16 hexadecimal digits, UUIDs, and ages (`5s`, `2d`) at the end of a
//! line. The width of columns does not count, nor do empty lines at the end.

/// The lines that differ, as a patch shows them; `None` where all is as it should be.
pub(crate) fn difference(expected: &[String], printed: &str) -> Option<String> {
    let wanted: Vec<String> = expected.iter().map(|line| plain(line)).collect();
    let found: Vec<String> = printed.trim_end().lines().map(plain).collect();
    if lines_match(&wanted, &found) {
        return None;
    }
    // What both begin with is no difference.
    let same = wanted.iter().zip(&found).take_while(|(wanted, found)| *wanted != ANYTHING && matches(wanted, found));
    let same = same.count();
    let lines = printed.trim_end().lines();
    let shown = lines.clone().take(same).map(|line| format!("  {line}"));
    let missed = expected.iter().skip(same).map(|line| format!("- {line}"));
    let instead = lines.skip(same).map(|line| format!("+ {line}"));
    Some(shown.chain(missed).chain(instead).collect::<Vec<_>>().join("\n"))
}

/// Whether a page says anything of its own about it.
pub(crate) fn says_something(expected: &[String]) -> bool {
    expected.iter().any(|line| !line.trim().is_empty() && line.trim() != ANYTHING)
}

const ANYTHING: &str = "…";

fn lines_match(wanted: &[String], found: &[String]) -> bool {
    match wanted.split_first() {
        None => found.is_empty(),
        Some((line, rest)) if line == ANYTHING => (0..=found.len()).any(|passed| lines_match(rest, &found[passed..])),
        Some((line, rest)) => {
            found.split_first().is_some_and(|(first, others)| matches(line, first) && lines_match(rest, others))
        }
    }
}

fn matches(wanted: &str, found: &str) -> bool {
    match wanted.split_once(ANYTHING) {
        None => wanted == found,
        Some((before, rest)) => found.strip_prefix(before).is_some_and(|found| {
            // From every place where a character begins, and from the end.
            let places = found.char_indices().map(|(place, _)| place).chain([found.len()]);
            places.into_iter().any(|place| matches(rest, &found[place..]))
        }),
    }
}

/// With one space where there are several, and a word for what differs from one time to the next.
fn plain(line: &str) -> String {
    let mut words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    if let Some(last) = words.last_mut()
        && is_age(last)
    {
        "<age>".clone_into(last);
    }
    let line = words.join(" ");
    let mut plain = String::new();
    let mut rest = line.as_str();
    let mut before = None;
    while let Some(next) = rest.chars().next() {
        // An id or a moment begins where a word does.
        let begins = before.is_none_or(|before: char| !before.is_ascii_alphanumeric());
        let varies = if begins { moment(rest).or_else(|| identifier(rest)) } else { None };
        let (length, shown) = varies.unwrap_or((next.len_utf8(), ""));
        plain.push_str(if shown.is_empty() { &rest[..length] } else { shown });
        before = rest[..length].chars().next_back();
        rest = &rest[length..];
    }
    plain
}

fn is_age(word: &str) -> bool {
    let digits = word.trim_end_matches(['s', 'm', 'h', 'd']);
    digits.len() < word.len() && word.starts_with(|first: char| first.is_ascii_digit()) && {
        let parts = word.split(['s', 'm', 'h', 'd']);
        parts.into_iter().all(|part| part.chars().all(|digit| digit.is_ascii_digit()))
    }
}

/// `2026-03-01T09:00:00Z`, with or without a part of the second.
fn moment(text: &str) -> Option<(usize, &'static str)> {
    const SHAPE: &[u8] = b"0000-00-00T00:00:00";
    let fits = |(shape, octet): (&u8, &u8)| if *shape == b'0' { octet.is_ascii_digit() } else { shape == octet };
    if text.len() <= SHAPE.len() || !SHAPE.iter().zip(text.as_bytes()).all(fits) {
        return None;
    }
    let rest = &text[SHAPE.len()..];
    let fraction = rest.strip_prefix('.').map_or(0, |rest| 1 + rest.bytes().take_while(u8::is_ascii_digit).count());
    rest[fraction..].starts_with('Z').then_some((SHAPE.len() + fraction + 1, "<moment>"))
}

fn identifier(text: &str) -> Option<(usize, &'static str)> {
    let end = text.find(|letter: char| !letter.is_ascii_hexdigit() && letter != '-').unwrap_or(text.len());
    let word = &text[..end];
    let ends = text[end..].chars().next().is_none_or(|next| !next.is_ascii_alphanumeric());
    let groups: Vec<usize> = word.split('-').map(str::len).collect();
    match groups.as_slice() {
        [16] if ends => Some((end, "<id>")),
        [8, 4, 4, 4, 12] if ends => Some((end, "<uuid>")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agrees(expected: &[&str], printed: &str) -> bool {
        let expected: Vec<String> = expected.iter().map(|&line| line.to_owned()).collect();
        difference(&expected, printed).is_none()
    }

    #[test]
    fn only_what_varies_may_differ() {
        assert!(agrees(&["a  b", "c"], "a b\nc\n\n"));
        assert!(!agrees(&["a"], "a\nb"));
        assert!(!agrees(&["a", "b"], "a"));
        assert!(agrees(&["a", "…", "z"], "a\nz"));
        assert!(agrees(&["a", "…", "z"], "a\nm\nn\nz"));
        assert!(!agrees(&["a", "…", "z"], "a\nm"));
        assert!(agrees(&["from … to …."], "from here to there."));
        assert!(!agrees(&["from … to"], "from here to there"));
        let listed = "7d0f0f4f1cf6b6a1 c1 2026-03-01T09:00:00Z";
        assert!(agrees(&[listed], "00000000ffffffff   c1  1999-12-31T23:59:59.123Z"));
        assert!(!agrees(&[listed], "00000000ffffffff   c2  1999-12-31T23:59:59Z"));
        assert!(!agrees(&["7d0f0f4f1cf6b6a1"], "7d0f0f4f1cf6b6a10"));
        assert!(agrees(&["c1 Ready 2d"], "c1 Ready 3m12s"));
        assert!(!agrees(&["c1 Ready 2d"], "c1 Ready never"));
        assert!(!agrees(&["wait 2d long"], "wait 3d long"));
    }

    #[test]
    fn a_difference_is_shown_line_by_line() {
        let expected = ["same".to_owned(), "was".to_owned()];
        assert_eq!(difference(&expected, "same\nis\n").unwrap(), "  same\n- was\n+ is");
    }
}
