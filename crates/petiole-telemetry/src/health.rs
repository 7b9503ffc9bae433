//! The answers of a process to probes: what it lacks, and whether a thread of it is stuck.
use std::sync::Arc;

/// What a probe asks for. It is evaluated at each request.
#[derive(Clone)]
pub struct Health {
    missing: Arc<dyn Fn() -> Vec<String> + Send + Sync>,
    stuck: Arc<dyn Fn() -> Option<&'static str> + Send + Sync>,
}

impl Health {
    /// Returns the conditions. `missing` names what is not ready yet; it only reads values and never waits.
    pub fn new(missing: impl Fn() -> Vec<String> + Send + Sync + 'static) -> Self {
        Self {
            missing: Arc::new(missing),
            stuck: Arc::new(|| None),
        }
    }

    /// Adds a condition of life: `stuck` says what is stuck, if anything is, and never waits.
    pub fn with_life(
        self,
        stuck: impl Fn() -> Option<&'static str> + Send + Sync + 'static,
    ) -> Self {
        Self {
            stuck: Arc::new(stuck),
            ..self
        }
    }

    pub(super) fn missing(&self) -> Vec<String> {
        (self.missing)()
    }

    pub(super) fn stuck(&self) -> Option<&'static str> {
        (self.stuck)()
    }
}
