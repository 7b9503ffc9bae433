//! Whatever happens, in whatever order it is seen: the parts are what they would be if the cluster had always been so.
use super::*;
use crate::api::names;
use crate::controller::fixtures::{
    cluster, configuration, instance, key, node_devices, not_ready, pod, ready,
};
use crate::controller::world::Meta;
use proptest::prelude::*;
use serde_json::{Value, json};

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
    /// What a node reports of Configurations: of how many devices of each.
    Report(usize, Vec<(usize, usize)>, u8),
    Configuration(usize, u8),
    /// An Instance of a Configuration, by its number: it is gone, or has one of three uids.
    Instance(usize, usize, u8),
    /// A Pod, by its number, with the labels of a Configuration and an Instance, and an owner.
    Pod(usize, Option<usize>, Option<usize>, u8),
    Job(usize, Option<usize>, u8),
    Service(usize, Option<usize>, u8),
}

fn event() -> impl Strategy<Value = Event> {
    let of = || 0..CONFIGURATIONS.len();
    let some = || prop::option::of(0..CONFIGURATIONS.len());
    let views = prop::collection::vec((of(), 0..3_usize), 0..4);
    prop_oneof![
        (0..3_usize, 0..3_u8).prop_map(|(n, state)| Event::Node(n, state)),
        (0..3_usize, views, 0..4_u8).prop_map(|(n, views, uid)| Event::Report(n, views, uid)),
        (of(), 0..3_u8).prop_map(|(of, state)| Event::Configuration(of, state)),
        (0..4_usize, of(), 0..4_u8).prop_map(|(n, of, uid)| Event::Instance(n, of, uid)),
        (0..4_usize, some(), some(), 0..12_u8)
            .prop_map(|(n, of, named, owner)| Event::Pod(n, of, named, owner)),
        (0..2_usize, some(), 0..12_u8).prop_map(|(n, of, owner)| Event::Job(n, of, owner)),
        (0..2_usize, some(), 0..12_u8).prop_map(|(n, of, owner)| Event::Service(n, of, owner)),
    ]
}

fn seen<T, Name>(key: Key<Name>, object: Option<T>) -> News
where
    News: From<Vec<Change<T, Name>>>,
{
    vec![Change {
        key,
        object: object.map(Arc::new),
        version: 0,
    }]
    .into()
}

/// Returns an owner: an Instance, a Job, one that does not exist, or none; `None` for an object that is gone.
fn meta(of: Option<usize>, named: Option<usize>, owner: u8) -> Option<Meta> {
    let label = |name: &str, value: String| (name.to_owned(), value);
    let part = of.map(|of| label(names::CONFIGURATION_LABEL, CONFIGURATIONS[of].1.to_owned()));
    let named = named.map(|n| label(names::INSTANCE_LABEL, format!("cam-{n}")));
    let owner = match owner {
        0 => return None,
        1..=6 => Some(format!("uid-{}-{}", owner % 2, owner % 3)),
        7 | 8 => Some(format!("job-{}", owner % 2)),
        _ => None,
    };
    Some(Meta {
        labels: part.into_iter().chain(named).collect(),
        owner,
        ..Meta::default()
    })
}

fn news(event: &Event) -> News {
    match event {
        Event::Node(n, state) => {
            let state = match state {
                0 => None,
                1 => Some(ready()),
                _ => Some(not_ready(crate::controller::fixtures::at(0))),
            };
            seen::<_, String>(Key::new("", NODES[*n]), state)
        }
        Event::Report(n, views, uid) => {
            let view = |(of, devices): &(usize, usize)| {
                let (namespace, name) = CONFIGURATIONS[*of];
                let devices: Vec<Value> = (0..*devices)
                    .map(|n| json!({ "id": n.to_string() }))
                    .collect();
                json!({ "namespace": namespace, "name": name, "devices": devices })
            };
            let views = views.iter().map(view).collect();
            let mut object = node_devices(NODES[*n], views);
            object.metadata.uid = Some(format!("reports-{uid}"));
            seen::<_, String>(Key::new("", NODES[*n]), Some(object).filter(|_| *uid > 0))
        }
        Event::Configuration(of, state) => {
            let (namespace, name) = CONFIGURATIONS[*of];
            let fields = json!({
                "metadata": { "namespace": namespace, "uid": format!("uid-{namespace}-{name}") },
                "spec": { "capacity": state },
            });
            let made = Some(configuration(name, fields)).filter(|_| *state > 0);
            seen(Key::new(namespace, name), made)
        }
        Event::Instance(n, of, uid) => {
            let fields = json!({
                "metadata": { "uid": format!("uid-{n}-{uid}") },
                "spec": { "configurationName": CONFIGURATIONS[*of].1 },
            });
            let name = format!("cam-{n}");
            let made = Some(instance(&name, fields)).filter(|_| *uid > 0);
            seen(key(&name), made)
        }
        Event::Pod(n, of, named, owner) => {
            let made = meta(*of, *named, *owner).map(|meta| BrokerPod {
                meta,
                node: Some(NODES[n % 3].to_owned()),
                ..pod("cam-1", if owner % 2 == 0 { "Running" } else { "Failed" })
            });
            seen::<_, String>(key(&format!("pod-{n}")), made)
        }
        Event::Job(n, of, owner) => {
            let made = meta(*of, None, *owner).map(|meta| BrokerJob {
                meta: Meta {
                    uid: format!("job-{n}"),
                    ..meta
                },
                failure: None,
            });
            seen::<_, String>(key(&format!("job-{n}")), made)
        }
        Event::Service(n, of, owner) => {
            let made = meta(*of, None, *owner).map(|meta| OwnedService {
                meta,
                ..OwnedService::default()
            });
            seen::<_, String>(key(&format!("service-{n}")), made)
        }
    }
}

/// Returns all that a part shows of its own.
fn words(world: &World) -> String {
    let views: Vec<_> = world.views().collect();
    let World {
        configurations,
        instances,
        pods,
        jobs,
        ..
    } = world;
    format!(
        "{configurations:?} {instances:?} {pods:?} {jobs:?} {views:?} {:?}",
        world.loads()
    )
}

fn parts(cluster: &Cluster) -> BTreeMap<String, String> {
    let part = |name: String| (name.clone(), words(&cluster.part(&name)));
    cluster.names().into_iter().map(part).collect()
}

proptest! {
    #[test]
    fn parts_that_were_made_as_things_happened_are_those_of_the_whole_world(
        events in prop::collection::vec(event(), 1..40)
    ) {
        let mut known = Cluster::default();
        for event in &events {
            let before = parts(&known);
            let touched = known.see(news(event));
            let (now, whole) = (parts(&known), cluster(&known.whole));
            prop_assert_eq!(&now, &parts(&whole));
            let unlimited = World { scope: None, ..World::clone(&known.whole) };
            prop_assert_eq!(&*known.index.loads, &unlimited.loads());
            // What is another part than before is planned again.
            for name in before.keys().chain(now.keys()) {
                let is_same = before.get(name) == now.get(name);
                let is_only_load = matches!(event, Event::Pod(..));
                prop_assert!(
                    is_same || is_only_load || touched.is_all || touched.parts.contains(name),
                    "{} is not touched", name
                );
            }
        }
    }
}

fn touched(world: &World, news: News) -> Vec<String> {
    let touched = cluster(world).see(news);
    if touched.is_all {
        return vec!["all".to_owned()];
    }
    touched.parts.into_iter().collect()
}

/// Returns a world with two Configurations, each with an Instance and its broker.
fn world() -> World {
    let mut world = World::default().with_nodes([("a", ready()), ("b", ready())]);
    for name in ["cam", "tv"] {
        let device = format!("{name}-1");
        let spec = json!({ "spec": { "configurationName": name } });
        let mut broker = pod(&device, "Running");
        broker.meta.owner = Some(format!("uid-{device}"));
        let label = names::CONFIGURATION_LABEL.to_owned();
        broker.meta.labels.insert(label, name.to_owned());
        world = world
            .with_configuration(configuration(name, json!({})))
            .with_instance(instance(&device, spec))
            .with_pod(&format!("{device}-pod"), broker);
    }
    world
}

#[test]
fn a_broker_belongs_to_its_owner_whatever_its_labels_say() {
    let broker = |change: &dyn Fn(&mut BrokerPod)| {
        let (world, name) = (world(), "cam-1-pod");
        let mut broker = BrokerPod::clone(&world.pods[&key::<String>(name)]);
        change(&mut broker);
        touched(&world, seen::<_, String>(key(name), Some(broker)))
    };
    assert_eq!(broker(&|pod| pod.meta.is_deleting = true), ["cam"]);
    let relabelled = |pod: &mut BrokerPod| {
        let label = names::CONFIGURATION_LABEL.to_owned();
        pod.meta.labels.insert(label, "tv".to_owned());
    };
    assert_eq!(broker(&relabelled), ["cam", "tv"]);
    assert_eq!(broker(&|pod| pod.meta.labels.clear()), ["cam"]);
}

#[test]
fn a_pod_that_is_seen_before_its_owner_is_there_once_its_owner_is() {
    let mut known = Cluster::default();
    let mut broker = pod("cam-1", "Running");
    broker.meta.labels.clear();
    broker.meta.owner = Some("uid-cam-1".to_owned());
    known.see(seen::<_, String>(key("broker"), Some(broker)));
    assert!(known.part("cam").pods.is_empty());
    known.see(seen(key("cam-1"), Some(instance("cam-1", json!({})))));
    assert_eq!(known.part("cam").pods.len(), 1);
}

#[test]
fn an_instance_touches_its_configuration_and_the_one_that_its_name_is_of() {
    let spec = json!({ "spec": { "configurationName": "tv" } });
    let moved = seen(key("cam-1"), Some(instance("cam-1", spec.clone())));
    assert_eq!(touched(&world(), moved), ["cam", "tv"]);
    let added = seen(key("radio-1"), Some(instance("radio-1", spec)));
    assert_eq!(touched(&world(), added), ["radio", "tv"]);
}

#[test]
fn a_report_touches_what_it_says_something_else_of_and_a_new_one_everything() {
    let view = |name: &str, complete: bool| json!({ "namespace": "default", "name": name, "complete": complete });
    let world = world().with_node_devices(node_devices("a", json!([view("cam", false)])));
    let report =
        |views: Value| seen::<_, String>(Key::new("", "a"), Some(node_devices("a", views)));
    assert_eq!(touched(&world, report(json!([view("cam", true)]))), ["cam"]);
    let moved = json!([view("tv", false), view("cam", false)]);
    assert_eq!(touched(&world, report(moved)), ["tv"]);
    let another = seen::<_, String>(Key::new("", "b"), Some(node_devices("b", json!([]))));
    assert_eq!(touched(&world, another), ["all"]);
}
