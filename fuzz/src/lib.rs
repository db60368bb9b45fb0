//! What the targets share: how a reader is held to "any split".

use std::fmt::Debug;

/// After its decision a reader is asked about this many more bytes, one by one, and then about all. More would only
/// slow the fuzzer down: what is past the opening is not looked at.
const ASKED_AFTER: usize = 64;

/// Shows a reader every beginning of `bytes`, as a connection does that gets them one by one, and holds it to this:
/// it is undecided for a while and then says, for ever, what it says of the whole. Returns how many bytes it took.
///
/// For a reader without state between two questions these are all splits that there are.
pub fn decided_at<'a, V: Debug + PartialEq>(
    bytes: &'a [u8],
    undecided: &V,
    mut read: impl FnMut(&'a [u8]) -> V,
) -> Option<usize> {
    let whole = read(bytes);
    let decided = (0..=bytes.len()).find(|end| read(&bytes[..*end]) != *undecided);
    let Some(decided) = decided else {
        assert_eq!(whole, *undecided, "it decides about all of it only when it is asked at once");
        return None;
    };
    for end in (decided..=bytes.len()).take(ASKED_AFTER) {
        assert_eq!(read(&bytes[..end]), whole, "after {end} of {} bytes", bytes.len());
    }
    Some(decided)
}
