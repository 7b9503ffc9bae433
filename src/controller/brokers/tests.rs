use super::*;
use crate::{
    api::{
        configuration::{Allocation, Configuration},
        instance::{Instance, InstanceSpec, InstanceStatus, NodeHealth},
    },
    cluster::events,
    controller::{
        clock::WallClock,
        fixtures::settings,
        outcome::Written,
        parts::News,
        shared::Shared,
        world::{BrokerJob, Meta, NodeState},
    },
    model::names::Key,
};
use http_body_util::Full;
use hyper::{Request, Response, body::Bytes};
use k8s_openapi::jiff::Timestamp;
use kube::{Client, client::Body};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::sync::watch;

type Requests = Arc<Mutex<Vec<(String, Value)>>>;

/// An API server that answers every request by its method, and what was asked of it.
fn api_server(answers: &[(&str, u16, Value)]) -> (Client, Requests) {
    let requests = Requests::default();
    let noted = requests.clone();
    let answers: BTreeMap<_, _> = (answers.iter())
        .map(|(method, code, body)| ((*method).to_owned(), (*code, body.to_string())))
        .collect();
    let answers = Arc::new(answers);
    let server = tower::service_fn(move |request: Request<Body>| {
        let (noted, answers) = (noted.clone(), answers.clone());
        async move {
            let (parts, body) = request.into_parts();
            let line = format!("{} {}", parts.method, parts.uri.path());
            let body = body.collect_bytes().await.unwrap();
            let body = serde_json::from_slice(&body).unwrap_or_default();
            noted.lock().unwrap().push((line, body));
            let (code, body) = answers[parts.method.as_str()].clone();
            let response = Response::builder().status(code);
            Ok::<_, Infallible>(response.body(Full::new(Bytes::from(body))).unwrap())
        }
    });
    (Client::new(server, "default"), requests)
}

fn status(code: u16, message: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message, "reason": ""})
}

fn world(broker: Value) -> World {
    let spec = json!({"discoveryHandler": {"name": "debugEcho"}, "brokerSpec": broker});
    let mut configuration = Configuration::new("cam", serde_json::from_value(spec).unwrap());
    configuration.metadata.generation = Some(3);
    let mut instance = Instance::new(
        "cam-1",
        InstanceSpec {
            configuration_name: "cam".into(),
            capacity: 1,
            nodes: vec!["a".into()],
            ..InstanceSpec::default()
        },
    );
    instance.metadata.uid = Some("instance".to_owned());
    instance.status = Some(InstanceStatus {
        nodes: vec![NodeHealth {
            name: "a".into(),
            health: "Healthy".to_owned(),
            ..NodeHealth::default()
        }],
        ..InstanceStatus::default()
    });
    let node = NodeState {
        is_ready: true,
        ..NodeState::default()
    };
    World {
        configurations: BTreeMap::from([(Key::new("ns", "cam"), Arc::new(configuration))]),
        instances: BTreeMap::from([(Key::new("ns", "cam-1"), Arc::new(instance))]),
        nodes: Arc::new(BTreeMap::from([("a".into(), Arc::new(node))])),
        ..World::default()
    }
}

/// What a controller with an empty memory has done in a world.
struct Pass {
    is_failed: bool,
    waits: Waits,
    brokers: Brokers,
    created: Vec<Written>,
}

async fn pass(client: Client, world: World) -> Pass {
    let shared = Shared {
        events: events::events(client.clone(), "test", "test").0,
        client,
        clock: WallClock::System,
        settings: settings("me"),
        is_leader: watch::channel(true).1,
        offered: watch::Sender::default(),
        recalled: watch::Sender::default(),
        not_offered: watch::Sender::default(),
    };
    let mut brokers = Brokers::new("akri.sh".parse().unwrap());
    let (clock, instant) = (Timestamp::now(), Instant::now());
    let (now, mut notes) = (Now { clock, instant }, vec![]);
    let (actions, _) = brokers.plan(&Reported::new(&world), now, &mut notes);
    let (mut is_failed, mut created) = (false, vec![]);
    for action in actions {
        let written = perform(&shared, &action).await;
        is_failed |= matches!(written.outcome, Outcome::Failed(_));
        brokers.settle(&world, &action, &written.outcome, instant);
        created.push(written);
    }
    let (_, waits) = brokers.plan(&Reported::new(&world), now, &mut notes);
    Pass {
        is_failed,
        waits,
        brokers,
        created,
    }
}

fn lines(requests: &Requests) -> Vec<String> {
    let requests = requests.lock().unwrap();
    requests.iter().map(|(line, _)| line.clone()).collect()
}

const PODS: &str = "POST /api/v1/namespaces/ns/pods";
const JOBS: &str = "POST /apis/batch/v1/namespaces/ns/jobs";
const STATUS: &str = "PATCH /apis/akri.sh/v0/namespaces/ns/instances/cam-1/status";

#[tokio::test]
async fn a_pod_is_sent_as_its_user_wrote_it_and_known_as_it_was_created() {
    let spec = json!({"containers": [{"name": "a"}], "newerThanUs": {"kept": [1, null]}});
    let metadata =
        json!({"name": "cam-1-pod", "namespace": "ns", "uid": "new", "resourceVersion": "7"});
    let (client, requests) = api_server(&[("POST", 201, json!({"metadata": metadata}))]);
    let mut pass = pass(client, world(json!({"brokerPodSpec": spec}))).await;
    assert_eq!(lines(&requests), [PODS]);
    let sent = &requests.lock().unwrap()[0].1;
    assert_eq!(sent["kind"], "Pod");
    assert_eq!(sent["spec"]["newerThanUs"], spec["newerThanUs"]);
    assert_eq!(sent["metadata"]["ownerReferences"][0]["uid"], "instance");
    assert!(!pass.is_failed);
    let Some(News::Pods(created)) = pass.created.remove(0).objects.pop() else {
        panic!("no Pod was returned");
    };
    assert_eq!(created[0].key, ObjectKey::new("ns", "cam-1-pod"));
    assert_eq!(created[0].version, 7);
}

#[tokio::test]
async fn a_name_that_is_taken_is_looked_at_and_a_pod_of_ours_is_known_from_then_on() {
    let spec = || world(json!({"brokerPodSpec": {"containers": []}}));
    let there = |labels: Value| {
        let metadata = json!({"name": "cam-1-pod", "namespace": "ns", "uid": "x", "resourceVersion": "7", "labels": labels});
        json!({"metadata": {}, "items": [{"metadata": metadata}]})
    };
    for (labels, expected) in [
        (json!({}), Outcome::Taken),
        (json!({"akri.sh/configuration": "cam"}), Outcome::Conflict),
    ] {
        let list = ("GET", 200, there(labels));
        let (client, requests) = api_server(&[("POST", 409, status(409, "there")), list]);
        let mut pass = pass(client, spec()).await;
        assert_eq!(lines(&requests), [PODS, "GET /api/v1/namespaces/ns/pods"]);
        let created = pass.created.remove(0);
        assert_eq!(created.outcome, expected);
        assert_eq!(!created.objects.is_empty(), expected == Outcome::Conflict);
    }
    let (client, _) = api_server(&[
        ("POST", 409, status(409, "there")),
        ("GET", 200, json!({"metadata": {}, "items": []})),
    ]);
    let created = pass(client, spec()).await.created.remove(0);
    assert_eq!(created.outcome, Outcome::Conflict, "it is gone again");
}

#[tokio::test]
async fn a_template_of_somebody_else_stays_and_is_not_the_fault_of_the_spec() {
    const TEMPLATES: &str = "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaimtemplates";
    let mut world = world(json!({"brokerPodSpec": {"containers": []}}));
    for configuration in world.configurations.values_mut() {
        Arc::make_mut(configuration).spec.allocation = Allocation::Dra;
    }
    let owner = |uid: &str| json!([{"apiVersion": "akri.sh/v0", "kind": "Instance", "name": "cam-1", "uid": uid}]);
    let refused = Outcome::Refused {
        code: 409,
        message: "the ResourceClaimTemplate cam-1-broker is there already and is not of this Instance: delete or rename it".to_owned(),
    };
    for (owners, expected) in [
        (json!([]), Some(refused)),
        (owner("an earlier one"), Some(Outcome::Conflict)),
        (owner("instance"), None),
    ] {
        let metadata = json!({"name": "cam-1-broker", "ownerReferences": owners});
        let there = ("GET", 200, json!({ "metadata": metadata }));
        let (client, requests) = api_server(&[("POST", 409, status(409, "there")), there]);
        let created = pass(client, world.clone()).await.created.remove(0);
        let mut asked = lines(&requests).into_iter();
        assert_eq!(asked.next(), Some(format!("POST {TEMPLATES}")));
        assert_eq!(asked.next(), Some(format!("GET {TEMPLATES}/cam-1-broker")));
        match expected {
            Some(expected) => assert_eq!((created.outcome, asked.next()), (expected, None)),
            None => assert_eq!(asked.next().as_deref(), Some(PODS)),
        }
    }
}

#[tokio::test]
async fn an_api_server_that_is_busy_is_tried_again_and_one_that_refuses_later() {
    let spec = || world(json!({"brokerPodSpec": {"containers": []}}));
    let (client, _) = api_server(&[("POST", 503, status(503, "busy"))]);
    assert!(pass(client, spec()).await.is_failed);
    let (client, _) = api_server(&[("POST", 422, status(422, "no image"))]);
    let refused = pass(client, spec()).await;
    assert!(!refused.is_failed);
    assert!(refused.waits.first().unwrap() <= Duration::from_secs(1));
}

#[tokio::test]
async fn the_generation_is_remembered_once_the_job_is_created() {
    let spec = || world(json!({"brokerJobSpec": {"template": {"spec": {"containers": []}}}}));
    let patched = json!({"metadata": {"name": "cam-1"}, "spec": {"configurationName": "cam"}});
    let created = ("POST", 201, json!({"metadata": {}}));
    let (client, requests) = api_server(&[("PATCH", 200, patched), created]);
    pass(client, spec()).await;
    assert_eq!(lines(&requests), [JOBS, STATUS]);
    let written = json!({"metadata": {"uid": "instance"}, "status": {"brokerGeneration": 3}});
    assert_eq!(requests.lock().unwrap()[1].1, written);
    for (code, why) in [(403, "quota"), (409, "it may be somebody else's")] {
        let (client, requests) = api_server(&[("POST", code, status(code, why))]);
        pass(client, spec()).await;
        assert_eq!(lines(&requests), [JOBS]);
    }
}

#[tokio::test]
async fn the_job_of_the_old_spec_stays_while_the_new_one_is_refused_and_the_field_is_reported() {
    let spec = json!({"brokerJobSpec": {"template": {"spec": {"containers": []}}}});
    let mut world = world(spec);
    let old = BrokerJob {
        meta: Meta {
            uid: "old".to_owned(),
            owner: Some("instance".to_owned()),
            ..Meta::default()
        },
        failure: None,
        is_complete: false,
    };
    let old_key = ObjectKey::new("ns", "cam-1-2-job");
    world.jobs.insert(old_key, Arc::new(old));
    let why = "Job.batch \"cam-1-3-job\" is invalid: spec.template.spec.containers: Required value";
    let (client, requests) = api_server(&[("POST", 422, status(422, why))]);
    let pass = pass(client, world).await;
    assert!(!pass.is_failed);
    assert_eq!(lines(&requests), [JOBS]);
    let problem = pass.brokers.reports[&Key::new("ns", "cam")].problem();
    assert_eq!(problem.reason, "BrokerSpecInvalid");
    assert!(problem.message.contains("spec.template.spec.containers"));
}
