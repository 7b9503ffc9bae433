//! Gives discoveries their turns: only so many work at the same time, in the order in which they asked for it.
use std::sync::Arc;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::yield_now,
};

/// The turns that discoveries share.
#[derive(Debug, Clone)]
pub struct Turns(Arc<Semaphore>);

impl Turns {
    pub fn new(at_once: usize) -> Self {
        Self(Arc::new(Semaphore::new(at_once)))
    }

    /// Waits for a turn. It ends when the returned value is dropped.
    pub async fn begin(&self) -> OwnedSemaphorePermit {
        let turn = self.0.clone().acquire_owned().await;
        turn.expect("nobody closes it")
    }

    /// Returns whether who begins now has to wait.
    pub fn are_taken(&self) -> bool {
        self.0.available_permits() == 0
    }

    /// Does `work` in a turn. The turn ends after all other tasks of the thread have run, and sockets and timers were looked
    /// at: however many discoveries have work to do, the querier of mDNS waits for one turn and not for those of all.
    pub async fn take<T>(&self, work: impl FnOnce() -> T) -> T {
        let _turn = self.begin().await;
        let done = work();
        yield_now().await;
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use tokio::task::JoinSet;

    #[tokio::test]
    async fn another_task_runs_between_any_two_turns_and_the_turns_are_in_order() {
        let (turns, story) = (Turns::new(1), Arc::new(Mutex::new(vec![])));
        let mut tasks = JoinSet::new();
        for name in ["a", "b", "c"] {
            let (turns, story) = (turns.clone(), story.clone());
            tasks.spawn(async move {
                for _ in 0..2 {
                    turns.take(|| story.lock().unwrap().push(name)).await;
                }
            });
        }
        let querier = story.clone();
        tasks.spawn(async move {
            while querier
                .lock()
                .unwrap()
                .iter()
                .filter(|s| **s != "-")
                .count()
                < 6
            {
                querier.lock().unwrap().push("-");
                yield_now().await;
            }
        });
        tasks.join_all().await;
        let story = story.lock().unwrap().concat();
        let turns: Vec<&str> = story.split('-').filter(|s| !s.is_empty()).collect();
        assert_eq!(turns, ["a", "b", "c", "a", "b", "c"], "{story}");
    }
}
