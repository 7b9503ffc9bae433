//! Provides the time, random numbers and tasks of a simulated cluster: one thread, one seed.
//!
//! Every process is a set of futures that this file polls, and every delay is drawn from one seeded generator. Time
//! jumps from one timer to the next. A seed therefore always gives the same history. A process that is killed loses its
//! futures at the point where they wait; nothing of them runs on.
use k8s_openapi::jiff::Timestamp;
use std::{
    cell::{Cell, RefCell},
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap},
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Wake, Waker},
    time::Duration,
};
use tokio::sync::oneshot;

/// The time of the wall clock at the beginning.
const EPOCH_SECONDS: i64 = 1_800_000_000;

/// The number of steps after which a world is considered to be in an endless loop.
const TOO_MANY_STEPS: u64 = 3_000_000;

/// A set of tasks that ends as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Process(u64);

type Task = Pin<Box<dyn Future<Output = ()>>>;

pub(super) struct Machine {
    /// The milliseconds since the beginning.
    now: Cell<u64>,
    rng: RefCell<fastrand::Rng>,
    timers: RefCell<BinaryHeap<Reverse<Timer>>>,
    next: Cell<u64>,
    /// The number of timers that have expired and of tasks that were polled.
    steps: Cell<u64>,
    tasks: RefCell<BTreeMap<u64, (Process, Option<Task>)>>,
    woken: Arc<Woken>,
    /// The beginning of time in tokio's type.
    instant: tokio::time::Instant,
}

struct Timer {
    at: u64,
    order: u64,
    what: Box<dyn FnOnce()>,
}

impl PartialEq for Timer {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl Eq for Timer {}

impl PartialOrd for Timer {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timer {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// The tasks that can continue. The oldest runs first: tokio's `watch` wakes its receivers in no certain order.
#[derive(Default)]
struct Woken(Mutex<BTreeSet<u64>>);

struct TaskWaker {
    task: u64,
    woken: Arc<Woken>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.woken.0.lock().unwrap().insert(self.task);
    }
}

impl Machine {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            now: Cell::new(0),
            rng: RefCell::new(fastrand::Rng::with_seed(seed)),
            timers: RefCell::default(),
            next: Cell::new(0),
            steps: Cell::new(0),
            tasks: RefCell::default(),
            woken: Arc::default(),
            instant: tokio::time::Instant::now(),
        }
    }

    pub(super) fn now(&self) -> u64 {
        self.now.get()
    }

    /// Returns the wall clock, which is the same for every machine.
    pub(super) fn clock(&self) -> Timestamp {
        let millis = i64::try_from(self.now()).unwrap();
        Timestamp::from_millisecond(EPOCH_SECONDS * 1000 + millis).unwrap()
    }

    pub(super) fn instant(&self) -> tokio::time::Instant {
        self.instant + Duration::from_millis(self.now())
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
        self.timers.borrow_mut().push(Reverse(Timer {
            at: self.now().saturating_add(millis),
            order: self.order(),
            what: Box::new(what),
        }));
    }

    pub(super) fn sleep(&self, millis: u64) -> impl Future<Output = ()> + use<> {
        let (wake, woken) = oneshot::channel::<()>();
        self.after(millis, move || drop(wake));
        async move { woken.await.unwrap_or(()) }
    }

    /// Returns the output of `future`, or `None` if it takes longer.
    pub(super) async fn timeout<F: Future + Unpin>(
        &self,
        limit: Duration,
        future: F,
    ) -> Option<F::Output> {
        let millis = u64::try_from(limit.as_millis()).unwrap();
        tokio::select! {
            biased;
            output = future => Some(output),
            () = self.sleep(millis) => None,
        }
    }

    pub(super) fn process(&self) -> Process {
        Process(self.order())
    }

    pub(super) fn spawn(&self, process: Process, task: impl Future<Output = ()> + 'static) {
        let id = self.order();
        self.tasks
            .borrow_mut()
            .insert(id, (process, Some(Box::pin(task))));
        self.woken.0.lock().unwrap().insert(id);
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

    /// Drops all tasks and timers. They hold the world, which holds this machine, so without this call no world would
    /// ever be freed.
    pub(super) fn end(&self) {
        let tasks = std::mem::take(&mut *self.tasks.borrow_mut());
        drop(tasks);
        let timers = std::mem::take(&mut *self.timers.borrow_mut());
        drop(timers);
    }

    /// Polls the tasks that can continue, until none can.
    fn settle(&self) {
        loop {
            let Some(id) = self.woken.0.lock().unwrap().pop_first() else {
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

    /// Simulates until `end`, or until `is_over` is true after an event.
    pub(super) fn run_until(&self, end: u64, is_over: impl Fn() -> bool) {
        self.settle();
        loop {
            let is_due = |timer: &Reverse<Timer>| timer.0.at <= end;
            if is_over() {
                return;
            }
            if !self.timers.borrow().peek().is_some_and(is_due) {
                break;
            }
            let Some(Reverse(timer)) = self.timers.borrow_mut().pop() else {
                break;
            };
            self.now.set(timer.at);
            (timer.what)();
            self.settle();
        }
        self.now.set(self.now().max(end));
    }
}
