//! A controller that plans the touched parts beside one that always plans the whole world, in the same history.
use super::{
    events::{CONFIGURATIONS, Event, NODES, event},
    server::Server,
};
use crate::{
    api::names,
    controller::{
        agenda::{Agenda, CREATED_AGAIN, Pass, Waits},
        brokers::{memory::Memory as Brokers, plan as brokers, report::Reports},
        fixtures::at,
        nodes::{absent_node, lost::Memory as Lost, plan as nodes},
        parts::Parts,
        services::plan as services,
        status::plan as status,
        touched::touched,
        world::World,
    },
};
use proptest::prelude::*;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;

/// One job of the two controllers: the agenda of the one that plans parts.
struct Job {
    agenda: Agenda,
    before: Option<Arc<World>>,
}

impl Job {
    fn new() -> Self {
        Self {
            agenda: Agenda::new(),
            before: None,
        }
    }

    /// Returns the parts that are due.
    fn due(&mut self, world: &Arc<World>, now: Instant) -> Option<(Parts, Arc<World>)> {
        if let Some(before) = self.before.replace(world.clone()) {
            self.agenda.touch(touched(&before, world));
        }
        let parts = self.agenda.take(now)?;
        let world = world.part(&parts);
        Some((parts, world))
    }

    fn done(&mut self, parts: &Parts, waits: Waits, failed: BTreeSet<String>, now: Instant) {
        self.agenda.done(parts, Pass { failed, waits }, now);
    }
}

/// The memories of two controllers: of the one that plans the whole world, and of the one that plans parts.
struct Cluster {
    server: Server,
    begun: Instant,
    seconds: u64,
    nodes: (Job, [Lost; 2]),
    brokers: (Job, [Brokers; 2], [Reports; 2]),
    services: (Job, [services::Idle; 2]),
    status: Job,
}

fn words<T: Debug>(actions: &[T]) -> BTreeSet<String> {
    let words = actions.iter().map(|action| format!("{action:?}"));
    words.collect()
}

/// Returns each part of a world alone.
fn each_part(world: &Arc<World>) -> Vec<Arc<World>> {
    let labels = world.pods.values().map(|pod| &pod.meta);
    let labels = labels.chain(world.jobs.values().map(|job| &job.meta));
    let labels = labels.filter_map(|meta| meta.labels.get(names::CONFIGURATION_LABEL));
    let instances = world.instances.values();
    let all = instances.map(|instance| instance.spec.configuration_name.to_string());
    let all = all.chain(labels.cloned());
    let all = all.chain(world.configurations.keys().map(|key| key.name.to_string()));
    let views = world.views().map(|(_, view)| view.name.clone());
    let names: BTreeSet<String> = all.chain(views).collect();
    let part = |name| world.part(&Parts::Named(BTreeSet::from([name])));
    names.into_iter().map(part).collect()
}

impl Cluster {
    fn new() -> Self {
        let mut cluster = Self {
            server: Server::default(),
            begun: Instant::now(),
            seconds: 1,
            nodes: (Job::new(), [Lost::default(), Lost::default()]),
            brokers: (Job::new(), Default::default(), Default::default()),
            services: (Job::new(), Default::default()),
            status: Job::new(),
        };
        for n in 0..NODES.len() {
            cluster.happen(&Event::Node(n, 4));
        }
        for of in 0..CONFIGURATIONS.len() {
            cluster.happen(&Event::Configuration(of, 3, 3));
            cluster.happen(&Event::Report(0, of, vec![2, 2], true));
        }
        cluster
    }

    fn now(&self) -> absent_node::Now {
        absent_node::Now {
            clock: at(i64::try_from(self.seconds).unwrap()),
            instant: self.begun + Duration::from_secs(self.seconds),
        }
    }

    fn happen(&mut self, event: &Event) {
        let clock = self.now().clock;
        self.server.happen(event, clock);
        if let Event::Passes(seconds) = event {
            self.seconds += seconds;
        }
    }

    /// Runs one pass of each job of both controllers. Returns what they plan differently.
    fn pass(&mut self) -> Result<(), TestCaseError> {
        self.pass_nodes()?;
        self.pass_brokers()?;
        self.pass_services()?;
        self.pass_status()
    }

    fn pass_nodes(&mut self) -> Result<(), TestCaseError> {
        let (now, world) = (self.now(), Arc::new(self.server.world.clone()));
        let (job, [whole, keyed]) = &mut self.nodes;
        whole.notice(&world, now);
        for node in whole.looks(now.instant) {
            whole.looked(&node, absent_node::Pods::Deleted, now.instant);
        }
        let all = nodes::plan(&world, whole, now);
        let parts: Vec<_> = (each_part(&world).iter())
            .flat_map(|part| nodes::plan(part, whole, now).actions)
            .collect();
        prop_assert_eq!(words(&all.actions), words(&parts), "the union of the parts");
        let mut planned = nodes::Plan::default();
        if let Some((parts, mut part)) = job.due(&world, now.instant) {
            keyed.notice(&part, now);
            for node in keyed.looks(now.instant) {
                keyed.looked(&node, absent_node::Pods::Deleted, now.instant);
                part = world.clone();
            }
            planned = nodes::plan(&part, keyed, now);
            for action in planned.actions.iter().filter(|a| a.is_creation()) {
                planned.waits.add(&action.part(&part), CREATED_AGAIN);
            }
            job.done(&parts, planned.waits.clone(), BTreeSet::new(), now.instant);
        }
        prop_assert_eq!(words(&all.actions), words(&planned.actions), "Instances");
        prop_assert_eq!(&all.outage_on, &planned.outage_on);
        let about = |plan: &nodes::Plan| {
            let all = plan.notices.iter();
            words(
                &all.map(|n| (&n.instance, &n.node, n.wait))
                    .collect::<Vec<_>>(),
            )
        };
        prop_assert_eq!(about(&all), about(&planned));
        for memory in [whole, keyed] {
            for notice in &all.notices {
                memory.tell(&notice.node, &notice.instance, notice.wait);
            }
            for configuration in &all.outage_on {
                memory.tell_outage(configuration);
            }
            for action in &all.actions {
                if let nodes::Action::Change(change) = action {
                    let left = change.absent.iter().chain(&change.gone);
                    memory.left(&change.key, left, now.instant);
                }
            }
        }
        for action in &all.actions {
            self.server.nodes(action);
        }
        Ok(())
    }

    fn pass_brokers(&mut self) -> Result<(), TestCaseError> {
        let (now, world) = (self.now(), Arc::new(self.server.world.clone()));
        let prefix = "akri.sh".parse().unwrap();
        let plan = |world: &World, memory: &Brokers| {
            brokers::plan(&brokers::Input {
                world,
                memory,
                resource_prefix: &prefix,
                now: now.clock,
            })
        };
        let (job, [whole, keyed], [all_reports, keyed_reports]) = &mut self.brokers;
        let mut notices = [whole.observe(&world, now.clock), vec![]];
        let all = plan(&world, whole);
        let parts: Vec<_> = (each_part(&world).iter())
            .flat_map(|part| plan(part, whole).actions)
            .collect();
        // Two parts do not know of each other's new brokers when they choose nodes.
        let wanted = |actions: &[brokers::Action]| {
            let words = actions.iter().map(|action| {
                if let brokers::Action::CreatePod { broker, .. } = action {
                    return format!("pod of {}", broker.instance);
                }
                format!("{action:?}")
            });
            let mut words: Vec<_> = words.collect();
            words.sort();
            words
        };
        prop_assert_eq!(
            wanted(&all.actions),
            wanted(&parts),
            "the union of the parts"
        );
        let due = job.due(&world, now.instant);
        let mut planned = brokers::Plan::default();
        if let Some((_, part)) = &due {
            notices[1] = keyed.observe(part, now.clock);
            planned = plan(part, keyed);
        }
        prop_assert_eq!(words(&notices[0]), words(&notices[1]));
        prop_assert_eq!(words(&all.actions), words(&planned.actions), "brokers");
        for action in &all.actions {
            let outcome = self.server.brokers(action);
            for memory in [&mut *whole, &mut *keyed] {
                memory.settle(action, &outcome, now.clock);
            }
        }
        *all_reports = plan(&world, whole).reports;
        if let Some((parts, part)) = due {
            let left = plan(&part, keyed);
            keyed_reports.retain(|key, _| !part.includes(&key.name));
            keyed_reports.extend(left.reports);
            let failed = left.parts.into_iter().collect();
            job.done(&parts, left.waits, failed, now.instant);
        }
        prop_assert_eq!(&*all_reports, &*keyed_reports);
        Ok(())
    }

    fn pass_services(&mut self) -> Result<(), TestCaseError> {
        let (now, world) = (self.now(), Arc::new(self.server.world.clone()));
        let (job, [whole, keyed]) = &mut self.services;
        let all = services::plan(&world, whole, now.clock);
        let parts: Vec<_> = (each_part(&world).iter())
            .flat_map(|part| services::plan(part, whole, now.clock).actions)
            .collect();
        prop_assert_eq!(words(&all.actions), words(&parts), "the union of the parts");
        let mut planned = services::Plan::default();
        if let Some((parts, part)) = job.due(&world, now.instant) {
            planned = services::plan(&part, keyed, now.clock);
            keyed.retain(|_, idle| !part.includes(&idle.part));
            keyed.extend(planned.idle.clone());
            for action in planned.actions.iter().filter(|a| a.is_creation()) {
                planned.waits.add(action.part(), CREATED_AGAIN);
            }
            let reported = planned.actions.iter();
            let reported = reported.filter(|a| matches!(a, services::Action::Report(..)));
            let failed = reported.map(|action| action.part().to_owned()).collect();
            job.done(&parts, planned.waits.clone(), failed, now.instant);
        }
        // A report changes nothing, and is repeated with each pass.
        let writes = |plan: &services::Plan| {
            let mut actions = plan.actions.clone();
            actions.retain(|action| !matches!(action, services::Action::Report(..)));
            words(&actions)
        };
        prop_assert_eq!(writes(&all), writes(&planned), "Services");
        *whole = all.idle;
        prop_assert_eq!(&*whole, &*keyed);
        for action in &all.actions {
            self.server.services(action);
        }
        Ok(())
    }

    fn pass_status(&mut self) -> Result<(), TestCaseError> {
        let (now, world) = (self.now(), Arc::new(self.server.world.clone()));
        let none = BTreeMap::new();
        let plan = |world: &World| {
            let seen = status::Seen {
                world,
                brokers: &none,
                problems: &BTreeMap::new(),
            };
            status::plan(seen, now.clock)
        };
        let all = plan(&world);
        let parts: Vec<_> = (each_part(&world).iter())
            .flat_map(|part| plan(part).actions)
            .collect();
        prop_assert_eq!(words(&all.actions), words(&parts), "the union of the parts");
        let mut planned = status::Plan::default();
        if let Some((parts, part)) = self.status.due(&world, now.instant) {
            planned = plan(&part);
            let waits = planned.waits.clone();
            self.status
                .done(&parts, waits, BTreeSet::new(), now.instant);
        }
        prop_assert_eq!(words(&all.actions), words(&planned.actions), "status");
        for action in &all.actions {
            self.server.status(action);
        }
        Ok(())
    }
}

/// Checks a history of events from the first to the last.
fn holds(events: &[Event]) -> Result<(), TestCaseError> {
    let mut cluster = Cluster::new();
    cluster.pass()?;
    for event in events {
        cluster.happen(event);
        let instances = cluster.server.world.instances.values();
        let uids: BTreeSet<_> = instances.map(|i| &i.metadata.uid).collect();
        let count = cluster.server.world.instances.len();
        prop_assert_eq!(uids.len(), count, "no two objects have one uid");
        cluster.seconds += 1;
        cluster.pass()?;
    }
    Ok(())
}

#[test]
fn two_instances_that_are_created_again_are_planned_as_in_the_whole_world() {
    let events = [
        Event::Report(0, 2, vec![0, 1], true),
        Event::Report(0, 0, vec![1, 1], false),
        Event::Instance(1, 2, 0),
        Event::Passes(57),
        Event::Instance(1, 2, 0),
        Event::Pod(0, 4, 0),
    ];
    holds(&events).unwrap();
}

#[test]
fn a_failed_pod_of_another_owner_is_counted_once_when_its_first_instance_goes() {
    let events = [
        Event::Report(0, 0, vec![0, 2], false),
        Event::Instance(1, 1, 3),
        Event::Node(0, 1),
        Event::Node(0, 1),
        Event::Instance(0, 0, 0),
        Event::Pod(1, 6, 0),
        Event::Instance(2, 1, 1),
        Event::Passes(56),
        Event::Pod(7, 4, 2),
        Event::Configuration(0, 0, 0),
    ];
    holds(&events).unwrap();
}

proptest! {
    #[test]
    fn the_touched_parts_are_planned_as_in_the_whole_world(
        events in prop::collection::vec(event(), 1..40)
    ) {
        holds(&events)?;
    }
}
