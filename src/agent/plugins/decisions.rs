//! Says whether this agent still answers the calls of the kubelet itself.
//!
//! An agent that hands over to another one completes the calls that it has begun. Those that come later are the other one's, and
//! are forwarded to it: the kubelet may have this agent's socket when it admits a Pod.
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::timeout,
};
use tokio_util::{
    sync::{CancellationToken, WaitForCancellationFuture},
    task::TaskTracker,
};

/// More calls than a kubelet has at one time: it admits one Pod after the other.
const CALLS: u32 = 1000;
/// The time for the calls that have begun. Each is answered earlier: one that may wait for longer ends its waits when this agent gives
/// up.
const LAST_CALLS: Duration = Duration::from_secs(5);
/// The time for the calls that were forwarded.
const LAST_FORWARDED: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub(in crate::agent) struct Decisions {
    calls: Arc<Semaphore>,
    over: CancellationToken,
    forwarded: TaskTracker,
}

impl Default for Decisions {
    fn default() -> Self {
        Self {
            calls: Arc::new(Semaphore::new(CALLS as usize)),
            over: CancellationToken::new(),
            forwarded: TaskTracker::new(),
        }
    }
}

impl Decisions {
    /// Begins a call, which ends with the permit; `None` if another agent decides it.
    pub(super) async fn begin(&self) -> Option<SemaphorePermit<'_>> {
        self.calls.acquire().await.ok()
    }

    /// Completes the calls that have begun, and decides no others.
    pub(in crate::agent) async fn give_up(&self) {
        // The plugins change nothing from here on.
        self.over.cancel();
        timeout(LAST_CALLS, self.calls.acquire_many(CALLS))
            .await
            .map(drop)
            .ok();
        self.calls.close();
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.is_cancelled()
    }

    pub(super) fn over(&self) -> WaitForCancellationFuture<'_> {
        self.over.cancelled()
    }

    /// Follows a call that is forwarded.
    pub(super) async fn forwarding<T>(&self, call: impl Future<Output = T>) -> T {
        self.forwarded.track_future(call).await
    }

    /// Waits until the calls that were forwarded are answered.
    pub(in crate::agent) async fn until_forwarded(&self) {
        self.forwarded.close();
        timeout(LAST_FORWARDED, self.forwarded.wait()).await.ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::task::yield_now;

    #[tokio::test(start_paused = true)]
    async fn a_call_that_has_begun_is_completed_and_one_that_waits_is_the_other_agents() {
        let decisions = Decisions::default();
        let begun = decisions.begin().await.expect("nobody has given up");
        let order = std::sync::Mutex::new(vec![]);
        let note = |what: &'static str| order.lock().unwrap().push(what);
        tokio::join!(
            async {
                decisions.give_up().await;
                note("given up");
            },
            async {
                yield_now().await;
                assert!(decisions.begin().await.is_none());
                note("forwarded");
            },
            async {
                for _ in 0..10 {
                    yield_now().await;
                }
                note("answered");
                drop(begun);
            },
        );
        let order = order.into_inner().unwrap();
        assert_eq!(order[0], "answered", "{order:?}");
        assert_eq!(order.len(), 3);
        assert!(decisions.begin().await.is_none() && decisions.is_over());
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_hangs_keeps_the_place_for_a_bounded_time() {
        let decisions = Decisions::default();
        let _hangs = decisions.begin().await;
        decisions.give_up().await;
        assert!(decisions.begin().await.is_none());
    }
}
