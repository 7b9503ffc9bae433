//! Which of two views of an object is the newer one.
use super::*;
use crate::{controller::world::Meta, model::names::ObjectKey};

const NOW: Duration = Duration::from_secs(1);

/// The Pods that a controller knows. A version 0 of a list is a Pod that the list lacks.
struct Pods {
    objects: BTreeMap<ObjectKey, Arc<BrokerPod>>,
    shown: Shown<String>,
    now: Instant,
}

fn key() -> ObjectKey {
    ObjectKey::new("default", "pod")
}

fn pod(version: u64, is_there: bool) -> Change<BrokerPod> {
    let meta = Meta {
        uid: "uid".to_owned(),
        version,
        ..Meta::default()
    };
    let pod = BrokerPod {
        meta,
        ..BrokerPod::default()
    };
    Change {
        key: key(),
        object: is_there.then(|| Arc::new(pod)),
        version,
    }
}

impl Pods {
    fn new() -> Self {
        Self {
            objects: BTreeMap::new(),
            shown: Shown::default(),
            now: Instant::now(),
        }
    }

    /// Returns the version that is known now, and whether that is a change.
    fn after(&mut self, change: Change<BrokerPod>, origin: Origin) -> (Option<u64>, bool) {
        let taken = self.shown.take(&mut self.objects, change, origin);
        let known = self.objects.get(&key());
        (known.map(|pod| pod.meta.version), taken.is_some())
    }

    fn shows(&mut self, version: u64) -> (Option<u64>, bool) {
        self.after(pod(version, true), Origin::Watch)
    }

    fn loses(&mut self, version: u64) -> (Option<u64>, bool) {
        self.after(pod(version, false), Origin::Watch)
    }

    fn answers(&mut self, version: u64) -> (Option<u64>, bool) {
        self.after(pod(version, true), Origin::Answer)
    }

    fn shows_another(&mut self, version: u64) {
        let mut another = pod(version, true);
        another.key = ObjectKey::new("default", "another");
        self.after(another, Origin::Watch);
    }

    fn lists(&mut self) {
        self.shown.listed(Some("default"));
    }

    fn waits(&mut self) -> Option<u64> {
        for _ in 0..2 {
            for change in self.shown.overdue(self.now) {
                self.after(change, Origin::Watch);
            }
            self.now += SHOWS_WITHIN;
        }
        assert_eq!(self.shown.first_due(), None);
        self.objects.get(&key()).map(|pod| pod.meta.version)
    }
}

#[test]
fn a_write_is_known_at_once_and_its_echo_is_no_change() {
    let mut pods = Pods::new();
    assert_eq!(pods.answers(5), (Some(5), true));
    assert_eq!(pods.shows(5), (Some(5), false));
    assert_eq!(pods.shows(6), (Some(6), true));
}

#[test]
fn a_watch_that_is_behind_does_not_undo_a_write() {
    let mut pods = Pods::new();
    pods.shows(3);
    assert_eq!(pods.answers(5), (Some(5), true));
    assert_eq!(pods.shows(4), (Some(5), false), "somebody else's, before");
    assert_eq!(
        pods.loses(4),
        (Some(5), false),
        "an earlier one of its name"
    );
    assert_eq!(pods.loses(6), (None, true));
}

#[test]
fn an_answer_that_is_late_does_not_undo_what_the_watch_has_shown() {
    let mut pods = Pods::new();
    pods.shows(7);
    assert_eq!(pods.answers(5), (Some(7), false));
    pods.loses(9);
    assert_eq!(pods.answers(8), (None, false), "it is deleted");
    assert_eq!(pods.answers(10), (Some(10), true), "it is another one");
}

#[test]
fn a_list_that_is_older_than_a_write_does_not_undo_it_and_a_later_one_does() {
    let mut pods = Pods::new();
    pods.shows(3);
    pods.answers(5);
    assert_eq!(pods.loses(0), (Some(5), false));
    pods.lists();
    assert_eq!(pods.waits(), None, "it was deleted before the list");
    let mut pods = Pods::new();
    pods.shows(3);
    pods.answers(5);
    pods.loses(0);
    pods.lists();
    pods.shows(5);
    assert_eq!(pods.waits(), Some(5), "the list was older");
}

#[test]
fn what_was_created_and_is_not_listed_was_deleted_in_between() {
    let mut pods = Pods::new();
    pods.answers(5);
    assert_eq!(pods.waits(), Some(5), "the watch is silent");
    pods.shown.listed(Some("other"));
    pods.shows_another(4);
    assert_eq!(pods.waits(), Some(5), "the watch is behind");
    pods.lists();
    assert_eq!(pods.waits(), None);
    let mut pods = Pods::new();
    pods.answers(5);
    pods.shows_another(6);
    assert_eq!(pods.waits(), None, "the watch has passed it");
    let mut pods = Pods::new();
    pods.shows(3);
    pods.answers(5);
    pods.lists();
    assert_eq!(pods.waits(), Some(5), "the list is older");
}

#[test]
fn a_server_that_was_restored_from_a_backup_is_believed() {
    let mut pods = Pods::new();
    pods.answers(100);
    pods.lists();
    pods.waits();
    assert_eq!(pods.shows(50), (Some(50), true));
    assert_eq!(pods.shows(40), (Some(40), true));
}

#[test]
fn what_was_deleted_is_being_deleted_whatever_an_older_event_says() {
    let mut pods = Pods::new();
    pods.shows(3);
    let known = pods.objects.get_mut(&key()).unwrap();
    pods.shown.deleted(known);
    pods.now += NOW;
    pods.shows(4);
    assert!(pods.objects[&key()].meta.is_deleting);
    pods.loses(5);
    assert!(pods.shown.deleted.is_empty());
}

#[test]
fn what_was_deleted_is_forgotten_once_its_name_is_of_another_one() {
    let mut pods = Pods::new();
    pods.shows(3);
    let known = pods.objects.get_mut(&key()).unwrap();
    pods.shown.deleted(known);
    let mut another = pod(9, true);
    let object = Arc::make_mut(another.object.as_mut().unwrap());
    object.meta.uid = "another".to_owned();
    pods.after(another, Origin::Watch);
    assert!(pods.shown.deleted.is_empty());
    assert!(!pods.objects[&key()].meta.is_deleting);
}
