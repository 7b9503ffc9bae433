//! Provides the random numbers and the tasks of a simulated cluster: one thread, one seed. The time is tokio's, paused.
//!
//! What the product runs is a task of tokio's. Everything else is a future that this file polls, the oldest first, and every
//! delay is drawn from one seeded generator. A seed therefore always gives the same history. A process that is killed loses
//! its futures at the point where they wait; nothing of them runs on.
use crate::controller::clock::WallClock;
use k8s_openapi::jiff::Timestamp;
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    future::{Future, poll_fn},
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};
use tokio::time::Instant;

/// The time of the wall clock at the beginning.
const EPOCH_SECONDS: i64 = 1_800_000_000;

/// The number of steps after which a world is considered to be in an endless loop.
const TOO_MANY_STEPS: u64 = 3_000_000;

/// A set of tasks that ends as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Process(u64);

type Task = Pin<Box<dyn Future<Output = ()>>>;

pub(super) struct Machine {
    began: Instant,
    /// The wall clock, which is the same for every machine.
    pub(super) clock: WallClock,
    rng: RefCell<fastrand::Rng>,
    next: Cell<u64>,
    /// The number of tasks that were polled.
    steps: Cell<u64>,
    tasks: RefCell<BTreeMap<u64, (Process, Option<Task>)>>,
    woken: Arc<Mutex<Woken>>,
}

/// The tasks that can continue, and who waits for one. The oldest runs first: tokio's `watch` wakes its receivers in no
/// certain order.
#[derive(Default)]
struct Woken {
    tasks: BTreeSet<u64>,
    waiting: Option<Waker>,
}

struct TaskWaker {
    task: u64,
    woken: Arc<Mutex<Woken>>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        let mut woken = self.woken.lock().unwrap();
        woken.tasks.insert(self.task);
        woken.waiting.take().into_iter().for_each(Waker::wake);
    }
}

impl Machine {
    pub(super) fn new(seed: u64) -> Self {
        let began = Instant::now();
        let epoch = Timestamp::from_second(EPOCH_SECONDS).unwrap();
        Self {
            began,
            clock: WallClock::Simulated { epoch, began },
            rng: RefCell::new(fastrand::Rng::with_seed(seed)),
            next: Cell::new(0),
            steps: Cell::new(0),
            tasks: RefCell::default(),
            woken: Arc::default(),
        }
    }

    /// Returns the milliseconds since the beginning.
    pub(super) fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap()
    }

    /// Returns a random number in `from..=to`.
    pub(super) fn between(&self, from: u64, to: u64) -> u64 {
        self.rng.borrow_mut().u64(from..=to)
    }

    /// Returns true with a probability of `percent` percent.
    pub(super) fn chance(&self, percent: u64) -> bool {
        self.between(1, 100) <= percent
    }

    pub(super) fn one_of<'a, T>(&self, all: &'a [T]) -> Option<&'a T> {
        let last = u64::try_from(all.len()).unwrap().checked_sub(1)?;
        Some(&all[usize::try_from(self.between(0, last)).unwrap()])
    }

    fn order(&self) -> u64 {
        self.next.replace(self.next.get() + 1)
    }

    /// Calls `what` after this many milliseconds.
    pub(super) fn after(&self, millis: u64, what: impl FnOnce() + 'static) {
        let wait = self.sleep(millis);
        self.spawn(self.process(), async move {
            wait.await;
            what();
        });
    }

    pub(super) fn sleep(&self, millis: u64) -> impl Future<Output = ()> + use<> {
        tokio::time::sleep(Duration::from_millis(millis))
    }

    /// Returns the output of `future`, or `None` if it takes longer.
    pub(super) async fn timeout<F: Future>(&self, limit: Duration, future: F) -> Option<F::Output> {
        tokio::time::timeout(limit, future).await.ok()
    }

    pub(super) fn process(&self) -> Process {
        Process(self.order())
    }

    pub(super) fn spawn(&self, process: Process, task: impl Future<Output = ()> + 'static) {
        let id = self.order();
        self.tasks
            .borrow_mut()
            .insert(id, (process, Some(Box::pin(task))));
        self.woken.lock().unwrap().tasks.insert(id);
    }

    /// Ends the tasks of a process at their present points.
    pub(super) fn kill(&self, process: Process) {
        let mut dead = vec![];
        self.tasks.borrow_mut().retain(|_, (of, task)| {
            if *of == process {
                dead.extend(task.take());
            }
            *of != process
        });
        // They are dropped last, because the values that they hold may wake other tasks.
        drop(dead);
    }

    /// Drops all tasks. They hold the world, which holds this machine, so without this call no world would ever be freed.
    pub(super) fn end(&self) {
        let tasks = std::mem::take(&mut *self.tasks.borrow_mut());
        drop(tasks);
    }

    /// Polls the tasks that can continue, until none can.
    fn settle(&self) {
        loop {
            let Some(id) = self.woken.lock().unwrap().tasks.pop_first() else {
                return;
            };
            let taken = self.tasks.borrow_mut().get_mut(&id).map(|(_, t)| t.take());
            let Some(Some(mut task)) = taken else {
                continue;
            };
            self.steps.set(self.steps.get() + 1);
            assert!(
                self.steps.get() < TOO_MANY_STEPS,
                "the world never comes to rest"
            );
            let waker = Waker::from(Arc::new(TaskWaker {
                task: id,
                woken: self.woken.clone(),
            }));
            let is_done = task
                .as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_ready();
            let mut tasks = self.tasks.borrow_mut();
            if is_done {
                tasks.remove(&id);
            } else if let Some((_, place)) = tasks.get_mut(&id) {
                *place = Some(task);
                continue;
            }
            drop(tasks);
            drop(task);
        }
    }

    /// Waits until a task can continue.
    async fn woken(&self) {
        poll_fn(|context| {
            let mut woken = self.woken.lock().unwrap();
            if !woken.tasks.is_empty() {
                return Poll::Ready(());
            }
            woken.waiting = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Simulates for this many milliseconds, or until `is_over` is true after an event.
    pub(super) async fn run_for(&self, millis: u64, is_over: impl Fn() -> bool) {
        let mut end = Box::pin(self.sleep(millis));
        loop {
            self.settle();
            if is_over() {
                return;
            }
            tokio::select! {
                biased;
                () = self.woken() => {}
                () = &mut end => return,
            }
        }
    }
}
