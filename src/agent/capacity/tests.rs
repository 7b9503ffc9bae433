//! How soon the Node says what is listed, in paused time, with an API server of one Node and no kubelet.
use super::*;
use crate::{agent::values::Slot, cluster::watch::Objects};
use axum::http::{Request, Response};
use kube::{Client, client::Body};
use serde_json::{Value, json};
use std::{convert::Infallible, sync::Mutex};

/// The Node, and the allocatable number after each patch, with its time.
struct Fake {
    node: Value,
    patches: Vec<(Duration, Value)>,
    began: Instant,
}

async fn answered(fake: Arc<Mutex<Fake>>, request: Request<Body>) -> Response<Body> {
    let body = request.into_body().collect_bytes().await.unwrap();
    let patch: json_patch::Patch = serde_json::from_slice(&body).unwrap();
    let mut fake = fake.lock().unwrap();
    json_patch::patch(&mut fake.node, &patch).unwrap();
    let patched = (fake.began.elapsed(), allocatable(&fake.node));
    fake.patches.push(patched);
    Response::new(Body::from(fake.node.to_string().into_bytes()))
}

fn allocatable(node: &Value) -> Value {
    node["status"]["allocatable"]["akri.sh/cam"].clone()
}

/// `health` is a letter a slot: `h` healthy, anything else not.
fn listed(health: &str) -> Listed {
    let slots = health.chars().enumerate().map(|(n, health)| Slot {
        id: format!("cam-{n}"),
        is_healthy: health == 'h',
    });
    Listed::from([("akri.sh/cam".parse().unwrap(), slots.collect())])
}

fn with_four_of(resource: &ResourceName) -> Objects<OwnNode> {
    let entries = BTreeMap::from([(resource.clone(), "4".to_owned())]);
    let resources = NodeResources {
        capacity: entries.clone(),
        allocatable: entries,
    };
    let own = OwnNode {
        resources,
        ..OwnNode::default()
    };
    let mut objects = Objects::default();
    let key = crate::model::names::ObjectKey::new("", "a");
    objects.objects.insert(key, Arc::new(own));
    objects
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_another_node_has_claimed_is_not_offered_a_tenth_of_a_second_later_and_the_kubelet_is_not_asked()
 {
    let resources = json!({ "akri.sh/cam": "4" });
    let node = json!({ "metadata": { "name": "a" }, "status": { "capacity": resources, "allocatable": resources } });
    let fake = Arc::new(Mutex::new(Fake {
        node,
        patches: vec![],
        began: Instant::now(),
    }));
    let answering = fake.clone();
    let server = tower::service_fn(move |request: Request<Body>| {
        let answering = answering.clone();
        async move { Ok::<_, Infallible>(answered(answering, request).await) }
    });
    let settings = Settings::for_tests("akri.sh");
    let nodes = Nodes::new(Client::new(server, "default"), &settings.resource_prefixes);
    let cam: ResourceName = "akri.sh/cam".parse().unwrap();
    // As an agent has it that stood by: from before.
    let (_seen, own) = watch::channel(Some(Arc::new(with_four_of(&cam))));
    let (list, lists) = watch::channel(listed("hhhh"));
    let (_registered, registered) = watch::channel(BTreeSet::from([cam]));
    let (_kubelet, kubelet) = watch::channel(None);
    let (_folder, kubelet_folder) = watch::channel(KubeletFolder::default());
    let inputs = Inputs {
        settings: Arc::new(settings),
        clock: Clock::start(),
        listed: lists,
        registered,
        kubelet,
        kubelet_folder,
    };
    let claims = async {
        sleep(Duration::from_secs(10)).await;
        // Two claims of other nodes in a row, and a release for which the kubelet must be asked.
        for (health, pause) in [("hhh-", 30), ("hh--", 1_000), ("hhh-", 1_000)] {
            list.send_replace(listed(health));
            sleep(Duration::from_millis(pause)).await;
        }
    };
    tokio::select! {
        ended = run(inputs, nodes, own) => panic!("{ended:?}"),
        () = claims => {}
    }
    let patches = std::mem::take(&mut fake.lock().unwrap().patches);
    let [(first, three), (second, two)] = &patches[..] else {
        panic!("{patches:?}");
    };
    assert_eq!((three, two), (&json!("3"), &json!("2")), "{patches:?}");
    let claimed = Duration::from_secs(10);
    assert!(*first <= claimed + BETWEEN_ROUNDS, "{patches:?}");
    assert!(
        *second <= *first + BETWEEN_PATCHES + BETWEEN_ROUNDS,
        "{patches:?}"
    );
}
