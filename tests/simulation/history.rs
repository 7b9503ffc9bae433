//! Records the events of a run, one per line, and the first broken promise.
//!
//! Lines are made only if they will be printed: a seed that fails is run a second time with the history on.
use std::cell::RefCell;

#[derive(Default)]
pub(super) struct History {
    is_kept: bool,
    lines: RefCell<Vec<String>>,
    broken: RefCell<Option<String>>,
}

impl History {
    pub(super) fn new(is_kept: bool) -> Self {
        Self {
            is_kept,
            ..Self::default()
        }
    }

    pub(super) fn note(&self, now: u64, line: impl FnOnce() -> String) {
        if self.is_kept {
            let line = format!("{:>5}.{:03}  {}", now / 1000, now % 1000, line());
            self.lines.borrow_mut().push(line);
        }
    }

    /// Records a broken promise. Only the first one counts, because later ones may follow from it.
    pub(super) fn broke(&self, now: u64, promise: String) {
        self.note(now, || format!("BROKEN: {promise}"));
        self.broken.borrow_mut().get_or_insert(promise);
    }

    pub(super) fn broken(&self) -> Option<String> {
        self.broken.borrow().clone()
    }

    pub(super) fn is_broken(&self) -> bool {
        self.broken.borrow().is_some()
    }

    pub(super) fn text(&self) -> String {
        self.lines.borrow().join("\n")
    }
}
