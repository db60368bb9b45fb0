//! DNS names: parsed once at the border, lower-case and absolute from there on.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::identity::ClusterName;

/// RFC 1035 2.3.4: a name is at most 255 octets on the wire, the root's length octet included.
pub const MAX_NAME: usize = 255;
/// RFC 1035 2.3.4: a label is at most 63 octets.
pub const MAX_LABEL: usize = 63;

/// An absolute domain name in lower-case, uncompressed wire form.
///
/// Two names that differ only in case are the same value. Names order as RFC 4034 6.1 asks: label by label from the
/// root, so that a name stands right before everything below it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct DnsName(Arc<[u8]>);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("a DNS name must not be empty")]
    Empty,
    #[error("label {0:?} is longer than 63 octets")]
    LongLabel(String),
    #[error("the name is longer than 255 octets")]
    LongName,
    #[error("the name has an empty label (two dots in a row, or a leading dot)")]
    EmptyLabel,
    #[error("the name ends in the middle of an escape")]
    OpenEscape,
    #[error("`\\{0}` is not an octet; an escape is `\\` and three digits up to 255, or `\\` and one other character")]
    BadEscape(String),
    #[error("{0:?} cannot stand in a DNS name; write international names in their xn-- form")]
    NotAscii(char),
    #[error("{0:?} cannot stand in a DNS name unless it is escaped")]
    Unprintable(char),
    #[error("the octets are no uncompressed wire-format name")]
    BadWire,
}

impl DnsName {
    pub fn root() -> Self {
        Self(Arc::from([0].as_slice()))
    }

    /// Reads presentation form (RFC 1035 5.1), absolute with or without its final dot.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        if text == "." {
            return Ok(Self::root());
        }
        if text.is_empty() {
            return Err(NameError::Empty);
        }
        let mut wire = Vec::with_capacity(text.len() + 2);
        let mut label = Vec::new();
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            match c {
                '.' => {
                    push_label(&mut wire, &label)?;
                    label.clear();
                    if chars.as_str().is_empty() {
                        break;
                    }
                }
                '\\' => label.push(escaped_octet(&mut chars)?.to_ascii_lowercase()),
                c if !c.is_ascii() => return Err(NameError::NotAscii(c)),
                c if !c.is_ascii_graphic() => return Err(NameError::Unprintable(c)),
                c => label.push((c as u8).to_ascii_lowercase()),
            }
        }
        if !text.ends_with('.') || !label.is_empty() {
            push_label(&mut wire, &label)?;
        }
        wire.push(0);
        if wire.len() > MAX_NAME {
            return Err(NameError::LongName);
        }
        Ok(Self(wire.into()))
    }

    /// Reads an uncompressed name that fills `wire` exactly.
    pub fn from_wire(wire: &[u8]) -> Result<Self, NameError> {
        check_wire(wire)?;
        Ok(Self(wire.to_ascii_lowercase().into()))
    }

    pub fn as_wire(&self) -> &[u8] {
        &self.0
    }

    /// The labels from the leftmost to the one below the root, without their length octets.
    pub fn labels(&self) -> Labels<'_> {
        Labels(&self.0)
    }

    pub fn is_root(&self) -> bool {
        self.0.len() == 1
    }

    /// The name without its leftmost label; the root has none.
    pub fn parent(&self) -> Option<Self> {
        let length = usize::from(self.0[0]);
        (length != 0).then(|| Self(self.0[1 + length..].into()))
    }

    /// Whether this is `ancestor` or stands below it. Labels are compared, never text: `evilacme.test` is not under
    /// `acme.test`.
    pub fn is_at_or_under(&self, ancestor: &Self) -> bool {
        let Some(skip) = self.0.len().checked_sub(ancestor.0.len()) else { return false };
        self.0[skip..] == *ancestor.0 && self.label_starts().any(|start| start == skip)
    }

    pub fn is_wildcard(&self) -> bool {
        self.0.starts_with(b"\x01*")
    }

    /// `label.self`, where `label` is presentation form and may hold several labels.
    pub fn prepend(&self, relative: &str) -> Result<Self, NameError> {
        let front = Self::parse(relative)?;
        let mut wire = front.0[..front.0.len() - 1].to_vec();
        wire.extend_from_slice(&self.0);
        if wire.len() > MAX_NAME {
            return Err(NameError::LongName);
        }
        Ok(Self(wire.into()))
    }

    fn label_starts(&self) -> impl Iterator<Item = usize> + '_ {
        let mut next = Some(0);
        std::iter::from_fn(move || {
            let start = next?;
            let length = usize::from(self.0[start]);
            next = (length != 0).then_some(start + 1 + length);
            Some(start)
        })
    }
}

fn escaped_octet(chars: &mut std::str::Chars<'_>) -> Result<u8, NameError> {
    let first = chars.next().ok_or(NameError::OpenEscape)?;
    if !first.is_ascii() {
        return Err(NameError::NotAscii(first));
    }
    if !first.is_ascii_digit() {
        return Ok(first as u8);
    }
    let digits: String = std::iter::once(first).chain(chars.by_ref().take(2)).collect();
    if digits.chars().count() < 3 {
        return Err(NameError::OpenEscape);
    }
    digits.parse().map_err(|_| NameError::BadEscape(digits))
}

fn push_label(wire: &mut Vec<u8>, label: &[u8]) -> Result<(), NameError> {
    match label.len() {
        0 => Err(NameError::EmptyLabel),
        length if length <= MAX_LABEL => {
            wire.push(u8::try_from(length).expect("a label's length was just compared with 63"));
            wire.extend_from_slice(label);
            Ok(())
        }
        _ => Err(NameError::LongLabel(String::from_utf8_lossy(label).into_owned())),
    }
}

pub struct Labels<'a>(&'a [u8]);

impl<'a> Iterator for Labels<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (&length, rest) = self.0.split_first()?;
        if length == 0 {
            return None;
        }
        let (label, rest) = rest.split_at(usize::from(length));
        self.0 = rest;
        Some(label)
    }
}

impl FromStr for DnsName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        Self::parse(text)
    }
}

/// Without the final dot, as people write names in manifests.
impl fmt::Display for DnsName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_root() {
            return f.write_str(".");
        }
        for (position, label) in self.labels().enumerate() {
            if position > 0 {
                f.write_str(".")?;
            }
            for &octet in label {
                match octet {
                    b'.' | b'\\' => write!(f, "\\{}", char::from(octet))?,
                    0x21..=0x7e => write!(f, "{}", char::from(octet))?,
                    _ => write!(f, "\\{octet:03}")?,
                }
            }
        }
        Ok(())
    }
}

impl fmt::Debug for DnsName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Ord for DnsName {
    fn cmp(&self, other: &Self) -> Ordering {
        compare(&self.0, &other.0)
    }
}

/// The order of names, of two in wire form.
pub(crate) fn compare(left: &[u8], right: &[u8]) -> Ordering {
    let (mut mine, mut theirs) = ([0; MAX_LABELS], [0; MAX_LABELS]);
    let (mine, theirs) = (label_starts(left, &mut mine), label_starts(right, &mut theirs));
    let mine = mine.iter().rev().map(|start| label_at(left, *start));
    mine.cmp(theirs.iter().rev().map(|start| label_at(right, *start)))
}

/// RFC 1035 2.3.4: in 255 octets.
pub(crate) const MAX_LABELS: usize = 127;

/// Whether octets are one uncompressed name.
pub(crate) fn check_wire(wire: &[u8]) -> Result<(), NameError> {
    if wire.len() > MAX_NAME {
        return Err(NameError::LongName);
    }
    let mut rest = wire;
    loop {
        match rest {
            [0] => return Ok(()),
            [length, tail @ ..] if (1..=MAX_LABEL).contains(&usize::from(*length)) => {
                rest = tail.get(usize::from(*length)..).ok_or(NameError::BadWire)?;
            }
            _ => return Err(NameError::BadWire),
        }
    }
}

/// Where the labels of a name in wire form start, but the root's.
pub(crate) fn label_starts<'a>(wire: &[u8], starts: &'a mut [u8; MAX_LABELS]) -> &'a [u8] {
    let (mut count, mut at) = (0, 0);
    while wire[usize::from(at)] != 0 && count < MAX_LABELS {
        starts[count] = at;
        count += 1;
        at += 1 + wire[usize::from(at)];
    }
    &starts[..count]
}

pub(crate) fn label_at(wire: &[u8], start: u8) -> &[u8] {
    let start = usize::from(start);
    &wire[start + 1..=start + usize::from(wire[start])]
}

impl PartialOrd for DnsName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A name relative to a zone with one `{cluster}` in it, such as `api.{cluster}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameTemplate(String);

const PLACEHOLDER: &str = "{cluster}";

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    #[error("a name template holds `{{cluster}}` exactly once, such as `api.{{cluster}}`")]
    Placeholder,
    #[error("a name template is relative to the zone's domain and has no final dot")]
    Absolute,
    #[error(transparent)]
    Name(#[from] NameError),
}

impl NameTemplate {
    pub fn expand(&self, cluster: &ClusterName, zone: &DnsName) -> Result<DnsName, NameError> {
        zone.prepend(&self.0.replace(PLACEHOLDER, cluster.as_str()))
    }

    pub fn is_wildcard(&self) -> bool {
        self.0.starts_with("*.")
    }
}

impl FromStr for NameTemplate {
    type Err = TemplateError;

    fn from_str(text: &str) -> Result<Self, TemplateError> {
        if text.matches(PLACEHOLDER).count() != 1 {
            return Err(TemplateError::Placeholder);
        }
        if text.ends_with('.') {
            return Err(TemplateError::Absolute);
        }
        DnsName::parse(&text.replace(PLACEHOLDER, "x"))?;
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for NameTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> DnsName {
        DnsName::parse(text).unwrap()
    }

    #[test]
    fn spellings_of_one_name_are_equal() {
        for (left, right) in [
            ("c1.fleet.example", "C1.Fleet.EXAMPLE."),
            (r"a\046b.example", r"a\.b.example"),
            (r"\097.example", "a.example"),
            (r"\065.example", "a.example"),
            (".", "."),
        ] {
            assert_eq!(name(left), name(right), "{left} and {right}");
        }
        assert_ne!(name(r"a\.b.example"), name("a.b.example"));
    }

    #[test]
    fn bad_names_are_refused_with_the_reason() {
        let long_label = "a".repeat(64);
        let long_name = "a.".repeat(128);
        for (text, error) in [
            ("", NameError::Empty),
            ("a..b", NameError::EmptyLabel),
            (".a", NameError::EmptyLabel),
            ("a..", NameError::EmptyLabel),
            ("..", NameError::EmptyLabel),
            (long_label.as_str(), NameError::LongLabel(long_label.clone())),
            (long_name.as_str(), NameError::LongName),
            ("a\\", NameError::OpenEscape),
            ("a\\12", NameError::OpenEscape),
            ("a\\256", NameError::BadEscape("256".into())),
            ("bücher.example", NameError::NotAscii('ü')),
            ("a b", NameError::Unprintable(' ')),
        ] {
            assert_eq!(DnsName::parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn the_longest_name_fits_and_one_octet_more_does_not() {
        let longest = ["a".repeat(63), "b".repeat(63), "c".repeat(63), "d".repeat(61)].join(".");
        assert_eq!(name(&longest).as_wire().len(), MAX_NAME);
        assert_eq!(DnsName::parse(&format!("{longest}d")), Err(NameError::LongName));
    }

    #[test]
    fn ancestry_goes_by_labels() {
        for (below, above, expected) in [
            ("acme.test", "acme.test", true),
            ("a.acme.test", "acme.test", true),
            ("evilacme.test", "acme.test", false),
            ("acme.test", "a.acme.test", false),
            ("a.test", ".", true),
            // The octets of `b.test` also end this name, but not at a label's start.
            (r"a\001b.test", "b.test", false),
        ] {
            assert_eq!(name(below).is_at_or_under(&name(above)), expected, "{below} under {above}");
        }
    }

    #[test]
    fn names_sort_right_before_what_is_below_them() {
        // RFC 4034 6.1's own example.
        let sorted = [
            "example",
            "a.example",
            "yljkjljk.a.example",
            "z.a.example",
            "zabc.a.example",
            "z.example",
            r"\001.z.example",
            "*.z.example",
            r"\200.z.example",
        ];
        assert!(sorted.is_sorted_by_key(|text| name(text)));
    }

    #[test]
    fn wire_form_is_checked() {
        assert_eq!(DnsName::from_wire(b"\x02C1\x04test\0"), Ok(name("c1.test")));
        for wire in [b"".as_slice(), b"\x02c1", b"\x02c1\x04tes", b"\xc0\x0c", b"\x01a\0\0", b"\x40"] {
            assert_eq!(DnsName::from_wire(wire), Err(NameError::BadWire), "{wire:?}");
        }
    }

    #[test]
    fn templates_hold_the_cluster_once() {
        let zone = name("fleet.example");
        let cluster: ClusterName = "c1".parse().unwrap();
        let api: NameTemplate = "api-{cluster}.k8s".parse().unwrap();
        assert_eq!(api.expand(&cluster, &zone).unwrap(), name("api-c1.k8s.fleet.example"));
        for (text, error) in [
            ("api", TemplateError::Placeholder),
            ("{cluster}.{cluster}", TemplateError::Placeholder),
            ("{cluster}.", TemplateError::Absolute),
            ("a..{cluster}", TemplateError::Name(NameError::EmptyLabel)),
        ] {
            assert_eq!(text.parse::<NameTemplate>(), Err(error), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn display_and_parse_are_inverse(labels in proptest::collection::vec(proptest::collection::vec(0u8.., 1..20), 1..8)) {
            let mut wire = Vec::new();
            for label in &labels {
                wire.push(u8::try_from(label.len()).unwrap());
                wire.extend_from_slice(label);
            }
            wire.push(0);
            let original = DnsName::from_wire(&wire).unwrap();
            proptest::prop_assert_eq!(DnsName::parse(&original.to_string()).unwrap(), original);
        }

        #[test]
        fn any_text_parses_or_is_refused(text in ".*") {
            let _ = DnsName::parse(&text);
        }
    }
}
