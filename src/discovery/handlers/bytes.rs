//! Counts the bytes that the discoveries of a handler keep together.
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// The bytes that a discovery keeps, among those of all.
pub(super) struct Bytes {
    all: Arc<AtomicUsize>,
    own: usize,
}

impl Bytes {
    pub(super) fn new(all: Arc<AtomicUsize>) -> Self {
        Self { all, own: 0 }
    }

    /// Takes over the bytes of this discovery. Returns those of the others.
    pub(super) fn set(&mut self, own: usize) -> usize {
        self.all.fetch_add(own, Ordering::Relaxed);
        let all = self.all.fetch_sub(self.own, Ordering::Relaxed);
        let others = all.saturating_sub(self.own + own);
        self.own = own;
        others
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        self.set(0);
    }
}
