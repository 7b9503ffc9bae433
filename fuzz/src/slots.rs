//! `deviceUsage` and the slot table. An input is a program of what an agent sees and does, see [`Agent::step`].
use crate::bytes::Reader;
use petiole::model::{
    instance_name::InstanceKey,
    slot::{ListedId, SlotId, SlotOwner},
    slot_table::{Claim, ObservedSlots, Precedence, Resource, SlotChange, SlotTable, Use},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

const NODES: [&str; 3] = ["node-a", "node-b", "c"];
const INSTANCES: [&str; 4] = ["cam-1", "cam-2", "cam-3", "door-1"];
const CONFIGURATIONS: [&str; 2] = ["cam", "door"];
const NAMESPACES: [&str; 2] = ["a", "b"];
/// A limit that no program reaches by capacities, and every program by an invented index.
const LISTED_MAX: usize = 1000;

pub fn run(input: &[u8]) {
    if let Ok(text) = std::str::from_utf8(input) {
        check_texts(text);
    }
    let mut input = Reader(input);
    let mut agent = Agent {
        table: SlotTable::new(NODES[0]),
        begun: vec![],
        now: Duration::ZERO,
    };
    while !input.0.is_empty() {
        agent.step(&mut input);
        agent.check();
    }
}

/// A text that is a slot's id, or an owner, has one spelling.
fn check_texts(text: &str) {
    for line in text.lines() {
        if let Ok(id) = line.parse::<ListedId>() {
            assert_eq!(id.to_string(), line);
            assert_eq!(line.parse(), Ok(id.slot()));
        }
        if let Ok(Some(owner)) = SlotOwner::from_usage(line) {
            assert_eq!(owner.to_string(), line);
        }
    }
}

struct Agent {
    table: SlotTable,
    /// The changes that are being written.
    begun: Vec<Vec<SlotChange>>,
    now: Duration,
}

impl Agent {
    fn step(&mut self, input: &mut Reader<'_>) {
        self.now += Duration::from_secs(1);
        match input.below(7) {
            0 => self.table.observe(instances(input)),
            1 => {
                let instance = usize::from(input.below(4));
                let gone = key(input, instance);
                self.table.observe_changes(instances(input), [gone]);
            }
            2 | 3 => self.allocate(input),
            4 => self.release(input),
            5 => self.adopt(input),
            _ => self.settle(input),
        }
    }

    /// An Allocate call: up to two containers with up to three ids each.
    fn allocate(&mut self, input: &mut Reader<'_>) {
        let resource = resource(input);
        // A kubelet gives an id once.
        let mut given = BTreeSet::new();
        let mut request = || -> Vec<String> {
            let count = input.below(4);
            let id = |_| format!("{}-{}", resource.name(), input.below(8));
            let ids = (0..count).map(id);
            ids.filter(|id| given.insert(id.clone())).collect()
        };
        let requests = [request(), request()];
        let gone = match input.below(2) {
            0 => BTreeSet::new(),
            _ => self
                .table
                .held()
                .into_iter()
                .map(|held| held.slot)
                .collect(),
        };
        let Ok(claim) = self.table.plan_claim(&resource, &requests, &gone) else {
            return;
        };
        self.check_claim(&claim, &requests, &gone);
        let changes: Vec<SlotChange> = claim.changes().cloned().collect();
        self.table.begin(&changes);
        if input.below(2) == 0 {
            self.begun.push(changes);
            return;
        }
        self.table.settle(&changes, Some(self.now));
        self.check();
        for (id, change) in requests.iter().flatten().zip(&changes) {
            let held = self.table.held_as(&resource, id);
            assert_eq!(held.map(|held| held.slot).as_ref(), Some(&change.slot));
        }
        let again = self
            .table
            .plan_claim(&resource, &requests, &BTreeSet::new());
        let slots = again.map(|again| again.changes().map(|c| c.slot.clone()).collect());
        assert_eq!(
            slots,
            Ok(changes.into_iter().map(|c| c.slot).collect::<Vec<_>>())
        );
    }

    fn check_claim(&self, claim: &Claim, requests: &[Vec<String>], gone: &BTreeSet<SlotId>) {
        assert_eq!(claim.requests.len(), requests.len());
        for (slots, ids) in claim.requests.iter().zip(requests) {
            assert_eq!(slots.len(), ids.len());
        }
        let mut given = BTreeSet::new();
        let held = self.table.held();
        for change in claim.changes() {
            assert!(given.insert(&change.slot), "{} is given twice", change.slot);
            let node = change.to.as_ref().map(|owner| owner.node().as_str());
            assert_eq!(node, Some(NODES[0]));
            let Some(from) = &change.from else {
                continue;
            };
            assert_eq!(from.node(), NODES[0], "{} is held elsewhere", change.slot);
            let is_held = held
                .iter()
                .any(|h| h.slot == change.slot && h.owner == *from);
            assert!(is_held, "{} is not as the claim says", change.slot);
            assert!(change.from == change.to || gone.contains(&change.slot));
        }
    }

    /// Adopts the slots that containers have and no Instance shows.
    fn adopt(&mut self, input: &mut Reader<'_>) {
        let uses = [one_use(input), one_use(input)];
        let adoptions = self.table.adoptions(&uses);
        let mut claimed = BTreeSet::new();
        for change in &adoptions.changes {
            assert!(
                self.table.is_free(&change.slot),
                "{} is not free",
                change.slot
            );
            assert!(
                claimed.insert(&change.slot),
                "{} is claimed twice",
                change.slot
            );
            let node = change.to.as_ref().map(|owner| owner.node().as_str());
            assert_eq!(node, Some(NODES[0]));
        }
        for twice in &adoptions.twice {
            assert!(!claimed.contains(&twice.slot));
        }
        self.table.begin(&adoptions.changes);
        self.table.settle(&adoptions.changes, Some(self.now));
        let again = self.table.adoptions(&uses).changes;
        let before = &adoptions.changes;
        assert_eq!(again, [], "{uses:?} adopted {before:?} and adopts again");
    }

    fn release(&mut self, input: &mut Reader<'_>) {
        let held = self.table.held();
        let Some(held) = held.get(usize::from(input.byte()) % held.len().max(1)) else {
            return;
        };
        let change = held.clone().release();
        self.table.begin(std::slice::from_ref(&change));
        self.begun.push(vec![change]);
    }

    fn settle(&mut self, input: &mut Reader<'_>) {
        if let Some(changes) = self.begun.pop() {
            let written = (input.below(2) == 0).then_some(self.now);
            self.table.settle(&changes, written);
        }
    }

    fn check(&self) {
        for instance in INSTANCES {
            let listed = self.table.instance_list(&instance.into());
            check_ids(listed.into_iter().map(|slot| slot.id));
        }
        for configuration in CONFIGURATIONS {
            let listed = self.table.configuration_list(&configuration.into());
            let resource = Resource::Configuration(configuration.into());
            let ids: Vec<String> = listed.iter().map(|slot| slot.id.to_string()).collect();
            let chosen = self.table.preferred(&resource, &ids, &[], 2);
            assert!(chosen.len() <= 2 && chosen.iter().all(|id| ids.contains(id)));
            check_ids(listed.into_iter().map(|slot| slot.id));
        }
        for usage in self.table.usage() {
            assert!(usage.used >= 0 && usage.free >= 0, "{usage:?}");
        }
        for held in self.table.held() {
            assert_eq!(held.owner.node(), NODES[0]);
        }
    }
}

fn check_ids(ids: impl Iterator<Item = ListedId>) {
    let mut listed = BTreeSet::new();
    for id in ids {
        assert!(listed.insert(id), "an id is listed twice");
        assert!(listed.len() <= LISTED_MAX, "the list has no end");
    }
}

fn resource(input: &mut Reader<'_>) -> Resource {
    match input.below(6) {
        n @ 0..4 => Resource::Instance(INSTANCES[usize::from(n)].into()),
        n => Resource::Configuration(CONFIGURATIONS[usize::from(n - 4)].into()),
    }
}

/// Any of the Instances, as somebody wrote them.
fn instances(input: &mut Reader<'_>) -> Vec<ObservedSlots> {
    let present = input.byte();
    let is_present = |n: &usize| present >> n & 1 == 1;
    let present = (0..INSTANCES.len()).filter(is_present);
    let instance = |n: usize| ObservedSlots {
        key: key(input, n),
        precedence: Precedence {
            is_stray: input.below(4) == 3,
            created: i64::from(input.below(3)),
        },
        configuration: CONFIGURATIONS[n / 3].into(),
        capacity: u32::from(input.below(5)),
        users_max: 4,
        is_offered: input.below(4) > 0,
        is_by_claims: false,
        is_own: false,
        told: BTreeMap::new(),
        usage: usage(input, INSTANCES[n]),
    };
    present.map(instance).collect()
}

fn key(input: &mut Reader<'_>, instance: usize) -> InstanceKey {
    let namespace = usize::from(input.below(8) / 7);
    InstanceKey::new(NAMESPACES[namespace], INSTANCES[instance])
}

/// Returns the ids of one resource that a container has, with the devices that all its ids stand for.
fn one_use(input: &mut Reader<'_>) -> Use {
    let resource = resource(input);
    let mut indexes = |names: &[&'static str]| -> Vec<(&'static str, u32)> {
        let count = input.below(4);
        let index = |_| {
            let name = names[usize::from(input.byte()) % names.len()];
            (name, u32::from(input.below(8)))
        };
        (0..count).map(index).collect()
    };
    let ids = indexes(&[""]).into_iter();
    let ids = ids.map(|(_, index)| ListedId::new(resource.plugin(), index));
    let ids = ids.collect();
    let env_slots = indexes(&INSTANCES).into_iter();
    let env_slots = env_slots.map(|(name, index)| SlotId::new(name, index));
    let env_slots = env_slots.collect();
    let count = input.below(3);
    let digests = (0..count).map(|_| (1 + input.below(4)).to_string());
    Use {
        ids,
        env_slots,
        digests: digests.collect(),
        claim: None,
        resource: None,
    }
}

fn usage(input: &mut Reader<'_>, instance: &str) -> BTreeMap<String, String> {
    let mut usage = BTreeMap::new();
    for _ in 0..input.below(5) {
        let id = match input.byte() {
            index @ 0..250 => format!("{instance}-{}", index % 8),
            _ => text(input),
        };
        let node = NODES[usize::from(input.below(3))];
        let owner = match input.below(4) {
            0 => String::new(),
            1 => node.to_owned(),
            2 => format!("C:{}-{}:{node}", CONFIGURATIONS[0], input.below(8)),
            _ => text(input),
        };
        usage.insert(id, owner);
    }
    usage
}

fn text(input: &mut Reader<'_>) -> String {
    let len = usize::from(input.below(32));
    String::from_utf8_lossy(input.bytes(len)).into_owned()
}
