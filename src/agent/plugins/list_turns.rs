//! Lets the plugins send their lists to the kubelet one after the other, each namespace in turn.
//!
//! For each list a kubelet copies all slots and all answers of `Allocate` that it keeps, and only then waits until the
//! copies of other lists are written (devicemanager/manager.go: `writeCheckpoint`). Lists that come faster than it writes
//! take many times the memory of its checkpoint: 1,000 resources at once took 7 GB beside Pods with large environments.
use super::{
    inputs::{Inputs, Published},
    plan,
};
use crate::{
    agent::{node_only::plan::NodeOnly, values::Listed},
    model::{plugin_name::PluginName, typed_names::ConfigurationKey},
    store::Instances,
};
use petiole_kubelet_api::checkpoint::FILE;
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fs,
    ops::Bound,
    path::PathBuf,
    time::Duration,
};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{Instant, sleep_until},
};

/// The most bytes of checkpoints that the kubelet has to write in a second because of our lists, of which one core writes
/// 20 to 50 MB. Beyond it: lists wait, and each namespace has its turn.
const BYTES_A_SECOND: u64 = 16 << 20;
/// The bytes of a slot in the checkpoint, if the kubelet has not written it yet.
const SLOT_BYTES: u64 = 40;
/// The time for which lists may be sent at once after a rest, as if they had been sent in that time.
const BURST: Duration = Duration::from_secs(2);
/// The most requests that are not in the queue yet.
const REQUESTS: usize = 16;

/// A plugin of a namespace that waits to send its list.
struct Waiting {
    namespace: String,
    turn: oneshot::Sender<()>,
}

/// Asks for turns.
#[derive(Clone)]
pub(super) struct ListTurns(mpsc::Sender<Waiting>);

/// Returns what asks for turns, and what gives them, at the rate at which the kubelet writes its checkpoint.
pub(super) fn turns(
    inputs: &Inputs,
    published: &Published,
) -> (ListTurns, impl Future<Output = ()> + use<>) {
    let (turns, requests) = channel();
    let folder = inputs.settings.plugin_folder.clone();
    (turns, run(folder, published.listed.subscribe(), requests))
}

fn channel() -> (ListTurns, mpsc::Receiver<Waiting>) {
    let (sender, requests) = mpsc::channel(REQUESTS);
    (ListTurns(sender), requests)
}

impl ListTurns {
    /// Waits until a plugin of `namespace` may send its list. Nobody answers any more when the agent ends, and with it the
    /// stream.
    pub(super) async fn wait(&self, namespace: String) {
        let (turn, given) = oneshot::channel();
        if self.0.send(Waiting { namespace, turn }).await.is_ok() {
            _ = given.await;
        }
    }
}

/// Returns the namespace of each plugin, the last one of a Configuration's name in several.
pub(super) fn namespaces(
    instances: &Instances,
    node_only: &NodeOnly,
    node: &str,
    by_claims: &BTreeSet<ConfigurationKey>,
) -> BTreeMap<PluginName, String> {
    let without_instances = node_only.iter();
    let mut namespaces: BTreeMap<PluginName, String> = without_instances
        .map(|(name, offer)| (name.into(), offer.namespace().to_owned()))
        .collect();
    for (key, instance) in instances {
        let configuration = instance.spec.configuration_key(&key.namespace);
        for resource in plan::resources_of(instance, node, by_claims.contains(&configuration)) {
            namespaces.insert(resource.plugin(), key.namespace.to_string());
        }
    }
    namespaces
}

/// Gives turns until nobody can ask for one. `folder` is the kubelet's, `listed` are the lists of all plugins.
async fn run(
    folder: PathBuf,
    listed: watch::Receiver<Listed>,
    mut requests: mpsc::Receiver<Waiting>,
) {
    let checkpoint = folder.join(FILE);
    let mut queue = Queue::default();
    let mut next = rested(Instant::now());
    loop {
        tokio::select! {
            request = requests.recv() => match request {
                Some(Waiting { namespace, turn }) => queue.push(namespace, turn),
                None => return,
            },
            () = sleep_until(next), if !queue.is_empty() => {
                if queue.pop().is_some_and(|turn| turn.send(()).is_ok()) {
                    let slots: usize = listed.borrow().values().map(|slots| slots.len()).sum();
                    let written = fs::metadata(&checkpoint).map_or(0, |file| file.len());
                    next = after(next, written.max(slots as u64 * SLOT_BYTES), Instant::now());
                }
            }
        }
    }
}

/// Returns the time of the turn that follows one at `turn`, which costs so many bytes.
fn after(turn: Instant, bytes: u64, now: Instant) -> Instant {
    let took = Duration::from_micros(bytes.saturating_mul(1_000_000) / BYTES_A_SECOND);
    turn.max(rested(now)) + took
}

/// Returns the time of the next turn after a rest.
fn rested(now: Instant) -> Instant {
    now.checked_sub(BURST).unwrap_or(now)
}

/// The queue keeps who waits by namespace, and gives each namespace one turn in a round.
struct Queue<T> {
    waiting: BTreeMap<String, VecDeque<T>>,
    /// The namespace that had the last turn.
    last: String,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self {
            waiting: BTreeMap::new(),
            last: String::new(),
        }
    }
}

impl<T> Queue<T> {
    fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    fn push(&mut self, namespace: String, one: T) {
        self.waiting.entry(namespace).or_default().push_back(one);
    }

    /// Removes the first one of the namespace that follows the last.
    fn pop(&mut self) -> Option<T> {
        let later = (Bound::Excluded(&self.last), Bound::Unbounded);
        let mut following = self.waiting.range::<String, _>(later);
        let (namespace, _) = following
            .next()
            .or_else(|| self.waiting.first_key_value())?;
        self.last.clone_from(namespace);
        let waiting = self.waiting.get_mut(&self.last)?;
        let one = waiting.pop_front();
        if waiting.is_empty() {
            self.waiting.remove(&self.last);
        }
        one
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn each_namespace_has_one_turn_in_a_round() {
        let mut queue = Queue::default();
        for n in 0..4 {
            queue.push("many".to_owned(), ("many", n));
        }
        assert_eq!(queue.pop(), Some(("many", 0)));
        queue.push("few".to_owned(), ("few", 0));
        queue.push("other".to_owned(), ("other", 0));
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        let expected = [
            ("other", 0),
            ("few", 0),
            ("many", 1),
            ("many", 2),
            ("many", 3),
        ];
        assert_eq!(order, expected);
        assert!(queue.is_empty());
    }

    #[test]
    fn a_turn_costs_the_time_in_which_its_checkpoint_is_written_and_a_rest_counts_for_two_seconds()
    {
        let start = Instant::now() + Duration::from_secs(60);
        let second = Duration::from_secs(1);
        assert_eq!(after(start, BYTES_A_SECOND, start), start + second);
        let much_later = start + 60 * second;
        assert_eq!(after(start, 0, much_later), much_later - BURST);
    }

    #[tokio::test(start_paused = true)]
    async fn lists_go_as_fast_as_the_kubelet_writes_what_they_make_it_write() {
        let folder = tempfile::tempdir().unwrap();
        let megabyte = vec![b' '; 1 << 20];
        fs::write(folder.path().join(FILE), megabyte).unwrap();
        let slot = crate::agent::values::Slot {
            id: "camera-0".to_owned(),
            is_healthy: true,
        };
        let listed = watch::Sender::new(Listed::from([(
            "akri.sh/camera".parse().unwrap(),
            Arc::from(vec![slot]),
        )]));
        let (turns, requests) = channel();
        let giving = run(folder.path().to_owned(), listed.subscribe(), requests);
        let began = Instant::now();
        let asking = async move {
            for _ in 0..=96 {
                turns.wait("default".to_owned()).await;
            }
            began.elapsed()
        };
        let ((), took) = tokio::join!(giving, asking);
        // The first 32 MB are the burst's.
        assert_eq!(took.as_secs(), 4, "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_plugin_that_waits_no_more_takes_no_turn() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(FILE), vec![b' '; 1 << 20]).unwrap();
        let listed = watch::Sender::new(Listed::new());
        let (turns, requests) = channel();
        let giving = run(folder.path().to_owned(), listed.subscribe(), requests);
        let asking = async move {
            // A kubelet that restarts closes the streams of all plugins, and opens others.
            for _ in 0..1000 {
                let (turn, _) = oneshot::channel();
                let namespace = "default".to_owned();
                assert!(turns.0.send(Waiting { namespace, turn }).await.is_ok());
            }
            let began = Instant::now();
            turns.wait("default".to_owned()).await;
            began.elapsed()
        };
        let ((), took) = tokio::join!(giving, asking);
        assert!(took < Duration::from_millis(10), "{took:?}");
    }
}
