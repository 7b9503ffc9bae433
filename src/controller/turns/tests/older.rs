//! The objects of a cluster of an older version, as its API server had them (`tests/data/0.1.0`, by the suite `skew`): they are read,
//! and a controller of today that takes over a cluster with them deletes, replaces and releases nothing.
use super::*;
use crate::controller::{
    nodes::plan::Change as DeviceChange,
    world::{broker_job, broker_pod, node_state, owned_service},
};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::ObjectMeta, jiff::Timestamp};
use serde::de::DeserializeOwned;

const OBJECTS: &str = include_str!("../../../../tests/data/0.1.0/objects.json");

fn objects(kind: &str) -> Vec<Value> {
    let list: Value = serde_json::from_str(OBJECTS).unwrap();
    let items = list["items"].as_array().unwrap().iter();
    let of_kind: Vec<Value> = items.filter(|o| o["kind"] == kind).cloned().collect();
    assert!(!of_kind.is_empty(), "no {kind}");
    of_kind
}

/// Returns the changes by which a watch shows all objects of a kind.
fn changes<K: DeserializeOwned, T, Name: From<String>>(
    kind: &str,
    reduce: impl Fn(K) -> T,
) -> Vec<Change<T, Name>> {
    let change = |object: Value| {
        let metadata: ObjectMeta = serde_json::from_value(object["metadata"].clone()).unwrap();
        let namespace = metadata.namespace.clone().unwrap_or_default();
        Change {
            key: Key::new(namespace, metadata.name.clone().unwrap()),
            version: version_of(&metadata),
            object: Some(Arc::new(reduce(serde_json::from_value(object).unwrap()))),
        }
    };
    objects(kind).into_iter().map(change).collect()
}

/// Returns a controller that has just become the leader of that cluster, a minute after the newest object was made.
fn taken_over() -> Controller {
    let list: Value = serde_json::from_str(OBJECTS).unwrap();
    let times = list["items"].as_array().unwrap().iter();
    let times = times.filter_map(|o| o["metadata"]["creationTimestamp"].as_str()?.parse().ok());
    let newest: Timestamp = times.max().unwrap();
    let mut controller = Controller::new(&[]);
    let now = Now {
        clock: Timestamp::from_second(newest.as_second() + 60).unwrap(),
        instant: Instant::now(),
    };
    let mut turns = Turns::new("akri.sh".parse().unwrap(), now);
    turns.see(News::Nodes(changes("Node", node_state)));
    turns.see(News::NodeDevices(changes("NodeDevices", |object| object)));
    turns.see(News::Configurations(changes("Configuration", |object| {
        object
    })));
    turns.see(News::Instances(changes("Instance", |object| object)));
    turns.see(News::Pods(changes("Pod", broker_pod)));
    turns.see(News::Services(changes("Service", owned_service)));
    turns.see(News::Jobs(changes("Job", broker_job)));
    turns.see(News::Slices(vec![]));
    assert!(turns.is_listed());
    turns.lead(true, now);
    (controller.turns, controller.now) = (turns, now);
    controller
}

/// Returns whether a request takes anything from anybody, or makes what is there already.
fn is_destructive(request: &Request) -> bool {
    match request {
        Request::Device(DeviceAction::Change(change)) => {
            let DeviceChange {
                absent,
                gone,
                freed,
                ..
            } = &**change;
            !(absent.is_empty() && gone.is_empty() && freed.is_empty())
        }
        Request::Broker(BrokerAction::Remember { .. }) | Request::Status(_) | Request::Look(_) => {
            false
        }
        Request::Device(_)
        | Request::Broker(_)
        | Request::Service(_)
        | Request::List(_)
        | Request::Eviction(_) => true,
    }
}

#[tokio::test(start_paused = true)]
async fn a_controller_of_today_takes_over_a_cluster_of_an_older_version_and_takes_nothing_away() {
    let mut controller = taken_over();
    // Longer than every grace period of these Configurations, and than a broker's wait.
    for _ in 0..200 {
        controller.sends();
        while let Some((part, request)) = controller.open.pop() {
            assert!(
                !is_destructive(&request),
                "{}: {request:?}",
                words(&request)
            );
            let answer = match &request {
                Request::Look(_) => Answer::Pods(Pods::Remain),
                Request::Device(_)
                | Request::Broker(_)
                | Request::Service(_)
                | Request::List(_)
                | Request::Status(_)
                | Request::Eviction(_) => Answer::Written(Written::new(Outcome::Done)),
            };
            controller
                .turns
                .answered(part, &request, answer, controller.now);
            controller.sends();
        }
        controller.passes(1_000);
        controller.now.clock += Duration::from_secs(1);
    }
}

/// The test above sees what it is to see.
#[tokio::test(start_paused = true)]
async fn a_configuration_of_that_cluster_that_is_deleted_takes_its_instances_along() {
    let mut controller = taken_over();
    let gone: Vec<_> = changes::<Configuration, _, _>("Configuration", |object| object);
    let gone = gone.into_iter().map(|change| Change {
        object: None,
        version: change.version + 1_000_000,
        ..change
    });
    controller.turns.see(News::Configurations(gone.collect()));
    let sent = controller.sends();
    assert!(sent.iter().any(is_of("delete ")), "{sent:?}");
    assert!(
        controller
            .open
            .iter()
            .any(|(_, request)| is_destructive(request))
    );
}
