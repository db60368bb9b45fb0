//! Work that is the same for many items, on all cores.

use std::num::NonZero;
use std::panic::resume_unwind;
use std::thread;

/// Starting a thread takes about as long as reading so many documents.
const WORTH_A_THREAD: usize = 64;

/// The results in the order of the items.
pub(crate) fn map<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    if items.len() <= WORTH_A_THREAD {
        return items.iter().map(work).collect();
    }
    // Asked only here: the answer is read from files of the kernel's, and takes longer than a single document.
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let share = items.len().div_ceil(threads).max(WORTH_A_THREAD);
    let work = &work;
    thread::scope(|scope| {
        let shares = items.chunks(share).map(|share| scope.spawn(move || share.iter().map(work).collect::<Vec<R>>()));
        let shares: Vec<_> = shares.collect();
        shares.into_iter().flat_map(|share| share.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order() {
        for count in [0, 1, 63, 64, 65, 1000] {
            let items: Vec<usize> = (0..count).collect();
            assert_eq!(map(&items, |item| item * 2), items.iter().map(|item| item * 2).collect::<Vec<_>>());
        }
    }
}
