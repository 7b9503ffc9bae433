//! Which parts a change touches, and what a part shows.
use super::*;
use crate::{
    api::names,
    cluster::changes::Listed,
    controller::fixtures::{cluster, configuration, instance, key, node_devices, pod, ready},
};
use serde_json::{Value, json};

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
fn a_name_of_its_own_touches_the_configurations_that_give_such_names_and_the_one_of_the_name() {
    let naming = json!({ "spec": { "instanceName": "{SERIAL}" } });
    let world = world()
        .with_configuration(configuration("tv", naming.clone()))
        .with_configuration(configuration("hall", json!({})));
    let all = touched;
    let touched = |name: &str| all(&world, seen(key(name), Some(instance(name, json!({})))));
    assert_eq!(touched("hall"), ["cam", "hall", "tv"]);
    assert_eq!(touched("lamp"), ["cam", "tv"]);
    assert_eq!(touched("cam-8120fe"), ["cam"]);
    let gone = seen(key("cam-1"), None::<Instance>);
    assert_eq!(all(&world, gone), ["cam", "tv"]);
    // Another Configuration has the name of a resource, or has it no more.
    let of = |fields: Value| seen(key("hall"), Some(configuration("hall", fields)));
    let named = json!({ "spec": { "resourceName": "a.b/lamp" } });
    assert_eq!(all(&world, of(named)), ["hall", "tv"]);
    let other = json!({ "spec": { "capacity": 2 } });
    assert_eq!(all(&world, of(other)), ["hall"]);
    let gone = seen(key("hall"), None::<Configuration>);
    assert_eq!(all(&world, gone), ["hall", "tv"]);
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
    let unknown = json!([view("cam", false), view("radio", false)]);
    assert_eq!(touched(&world, report(unknown)), [""; 0]);
    let another = seen::<_, String>(Key::new("", "b"), Some(node_devices("b", json!([]))));
    assert_eq!(touched(&world, another), ["all"]);
}

#[test]
fn an_answer_that_no_watch_shows_is_kept_until_its_namespace_is_listed_anew() {
    let mut known = Cluster::default();
    let answer = Change {
        key: key("cam-1"),
        object: Some(Arc::new(instance("cam-1", json!({})))),
        version: 5,
    };
    known.answered(vec![answer].into());
    let mut now = Instant::now();
    let mut left_after = |listed: Option<News>| {
        listed.map(|news| known.see(news));
        for _ in 0..2 {
            known.expire(now);
            now += std::time::Duration::from_hours(1);
        }
        assert_eq!(known.expires_at(), None);
        known.part("cam").instances.len()
    };
    assert_eq!(left_after(None), 1);
    let other = Listed::<Instance>::new(Some("other".to_owned()));
    assert_eq!(left_after(Some(other.into())), 1);
    assert_eq!(left_after(Some(Listed::<BrokerPod>::new(None).into())), 1);
    assert_eq!(left_after(Some(Listed::<Instance>::new(None).into())), 0);
}

#[test]
fn a_configuration_that_was_deleted_after_a_write_goes_at_once_and_not_by_an_older_event() {
    let mut known = cluster(&world());
    let written = || Change {
        key: key("cam"),
        object: Some(Arc::new(configuration("cam", json!({})))),
        version: 5,
    };
    known.answered(vec![written()].into());
    for (newest, left) in [(4, 1), (6, 0)] {
        known.list_configurations(&Objects {
            newest: [("default".to_owned(), newest)].into(),
            ..Objects::default()
        });
        assert_eq!(known.part("cam").configurations.len(), left, "{newest}");
    }
}
