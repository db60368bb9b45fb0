//! A name on its way through a query: on the stack, in lower case, with the places of its labels.

use model::DnsName;
use model::name::{MAX_LABEL, MAX_NAME};

/// RFC 1035 2.3.4: 255 octets hold 127 labels of one octet, and the root.
const MAX_LABELS: usize = 127;

#[derive(Debug, Clone)]
pub(crate) struct QueryName {
    octets: [u8; MAX_NAME],
    length: u8,
    /// Where each label's length octet is, the leftmost first; the last is the root's.
    starts: [u8; MAX_LABELS + 1],
    labels: u8,
}

impl QueryName {
    /// The root; to be read into.
    pub(crate) fn root() -> Self {
        Self { octets: [0; MAX_NAME], length: 1, starts: [0; MAX_LABELS + 1], labels: 0 }
    }

    /// Reads an uncompressed name at the beginning of `wire`.
    pub(crate) fn read(wire: &[u8]) -> Option<Self> {
        let mut name = Self::root();
        name.read_again(wire).then_some(name)
    }

    /// The same in place, where copying 400 octets would count. A name that could not be read holds nothing of use.
    pub(crate) fn read_again(&mut self, wire: &[u8]) -> bool {
        self.try_read(wire).is_some()
    }

    fn try_read(&mut self, wire: &[u8]) -> Option<()> {
        let (mut at, mut labels) = (0, 0);
        loop {
            let length = usize::from(*wire.get(at)?);
            // Pointers are longer, too: nothing that stands before a question can be pointed to.
            if length > MAX_LABEL || at + length >= MAX_NAME {
                return None;
            }
            // Checked to be below 255.
            #[allow(clippy::cast_possible_truncation)]
            let place = at as u8;
            *self.starts.get_mut(usize::from(labels))? = place;
            if length == 0 {
                break;
            }
            labels += 1;
            at += 1 + length;
        }
        let octets = self.octets.get_mut(..=at)?;
        octets.copy_from_slice(wire.get(..=at)?);
        // Lengths are below every letter, so that the whole name can be made lower-case at once.
        octets.make_ascii_lowercase();
        self.length = u8::try_from(at + 1).ok()?;
        self.labels = labels;
        Some(())
    }

    pub(crate) fn as_wire(&self) -> &[u8] {
        &self.octets[..usize::from(self.length)]
    }

    /// How many labels it has, the root's not counted.
    pub(crate) fn label_count(&self) -> usize {
        self.labels.into()
    }

    /// Without its length octet; 0 is the leftmost.
    pub(crate) fn label(&self, number: usize) -> &[u8] {
        let start = self.start(number);
        &self.octets[start + 1..=start + usize::from(self.octets[start])]
    }

    /// Where the name begins that has `number` labels less.
    pub(crate) fn start(&self, number: usize) -> usize {
        self.starts[number].into()
    }

    /// The name without its `number` leftmost labels.
    pub(crate) fn without(&self, number: usize) -> &[u8] {
        &self.as_wire()[self.start(number)..]
    }

    /// How many labels it has below `apex`; none where it lies elsewhere.
    pub(crate) fn labels_below(&self, apex: &DnsName) -> Option<usize> {
        let skip = self.as_wire().len().checked_sub(apex.as_wire().len())?;
        let below = (0..=self.label_count()).find(|number| self.start(*number) >= skip)?;
        (self.start(below) == skip && self.without(below) == apex.as_wire()).then_some(below)
    }

    /// RFC 6672 2.2: what stands before the `number`th label, followed by `target`. None where that is too long.
    pub(crate) fn redirected(&self, number: usize, target: &[u8]) -> Option<Self> {
        let front = &self.as_wire()[..self.start(number)];
        let mut octets = [0; MAX_NAME];
        octets.get_mut(..front.len())?.copy_from_slice(front);
        octets.get_mut(front.len()..front.len() + target.len())?.copy_from_slice(target);
        Self::read(&octets[..front.len() + target.len()])
    }
}
