//! Lets one call at a time have a claim.
use std::{collections::BTreeSet, sync::Arc};
use tokio::sync::watch;

/// The UIDs of the claims that calls have now.
pub(crate) struct Turns(watch::Sender<BTreeSet<String>>);

/// A claim is another call's turn when all copies of this are dropped, also by a call that the kubelet has given up.
pub(crate) struct Turn {
    taken: watch::Sender<BTreeSet<String>>,
    pub(crate) uid: String,
}

impl Turns {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::default())
    }

    /// Waits until no other call has the claim.
    pub(crate) async fn of(&self, uid: &str) -> Arc<Turn> {
        let mut taken = self.0.subscribe();
        while !self.0.send_if_modified(|t| t.insert(uid.to_owned())) {
            let freed = taken.wait_for(|t| !t.contains(uid)).await;
            freed.expect("the sender is ours");
        }
        Arc::new(Turn {
            taken: self.0.clone(),
            uid: uid.to_owned(),
        })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.taken.send_modify(|t| {
            t.remove(&self.uid);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::poll;
    use std::pin::pin;

    #[tokio::test]
    async fn the_second_call_for_a_claim_waits_and_others_do_not() {
        let turns = Turns::new();
        let first = turns.of("a").await;
        let mut second = pin!(turns.of("a"));
        assert!(poll!(&mut second).is_pending());
        drop(turns.of("b").await);
        assert!(poll!(&mut second).is_pending());
        drop(first);
        drop(second.await);
        drop(turns.of("a").await);
    }
}
