//! Runs one querier for a whole process: a task that owns the sockets, and subscriptions to it.
//!
//! The task begins with the first subscription and ends with the last one. The subscriptions are a table under a lock,
//! which the task compares with its own. Its results are published as whole maps over a `watch`.
use super::{
    host_links,
    interfaces::Interfaces,
    network::{self, Network},
    querier::{Change, Found, PACKET_STEPS_MAX, Querier, Turn, Wanted},
    trace::Counts,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};

/// The interval at which interfaces are read, with and without notifications of the kernel.
const INTERFACE_CHECK: Duration = Duration::from_secs(10);
const INTERFACE_CHECK_POLLED: Duration = Duration::from_secs(2);
/// The time in which changes of interfaces are collected.
const INTERFACE_PAUSE: Duration = Duration::from_millis(50);
/// The most work of reading packets in one turn, in steps of about 0.1 us, to which the last packet may add as much and a
/// half: a turn ends after 5 ms, so that other tasks of the thread have theirs. What is left is read in the next turn.
const STEPS_AT_ONCE: usize = PACKET_STEPS_MAX;
/// The time from one turn to the next reading of packets or to the next question. A packet after a silence is read at once,
/// and the packets of a flood are read together, because a turn costs as much as many packets.
const READ_INTERVAL: Duration = Duration::from_millis(5);
/// The longest wait of the task.
const IDLE: Duration = Duration::from_secs(3600);

/// A handle of a querier with its sockets. All clones share it, and a process needs one.
#[derive(Clone, Default)]
pub struct Mdns(Arc<Shared>);

type Observer = Box<dyn Fn(&Counts) + Send + Sync>;

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    observer: Option<Observer>,
    /// A subscription was added or removed.
    changed: Notify,
}

#[derive(Default)]
struct State {
    subscribers: BTreeMap<u64, Subscriber>,
    last_id: u64,
    is_running: bool,
    /// The services to prefer while the cache is full, as lower-case text.
    preferred: Arc<BTreeSet<String>>,
    tasks: JoinSet<()>,
}

#[derive(Clone)]
struct Subscriber {
    wanted: Wanted,
    found: watch::Sender<Found>,
}

/// A browse. It ends when it is dropped.
pub struct Subscription {
    id: u64,
    mdns: Mdns,
    /// The services at present. It closes if the task has panicked; a new subscription begins another task.
    pub found: watch::Receiver<Found>,
}

impl Mdns {
    /// Returns a handle whose task passes to `observer`, after each turn, what it has counted since the turn before.
    pub fn observed(observer: impl Fn(&Counts) + Send + Sync + 'static) -> Self {
        Self(Arc::new(Shared {
            observer: Some(Box::new(observer)),
            ..Shared::default()
        }))
    }

    /// Begins to browse. The first browse begins the task, in the Tokio runtime of the caller.
    pub fn subscribe(&self, wanted: Wanted) -> Subscription {
        let (sender, found) = watch::channel(Found::default());
        let mut state = self.state();
        state.last_id += 1;
        let id = state.last_id;
        let subscriber = Subscriber {
            wanted,
            found: sender,
        };
        state.subscribers.insert(id, subscriber);
        if !std::mem::replace(&mut state.is_running, true) {
            while state.tasks.try_join_next().is_some() {}
            state.tasks.spawn(run(self.clone()));
        }
        drop(state);
        self.0.changed.notify_one();
        Subscription {
            id,
            mdns: self.clone(),
            found,
        }
    }

    /// Sets the services, by name as lower-case text, that are admitted to a full cache before others.
    pub fn prefer(&self, services: BTreeSet<String>) {
        let mut state = self.state();
        if *state.preferred != services {
            state.preferred = Arc::new(services);
            drop(state);
            self.0.changed.notify_one();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the subscribers. Returns `None` if there are none; the task then counts as ended.
    fn subscribers(&self) -> Option<BTreeMap<u64, Subscriber>> {
        let mut state = self.state();
        state.is_running = !state.subscribers.is_empty();
        state.is_running.then(|| state.subscribers.clone())
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.mdns.state().subscribers.remove(&self.id);
        self.mdns.0.changed.notify_one();
    }
}

/// Ends the subscriptions after a panic: another task may begin, and the subscribers see that their channel has closed.
struct Ended(Mdns);

impl Drop for Ended {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut state = self.0.state();
            state.is_running = false;
            state.subscribers.clear();
        }
    }
}

async fn run(mdns: Mdns) {
    let _ended = Ended(mdns.clone());
    let mut running = Running::new();
    loop {
        let Some(subscribers) = mdns.subscribers() else {
            return;
        };
        running.reconcile(subscribers);
        running.querier.prefer(mdns.state().preferred.clone());
        let wake = running.turn();
        if let Some(observer) = &mdns.0.observer {
            observer(&running.newly_counted());
        }
        tokio::select! {
            biased;
            () = mdns.0.changed.notified() => {}
            () = running.readable() => running.receive(),
            () = running.network.changed() => {
                sleep(INTERFACE_PAUSE).await;
                running.interfaces_at = Instant::now();
            }
            () = sleep_until(wake) => {}
        }
    }
}

struct Running {
    start: Instant,
    querier: Querier,
    network: Network,
    subscribers: BTreeMap<u64, Subscriber>,
    /// The time at which the interfaces are read next.
    interfaces_at: Instant,
    /// The time of the last reading of packets.
    read_at: Instant,
    /// The packets that were lost on each interface so far.
    lost: BTreeMap<u32, u64>,
    /// The counts at the end of the last turn.
    counted: Counts,
}

impl Running {
    fn new() -> Self {
        let mut querier = Querier::new(fastrand::u64(..));
        querier.ask_for_unicast(network::is_alone());
        querier.trace(tracing::enabled!(tracing::Level::DEBUG));
        Self {
            start: Instant::now(),
            querier,
            network: Network::new(),
            subscribers: BTreeMap::new(),
            interfaces_at: Instant::now(),
            read_at: Instant::now(),
            lost: BTreeMap::new(),
            counted: Counts::default(),
        }
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Makes the querier serve these subscribers on the present interfaces.
    fn reconcile(&mut self, subscribers: BTreeMap<u64, Subscriber>) {
        let now = self.now();
        let is_new = |id: &&u64| !self.subscribers.contains_key(id);
        let new: Vec<u64> = subscribers.keys().filter(is_new).copied().collect();
        let is_gone = |id: &&u64| !subscribers.contains_key(id);
        let gone: Vec<u64> = self.subscribers.keys().filter(is_gone).copied().collect();
        let has_changed = !new.is_empty() || !gone.is_empty();
        self.subscribers = subscribers;
        if has_changed || self.interfaces_at <= Instant::now() {
            self.look_at_interfaces();
        }
        for id in gone {
            self.querier.unsubscribe(id, now);
        }
        for id in new {
            if let Some(subscriber) = self.subscribers.get(&id) {
                self.querier.subscribe(id, subscriber.wanted.clone(), now);
            }
        }
    }

    fn look_at_interfaces(&mut self) {
        self.interfaces_at = Instant::now()
            + if self.network.is_notified() {
                INTERFACE_CHECK
            } else {
                INTERFACE_CHECK_POLLED
            };
        match host_links::links() {
            Ok(links) => {
                let is_wanted = |interfaces: &Interfaces, name: &str| interfaces.uses(name);
                let wanted = links.iter().filter(|link| {
                    let mut wanted = self.subscribers.values().map(|s| &s.wanted.interfaces);
                    wanted.any(|interfaces| is_wanted(interfaces, &link.name))
                });
                let used = self.network.use_links(wanted.cloned().collect());
                self.querier.set_links(used, &links, self.now());
            }
            Err(error) => tracing::warn!(%error, "the network interfaces cannot be read"),
        }
    }

    /// Takes the turn that is due. Returns the time of the next one.
    fn turn(&mut self) -> Instant {
        let Turn {
            send,
            changes,
            wake,
            notes,
        } = self.querier.turn(self.now());
        for packet in &send {
            self.network.send(packet);
        }
        for note in notes {
            tracing::debug!("{note}");
        }
        self.publish(changes);
        let wake = wake.map_or(Instant::now() + IDLE, |wake| self.start + wake);
        let wake = wake.max(Instant::now() + READ_INTERVAL);
        wake.min(self.interfaces_at)
    }

    fn publish(&self, changes: Vec<Change>) {
        let mut by_subscriber: BTreeMap<u64, Vec<Change>> = BTreeMap::new();
        for change in changes {
            by_subscriber
                .entry(change.subscription)
                .or_default()
                .push(change);
        }
        for (id, subscriber) in &self.subscribers {
            let changes = by_subscriber.remove(id).unwrap_or_default();
            let interfaces = Some(self.querier.links_of(*id));
            let leaves_out = self.querier.leaves_out(*id, self.now());
            subscriber.found.send_if_modified(|found| {
                let has_changed = !changes.is_empty()
                    || found.interfaces != interfaces
                    || found.leaves_out != leaves_out;
                (found.interfaces, found.leaves_out) = (interfaces, leaves_out);
                found.has_begun |= interfaces != Some(0);
                for Change { name, service, .. } in changes {
                    match service {
                        Some(service) => found.services.insert(name, service),
                        None => found.services.remove(&name),
                    };
                }
                has_changed
            });
        }
    }

    /// Waits for packets that are to be read. Safe to cancel.
    async fn readable(&self) {
        self.network.readable().await;
        sleep_until(self.read_at + READ_INTERVAL).await;
    }

    /// Processes the received packets.
    fn receive(&mut self) {
        let now = self.now();
        let querier = &mut self.querier;
        (self.network).receive(STEPS_AT_ONCE, |packet| querier.receive(packet, now));
        let lost = self.network.lost();
        for (link, count) in &lost {
            let before = self.lost.get(link).copied().unwrap_or_default();
            if *count > before {
                tracing::debug!(link, "packets of mDNS were lost on this machine");
                self.querier.packets_lost(*link, now);
            }
        }
        self.lost = lost;
        self.read_at = Instant::now();
    }

    /// Returns what was counted since the last call.
    fn newly_counted(&mut self) -> Counts {
        let counts = self.querier.counts();
        let before = std::mem::replace(&mut self.counted, counts.clone());
        counts.since(&before)
    }
}
