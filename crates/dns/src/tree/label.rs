//! One label of a name, in lower case.

/// Labels up to this length are stored in place. Most are shorter; one more octet would take the whole node to a
/// second cache line.
const IN_PLACE: usize = 22;

#[derive(Debug, Clone)]
pub(super) struct Label(Octets);

#[derive(Debug, Clone)]
enum Octets {
    Short { length: u8, octets: [u8; IN_PLACE] },
    Long(Box<[u8]>),
}

impl Label {
    pub(super) fn new(label: &[u8]) -> Self {
        let mut octets = [0; IN_PLACE];
        match (octets.get_mut(..label.len()), u8::try_from(label.len())) {
            (Some(place), Ok(length)) => {
                place.copy_from_slice(label);
                Self(Octets::Short { length, octets })
            }
            _ => Self(Octets::Long(label.into())),
        }
    }

    pub(super) fn as_octets(&self) -> &[u8] {
        match &self.0 {
            Octets::Short { length, octets } => octets.get(..usize::from(*length)).unwrap_or_default(),
            Octets::Long(octets) => octets,
        }
    }
}

impl Default for Label {
    fn default() -> Self {
        Self::new(b"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_every_length_come_back() {
        for length in 0..=model::name::MAX_LABEL {
            let label = vec![b'x'; length];
            assert_eq!(Label::new(&label).as_octets(), label);
        }
        assert_eq!(size_of::<Label>(), 24);
    }
}
