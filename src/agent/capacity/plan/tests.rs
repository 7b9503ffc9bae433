mod properties;

use super::*;
use crate::model::resource_name::ResourcePrefixes;

const LONG: Duration = Duration::from_secs(10_000);

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn name(resource: &str) -> ResourceName {
    resource.parse().unwrap()
}

/// `health` is a letter a slot: `h` healthy, anything else not.
fn offer(resource: &str, health: &str, is_registered: bool) -> (ResourceName, Offer) {
    let slot = |(n, health): (usize, char)| Slot {
        id: format!("{resource}-{n}"),
        is_healthy: health == 'h',
    };
    let slots = health.chars().enumerate().map(slot).collect();
    let offer = Offer {
        slots,
        is_registered,
    };
    (name(resource), offer)
}

/// `capacity/allocatable` of each resource; `-` where there is none.
fn node(entries: &[(&str, &str)]) -> NodeResources {
    let mut node = NodeResources::default();
    for (resource, values) in entries {
        let (capacity, allocatable) = values.split_once('/').unwrap();
        for (map, value) in [
            (&mut node.capacity, capacity),
            (&mut node.allocatable, allocatable),
        ] {
            if value != "-" {
                map.insert(name(resource), value.to_owned());
            }
        }
    }
    node
}

fn values(node: &NodeResources) -> Vec<(&str, String)> {
    let value = |map: &BTreeMap<ResourceName, String>, resource: &ResourceName| {
        map.get(resource).map_or("-", String::as_str).to_owned()
    };
    (node.names())
        .map(|name| {
            let values = [&node.capacity, &node.allocatable].map(|map| value(map, name));
            (name.as_str(), values.join("/"))
        })
        .collect()
}

/// A node, its kubelet, and an agent that plans again and again.
#[derive(Debug)]
struct Story {
    offers: BTreeMap<ResourceName, Offer>,
    node: NodeResources,
    /// The ids that the kubelet has after its lists.
    kubelet: IdsByResource,
    kubelet_started: Option<Duration>,
    now: Duration,
    memory: CapacityMemory,
}

impl Story {
    fn new(entries: &[(&str, &str)]) -> Self {
        Self {
            offers: BTreeMap::new(),
            node: node(entries),
            kubelet: IdsByResource::new(),
            kubelet_started: Some(Duration::ZERO),
            now: LONG,
            memory: CapacityMemory::default(),
        }
    }

    fn offers(mut self, resource: &str, health: &str) -> Self {
        self.offers.extend([offer(resource, health, true)]);
        self
    }

    fn starts(mut self, resource: &str, health: &str) -> Self {
        self.offers.extend([offer(resource, health, false)]);
        self
    }

    fn kubelet_has(mut self, resource: &str, slots: usize) -> Self {
        let ids = (0..slots).map(|n| format!("{resource}-{n}"));
        self.kubelet.insert(name(resource), ids.collect());
        self
    }

    fn plan(&mut self) -> Plan {
        let known = CapacityFacts {
            offers: &self.offers,
            node: &self.node,
            kubelet: Some(&self.kubelet),
            kubelet_age: self.kubelet_started.map(|started| self.now - started),
            now: self.now,
        };
        let unasked = plan(
            CapacityFacts {
                kubelet: None,
                ..known
            },
            &self.memory,
        );
        let mut unasked_changes = unasked.changes.iter();
        assert!(unasked_changes.all(EntryChange::sinks), "not asked");
        let asked = plan(known, &self.memory);
        if !unasked.asks_kubelet {
            assert_eq!(asked, unasked, "it made a difference to ask the kubelet");
        }
        self.memory = asked.memory.clone();
        asked
    }

    /// Plans and carries it out: what the node has then.
    fn round(&mut self) -> Vec<(&str, String)> {
        let changes = self.plan().changes;
        assert!(self.node.apply(&changes));
        values(&self.node)
    }

    /// The kubelet writes 0 for each plugin that has ended, before the entry is stale.
    fn plugins_have_ended(&mut self) {
        for (resource, capacity) in &mut self.node.capacity {
            let allocatable = self.node.allocatable.get(resource);
            if let Some(none) = allocatable.filter(|allocatable| *allocatable == "0") {
                capacity.clone_from(none);
            }
        }
    }

    fn stop(&mut self, resource: &str) {
        self.offers.remove(resource);
        self.kubelet.remove(resource);
    }
}

fn is(resource: &'static str, values: &str) -> Vec<(&'static str, String)> {
    vec![(resource, values.to_owned())]
}

const CAM: &str = "akri.sh/cam";
const GHOST: &str = "akri.sh/ghost";

#[test]
fn what_a_plugin_lists_is_published_once_the_kubelet_has_it() {
    for (entries, health, kubelet, expected, awaits) in [
        (&[][..], "hh", 2, is(CAM, "2/2"), false),
        (&[], "hh", 1, vec![], true),
        (&[], "h-", 1, is(CAM, "2/1"), false),
        (&[(CAM, "0/0")], "hhh", 3, is(CAM, "3/3"), false),
        (&[(CAM, "2/2")], "--", 0, is(CAM, "2/0"), false),
        // What sinks needs no kubelet.
        (&[(CAM, "2/2")], "--", 2, is(CAM, "2/0"), false),
        (&[(CAM, "2/2")], "h", 2, is(CAM, "1/1"), false),
        (&[(CAM, "2/2")], "h--", 2, is(CAM, "2/1"), true),
        (&[(CAM, "2/-")], "hh", 2, is(CAM, "2/2"), false),
        // What is there already needs no kubelet.
        (&[(CAM, "2/2")], "hh", 0, is(CAM, "2/2"), false),
    ] {
        let mut story = Story::new(entries).offers(CAM, health);
        if kubelet > 0 {
            story = story.kubelet_has(CAM, kubelet);
        }
        let plan = story.plan();
        assert!(story.node.apply(&plan.changes));
        let case = format!("{entries:?} {health} {kubelet}");
        assert_eq!(values(&story.node), expected, "{case}");
        assert_eq!(plan.asks_kubelet, awaits, "{case}");
        assert_eq!(plan.wake_in, None, "{case}");
    }
}

#[test]
fn equal_numbers_of_other_slots_are_not_yet_what_is_listed() {
    let mut story = Story::new(&[]).offers(CAM, "-h").kubelet_has(CAM, 1);
    assert!(story.plan().asks_kubelet);
    assert_eq!(story.round(), []);
}

#[test]
fn a_plugin_that_starts_publishes_nothing_and_loses_nothing() {
    let mut story = Story::new(&[(CAM, "2/2")]).starts(CAM, "hhh");
    for _ in 0..3 {
        let plan = story.plan();
        assert_eq!(
            (plan.changes, plan.asks_kubelet, plan.wake_in),
            (vec![], false, None)
        );
        story.now += UNTIL_STALE;
    }
}

#[test]
fn nothing_is_allocatable_of_a_plugin_that_has_stopped() {
    let mut story = Story::new(&[(CAM, "2/2")])
        .offers(CAM, "hh")
        .kubelet_has(CAM, 2);
    story.round();
    story.offers.clear();
    // The kubelet has not seen the end of the stream.
    assert!(story.plan().asks_kubelet);
    assert_eq!(story.round(), is(CAM, "2/2"));
    story.stop(CAM);
    assert_eq!(story.round(), is(CAM, "2/0"));
    // Not for ever.
    story.node = node(&[(CAM, "2/2")]);
    story.now += STREAM_ENDS + secs(1);
    assert_eq!(story.plan().changes, []);
}

#[test]
fn entries_that_were_there_before_the_agent_keep_their_values_until_they_are_stale() {
    let mut story = Story::new(&[(GHOST, "5/5")]);
    assert_eq!(story.round(), is(GHOST, "5/5"));
    story.now += UNTIL_STALE - secs(1);
    let plan = story.plan();
    assert_eq!((plan.changes, plan.wake_in), (vec![], Some(secs(1))));
    story.now += secs(1);
    assert_eq!(story.round(), []);
    assert_eq!(story.plan().wake_in, None);
}

#[test]
fn an_entry_that_comes_back_counts_anew() {
    let mut story = Story::new(&[(GHOST, "0/0")]);
    story.round();
    story.now += secs(300);
    story.node = node(&[]);
    assert_eq!(story.plan().wake_in, None);
    story.node = node(&[(GHOST, "1/0")]);
    assert_eq!(story.plan().wake_in, Some(UNTIL_STALE));
    // So does one whose plugin was back meanwhile.
    story.now += secs(300);
    story = story.starts(GHOST, "h");
    story.round();
    story.offers.clear();
    assert_eq!(story.plan().wake_in, Some(UNTIL_STALE));
}

#[test]
fn a_new_kubelet_has_a_grace_of_its_own_and_without_one_nothing_goes() {
    let mut story = Story::new(&[(GHOST, "0/0")]);
    story.round();
    story.kubelet_started = None;
    story.now += secs(300);
    let plan = story.plan();
    assert_eq!((plan.changes, plan.wake_in), (vec![], None));
    story.kubelet_started = Some(story.now);
    story.now += secs(100);
    assert_eq!(story.plan().wake_in, Some(secs(230)));
    story.now += secs(230);
    assert_eq!(story.round(), []);
}

#[test]
fn what_another_plugin_backs_stays() {
    let mut story = Story::new(&[(GHOST, "2/2")]).kubelet_has(GHOST, 2);
    story.round();
    story.now += UNTIL_STALE;
    let plan = story.plan();
    assert_eq!((plan.changes, plan.asks_kubelet), (vec![], false));
    assert_eq!(plan.wake_in, Some(UNTIL_STALE));
}

#[test]
fn what_another_plugin_backs_stays_while_none_of_its_devices_is_healthy() {
    let mut story = Story::new(&[(GHOST, "2/0")]);
    story.round();
    for _ in 0..3 {
        story.now += UNTIL_STALE;
        let plan = story.plan();
        assert_eq!((plan.changes, plan.wake_in), (vec![], Some(UNTIL_STALE)));
    }
    // Its plugin has ended: the kubelet writes 0.
    story.node = node(&[(GHOST, "0/0")]);
    story.now += UNTIL_STALE;
    assert_eq!(story.round(), []);
}

#[test]
fn all_that_changed_goes_into_one_plan() {
    let mut story = Story::new(&[(GHOST, "0/0"), ("akri.sh/old", "1/1")])
        .offers("akri.sh/a", "h")
        .offers("akri.sh/b", "h-")
        .kubelet_has("akri.sh/a", 1)
        .kubelet_has("akri.sh/b", 1);
    story.memory.unbacked.insert(name(GHOST), Duration::ZERO);
    story.memory.offered.insert(name("akri.sh/old"));
    let expected = [
        ("akri.sh/a", "1/1"),
        ("akri.sh/b", "2/1"),
        ("akri.sh/old", "1/0"),
    ];
    assert_eq!(
        story.round(),
        expected.map(|(name, values)| (name, values.to_owned()))
    );
}
