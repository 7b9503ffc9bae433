//! A controller that plans the touched parts beside one that always plans the whole world, in the same history.
use super::server::{Server, change, remove};
use crate::{
    api::{instance::Instance, names},
    controller::{
        agenda::{Agenda, CREATED_AGAIN, Pass, Waits},
        brokers::{memory::Memory as Brokers, plan as brokers, report::Reports},
        fixtures::{at, configuration, instance, node_devices, not_ready, off, ready},
        nodes::{away, lost::Memory as Lost, plan as nodes},
        parts::Parts,
        services::plan as services,
        status::plan as status,
        touched::touched,
        world::World,
    },
    model::{
        device::{DeviceId, Scope},
        instance_name::InstanceName,
        names::ObjectKey,
    },
};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;

/// The Configurations. The third has the name of an Instance of the first; the fourth has its name in another namespace.
const CONFIGURATIONS: [(&str, &str); 4] = [
    ("default", "cam"),
    ("default", "tv"),
    ("default", "cam-1"),
    ("other", "cam"),
];
const NODES: [&str; 3] = ["a", "b", "c"];

#[derive(Debug, Clone)]
enum Event {
    Node(usize, u8),
    /// What a node reports of the devices of a Configuration: of each whether it sees it.
    Report(usize, usize, Vec<u8>, bool),
    Silence(usize),
    Configuration(usize, u8, u8),
    /// An Instance of an agent's own, which may have the name of a shared one.
    Local(usize, usize, usize),
    Instance(usize, u8, usize),
    Pod(usize, u8, usize),
    Service(usize, u8, usize),
    Job(usize, u8),
    Passes(u64),
}

fn event() -> impl Strategy<Value = Event> {
    let of = || 0..CONFIGURATIONS.len();
    let seen = || prop::collection::vec(0..3_u8, 2);
    prop_oneof![
        1 => (0..3_usize, 0..5_u8).prop_map(|(n, state)| Event::Node(n, state)),
        4 => (0..3_usize, of(), seen(), any::<bool>())
            .prop_map(|(n, of, seen, complete)| Event::Report(n, of, seen, complete)),
        1 => (0..3_usize).prop_map(Event::Silence),
        3 => (of(), 0..6_u8, 0..4_u8).prop_map(|(of, b, s)| Event::Configuration(of, b, s)),
        1 => (of(), of(), 0..2_usize).prop_map(|(of, like, n)| Event::Local(of, like, n)),
        3 => (0..8_usize, 0..6_u8, of()).prop_map(|(n, what, of)| Event::Instance(n, what, of)),
        5 => (0..8_usize, 0..9_u8, of()).prop_map(|(n, what, of)| Event::Pod(n, what, of)),
        2 => (0..8_usize, 0..4_u8, of()).prop_map(|(n, what, of)| Event::Service(n, what, of)),
        1 => (0..8_usize, 0..2_u8).prop_map(|(n, what)| Event::Job(n, what)),
        3 => prop_oneof![1..5_u64, 30..100_u64, 200..400_u64].prop_map(Event::Passes),
    ]
}

fn device(n: usize) -> String {
    format!("device-{n}")
}

/// Returns the name of the Instance of a shared device.
fn instance_name(of: usize, n: usize) -> String {
    let configuration = CONFIGURATIONS[of].1.into();
    let device = DeviceId::new(&device(n));
    let names = InstanceName::candidates(&configuration, &device, Scope::Shared, &"".into());
    names[0].to_string()
}

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
    let all = all.chain(world.configurations.keys().map(|key| key.name.clone()));
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

    fn now(&self) -> away::Now {
        away::Now {
            clock: at(i64::try_from(self.seconds).unwrap()),
            instant: self.begun + Duration::from_secs(self.seconds),
        }
    }

    fn happen(&mut self, event: &Event) {
        let clock = self.now().clock;
        let uid = self.server.uid();
        let world = &mut self.server.world;
        match event {
            Event::Node(n, 0) => drop(world.nodes.remove(NODES[*n])),
            Event::Node(n, state) => {
                let state = match state {
                    1 => not_ready(clock),
                    2 => off(clock),
                    _ => ready(),
                };
                world.nodes.insert(NODES[*n].into(), Arc::new(state));
            }
            Event::Report(n, of, seen, complete) => {
                let (namespace, name) = CONFIGURATIONS[*of];
                let devices = seen.iter().enumerate().filter(|(_, seen)| **seen > 0);
                let devices: Vec<Value> = devices
                    .map(|(n, seen)| match seen {
                        1 => json!({ "id": device(n), "state": "Unhealthy" }),
                        _ => json!({ "id": device(n), "properties": { "N": n.to_string() } }),
                    })
                    .collect();
                let view = json!({
                    "namespace": namespace, "name": name, "complete": complete, "devices": devices,
                });
                let known = world.node_devices.get(NODES[*n]);
                let views = known.map(|object| object.spec.configurations.clone());
                let mut views = views.unwrap_or_default();
                views.retain(|view| {
                    (view.namespace.as_str(), view.name.as_str()) != (namespace, name)
                });
                views.push(serde_json::from_value(view).unwrap());
                let mut object = node_devices(NODES[*n], json!(views));
                object.metadata.uid = known.map_or(Some(uid), |known| known.metadata.uid.clone());
                world
                    .node_devices
                    .insert(NODES[*n].into(), Arc::new(object));
            }
            Event::Silence(n) => drop(world.node_devices.remove(NODES[*n])),
            Event::Configuration(of, spec, service) => self.configure(*of, *spec, *service),
            Event::Local(of, like, n) => {
                let (namespace, name) = CONFIGURATIONS[*of];
                let made = json!({
                    "metadata": { "namespace": namespace, "uid": uid },
                    "spec": { "configurationName": name, "nodes": ["a"] },
                });
                let made = instance(&instance_name(*like, *n), made);
                world
                    .instances
                    .insert(crate::store::key_of(&made.metadata), Arc::new(made));
            }
            Event::Instance(n, what, of) => self.instance(*n, *what, *of),
            Event::Pod(n, what, of) => self.pod(*n, *what, *of),
            Event::Service(n, 0, _) => remove(&mut world.services, *n),
            Event::Service(n, what, of) => change(&mut world.services, *n, |service| {
                let name = instance_name(*of, 0);
                match what {
                    1 => service
                        .meta
                        .labels
                        .insert(names::INSTANCE_LABEL.to_owned(), name),
                    2 => service.meta.labels.remove(names::CONFIGURATION_LABEL),
                    _ => service.meta.owner.replace("another".to_owned()),
                };
            }),
            Event::Job(n, 0) => remove(&mut world.jobs, *n),
            Event::Job(n, _) => change(&mut world.jobs, *n, |job| {
                job.failure = Some("failed".to_owned());
            }),
            Event::Passes(seconds) => self.seconds += seconds,
        }
    }

    fn configure(&mut self, of: usize, broker: u8, service: u8) {
        let (namespace, name) = CONFIGURATIONS[of];
        let key = ObjectKey::new(namespace, name);
        let world = &mut self.server.world;
        let before = world.configurations.remove(&key);
        world.unreadable.remove(&key);
        let broker = match broker {
            0 => return,
            1 => {
                world.unreadable.insert(key, "why".to_owned());
                return;
            }
            2 => Value::Null,
            3 | 4 => {
                json!({ "brokerPodSpec": { "containers": [{ "name": "a" }], "hostNetwork": broker == 3 } })
            }
            _ => {
                json!({ "brokerJobSpec": { "template": { "spec": { "containers": [{ "name": "a" }] } } } })
            }
        };
        let spec = |is: bool, port: u8| is.then(|| json!({ "ports": [{ "port": port }] }));
        let generation = before
            .as_ref()
            .and_then(|before| before.metadata.generation);
        let made = json!({
            "metadata": {
                "namespace": namespace, "generation": generation.unwrap_or_default() + 1,
                "uid": format!("uid-{namespace}-{name}"),
            },
            "spec": {
                "brokerSpec": broker, "capacity": 1 + service % 2,
                "instanceServiceSpec": spec(service & 1 > 0, service),
                "configurationServiceSpec": spec(service & 2 > 0, service),
            },
        });
        let mut made = configuration(name, made);
        made.status = before.and_then(|before| before.status.clone());
        world.configurations.insert(key, Arc::new(made));
    }

    fn instance(&mut self, n: usize, what: u8, of: usize) {
        let instances = &mut self.server.world.instances;
        if what == 0 {
            return remove(instances, n);
        }
        change(instances, n, |instance: &mut Instance| match what {
            1 => instance.spec.configuration_name = CONFIGURATIONS[of].1.into(),
            2 => instance.metadata.uid = Some(format!("again-{n}")),
            3 => instance.spec.nodes.clear(),
            _ => {
                let name = instance.metadata.name.clone().unwrap();
                let usage = &mut instance.spec.device_usage;
                usage.insert(format!("{name}-0"), NODES[n % 3].to_owned());
            }
        });
    }

    fn pod(&mut self, n: usize, what: u8, of: usize) {
        let clock = self.now().clock;
        let world = &mut self.server.world;
        if what == 0 {
            return remove(&mut world.pods, n);
        }
        let uids = world.instances.values().map(|i| i.metadata.uid.clone());
        let uids: Vec<_> = uids.collect();
        change(&mut world.pods, n, |pod| {
            let labels = &mut pod.meta.labels;
            match what {
                1 => drop(labels.insert(
                    names::CONFIGURATION_LABEL.to_owned(),
                    CONFIGURATIONS[of].1.to_owned(),
                )),
                2 => drop(labels.insert(names::INSTANCE_LABEL.to_owned(), instance_name(of, 0))),
                3 => drop(labels.remove(names::INSTANCE_LABEL)),
                4 => pod.meta.owner = uids.get(of).cloned().flatten(),
                5 => pod.meta.is_deleting = true,
                6 => {
                    pod.phase = "Failed".to_owned();
                    (pod.started, pod.finished) = (Some(clock), Some(clock));
                }
                _ => {
                    pod.phase = "Running".to_owned();
                    (pod.started, pod.is_available) = (Some(clock), true);
                }
            }
        });
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
            whole.looked(&node, away::Pods::Deleted, now.instant);
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
                keyed.looked(&node, away::Pods::Deleted, now.instant);
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
                    let left = change.away.iter().chain(&change.gone);
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
            let words = actions.iter().map(|action| match action {
                brokers::Action::CreatePod { broker, .. } => format!("pod of {}", broker.instance),
                action => format!("{action:?}"),
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
                services: &BTreeMap::new(),
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

proptest! {
    #[test]
    fn the_touched_parts_are_planned_as_in_the_whole_world(
        events in prop::collection::vec(event(), 1..40)
    ) {
        let mut cluster = Cluster::new();
        cluster.pass()?;
        for event in events {
            cluster.happen(&event);
            cluster.seconds += 1;
            cluster.pass()?;
        }
    }
}
