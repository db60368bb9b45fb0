//! A vector for one writer and many readers: a copy shares all pages with its original, and a change copies the page it
//! is in and nothing else.

use std::sync::Arc;

/// Pages per chunk. A copy of the vector counts one more owner for each chunk, a change one more for each page of its
/// chunk: with 64, a million elements in pages of 32 cost some 500 and 64 counts.
const FAN_OUT: usize = 64;

type Chunk<T, const N: usize> = [Option<Arc<[T; N]>>; FAN_OUT];

/// Elements that were never written read as the default. `N` is a power of two.
#[derive(Debug, Clone)]
pub(crate) struct Pages<T, const N: usize> {
    chunks: Vec<Arc<Chunk<T, N>>>,
}

impl<T: Clone + Default, const N: usize> Pages<T, N> {
    /// Room for this many elements.
    pub(crate) fn with_length(length: usize) -> Self {
        let mut pages = Self { chunks: Vec::new() };
        pages.grow(length);
        pages
    }

    pub(crate) fn grow(&mut self, length: usize) {
        while self.chunks.len() * FAN_OUT * N < length {
            self.chunks.push(Arc::new([const { None }; FAN_OUT]));
        }
    }

    pub(crate) fn get(&self, at: usize) -> Option<&T> {
        let page = at / N;
        self.chunks.get(page / FAN_OUT)?[page % FAN_OUT].as_deref().map(|page| &page[at % N])
    }

    /// The element to be changed; the vector must have room for it.
    pub(crate) fn get_mut(&mut self, at: usize) -> &mut T {
        let page = at / N;
        let chunk = Arc::make_mut(&mut self.chunks[page / FAN_OUT]);
        let page = chunk[page % FAN_OUT].get_or_insert_with(|| Arc::new(std::array::from_fn(|_| T::default())));
        &mut Arc::make_mut(page)[at % N]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_shares_all_but_what_was_changed() {
        let mut before = Pages::<u32, 8>::with_length(5000);
        for at in 0..5000 {
            *before.get_mut(at) = u32::try_from(at).unwrap();
        }
        let mut after = before.clone();
        *after.get_mut(1234) = 7;
        assert_eq!((before.get(1234), after.get(1234)), (Some(&1234), Some(&7)));
        let shared = |at: usize| std::ptr::eq(before.get(at).unwrap(), after.get(at).unwrap());
        assert!(shared(0) && shared(1231) && shared(1240) && !shared(1232) && shared(4999));
    }

    #[test]
    fn what_was_never_written_takes_no_page() {
        let mut pages = Pages::<u32, 8>::with_length(1);
        assert!(pages.get(3).is_none() && pages.get(100_000).is_none());
        pages.grow(100_000);
        *pages.get_mut(99_999) = 1;
        assert_eq!((pages.get(99_998), pages.get(0)), (Some(&0), None));
    }
}
