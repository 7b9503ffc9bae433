//! A thread with a runtime of its own. A task that works there for long holds up no task of another thread.
use std::{
    io,
    sync::{Mutex, PoisonError},
    thread,
    time::Duration,
};
use tokio::{
    runtime::{Builder, Handle},
    task::{JoinError, JoinSet, spawn_blocking},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tracing::dispatcher::{self, Dispatch};

/// The time after which a thread that works on one task counts as stuck. No work takes a tenth of it.
const STUCK_AFTER: Duration = Duration::from_secs(60);

/// Does work that takes long on a thread for such work. Tests do it where they are, so that a simulation takes the same course
/// each time.
pub(crate) async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    if cfg!(test) {
        return Ok(work());
    }
    spawn_blocking(work).await
}

/// A running thread. Dropping it cancels the tasks that are left on the thread, and waits until it has ended.
pub struct OwnThread {
    runtime: Handle,
    stop: CancellationToken,
    thread: Option<thread::JoinHandle<()>>,
}

impl OwnThread {
    /// Starts the thread. It logs as its caller does.
    pub fn start(name: &str) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (handle, stop) = (runtime.handle().clone(), CancellationToken::new());
        let (stopped, log) = (stop.clone(), dispatcher::get_default(Dispatch::clone));
        let run = move || {
            dispatcher::with_default(&log, || runtime.block_on(stopped.cancelled()));
            // A file that is being read may take for ever.
            runtime.shutdown_background();
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(run)?;
        Ok(Self {
            runtime: handle,
            stop,
            thread: Some(thread),
        })
    }

    /// Returns the runtime on which to start tasks.
    pub fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Returns a way to learn whether the thread is stuck.
    pub fn pulse(&self) -> Pulse {
        Pulse {
            runtime: self.runtime.clone(),
            asked: Mutex::default(),
        }
    }
}

/// Asks a thread whether it still takes up tasks.
pub struct Pulse {
    runtime: Handle,
    /// A task that does nothing, and the time since when it has been waiting for the thread.
    asked: Mutex<Option<(JoinSet<()>, Instant)>>,
}

impl Pulse {
    /// Returns whether a task that an earlier call left on the thread has waited for too long.
    pub fn is_stuck(&self) -> bool {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((task, since)) = &mut *asked
            && task.try_join_next().is_none()
        {
            return since.elapsed() > STUCK_AFTER;
        }
        let mut task = JoinSet::new();
        task.spawn_on(async {}, &self.runtime);
        *asked = Some((task, Instant::now()));
        false
    }
}

impl Drop for OwnThread {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            // Nothing there panics: a runtime catches the panics of its tasks.
            drop(thread.join());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supervisor::Supervisor;
    use std::sync::mpsc;
    use tokio::{sync::oneshot, task::yield_now, time::advance};

    const GRACE: Duration = Duration::from_secs(5);

    #[tokio::test]
    async fn a_task_that_blocks_its_thread_holds_up_no_other_thread() {
        let thread = OwnThread::start("blocked").unwrap();
        let shutdown = CancellationToken::new();
        let mut tasks = Supervisor::new(shutdown.clone());
        let (begins, began) = oneshot::channel();
        let (ends, end) = mpsc::channel();
        tasks.spawn_on(thread.runtime(), "blocks", |stop| async move {
            begins.send(()).unwrap();
            end.recv().unwrap();
            stop.cancelled().await;
            Ok(())
        });
        tasks.spawn("answers", |_| async move {
            began.await.unwrap();
            ends.send(()).unwrap();
            shutdown.cancel();
            Ok(())
        });
        tasks.run(GRACE).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_thread_that_takes_up_no_task_for_a_minute_is_stuck() {
        let thread = OwnThread::start("stuck").unwrap();
        let pulse = thread.pulse();
        let (ends, end) = mpsc::channel::<()>();
        let mut tasks = JoinSet::new();
        tasks.spawn_on(async move { end.recv().unwrap_err() }, thread.runtime());
        assert!(!pulse.is_stuck());
        advance(STUCK_AFTER).await;
        assert!(!pulse.is_stuck());
        advance(Duration::from_secs(1)).await;
        assert!(pulse.is_stuck());
        drop(ends);
        tasks.join_next().await.unwrap().unwrap();
        while pulse.is_stuck() {
            yield_now().await;
        }
        advance(STUCK_AFTER * 2).await;
        while pulse.is_stuck() {
            yield_now().await;
        }
    }

    #[tokio::test]
    async fn nothing_runs_any_more_once_the_thread_is_dropped() {
        let thread = OwnThread::start("ends").unwrap();
        let mut tasks = Supervisor::new(CancellationToken::new());
        let (held, released) = oneshot::channel::<()>();
        let (begins, began) = oneshot::channel();
        tasks.spawn_on(thread.runtime(), "never ends", |_| async move {
            let _held = held;
            begins.send(()).unwrap();
            std::future::pending().await
        });
        began.await.unwrap();
        drop((tasks, thread));
        let mut released = released;
        assert!(
            released
                .try_recv()
                .is_err_and(|e| e == oneshot::error::TryRecvError::Closed)
        );
    }
}
