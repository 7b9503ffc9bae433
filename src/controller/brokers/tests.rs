use super::*;
use crate::{
    api::{
        configuration::Configuration,
        instance::{Instance, InstanceSpec, InstanceStatus, NodeHealth},
    },
    cluster::events,
    controller::{
        Settings,
        world::{BrokerJob, Meta, NodeState},
    },
    model::{names::Key, variables::Variables},
};
use http_body_util::Full;
use hyper::{Request, Response, body::Bytes};
use kube::{Client, client::Body};
use std::{collections::BTreeMap, convert::Infallible, sync::Mutex, time::Duration};
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
        nodes: BTreeMap::from([("a".into(), Arc::new(node))]),
        ..World::default()
    }
}

/// Runs one pass of a replica over this world, with an empty memory.
async fn one_pass(client: Client, world: World, leads: bool) -> (Pass, Memory) {
    let (pass, memory, _) = one_pass_reported(client, world, leads).await;
    (pass, memory)
}

async fn one_pass_reported(client: Client, world: World, leads: bool) -> (Pass, Memory, Reports) {
    let shared = Shared {
        events: events::events(client.clone(), "test", "test").0,
        client,
        settings: Settings {
            identity: "me".to_owned(),
            namespace: "petiole".to_owned(),
            watch_namespaces: vec![],
            resource_prefix: "akri.sh".parse().unwrap(),
            variables: Variables::default(),
            http_address: None,
        },
        world: watch::channel(None).1,
        is_leader: watch::channel(leads).1,
    };
    let mut state = State::new();
    let (pass, reports) = pass(&shared, &mut state, &world, &CancellationToken::new()).await;
    (pass, state.memory, reports)
}

fn lines(requests: &Requests) -> Vec<String> {
    let requests = requests.lock().unwrap();
    requests.iter().map(|(line, _)| line.clone()).collect()
}

const PODS: &str = "POST /api/v1/namespaces/ns/pods";
const JOBS: &str = "POST /apis/batch/v1/namespaces/ns/jobs";
const STATUS: &str = "PATCH /apis/akri.sh/v0/namespaces/ns/instances/cam-1/status";

#[tokio::test]
async fn a_pod_is_sent_as_its_user_wrote_it() {
    let spec = json!({"containers": [{"name": "a"}], "newerThanUs": {"kept": [1, null]}});
    let created = json!({"metadata": {"name": "cam-1-pod", "uid": "new"}});
    let (client, requests) = api_server(&[("POST", 201, created)]);
    let (pass, memory) = one_pass(client, world(json!({"brokerPodSpec": spec})), true).await;
    assert_eq!(lines(&requests), [PODS]);
    let sent = &requests.lock().unwrap()[0].1;
    assert_eq!(sent["kind"], "Pod");
    assert_eq!(sent["spec"]["newerThanUs"], spec["newerThanUs"]);
    assert_eq!(sent["metadata"]["ownerReferences"][0]["uid"], "instance");
    assert!(pass.failed.is_empty());
    assert!(memory.is_created(&ObjectKey::new("ns", "cam-1-pod"), "instance"));
}

#[tokio::test]
async fn a_replica_that_does_not_lead_sends_nothing() {
    let (client, requests) = api_server(&[]);
    let spec = json!({"brokerPodSpec": {"containers": []}});
    one_pass(client, world(spec), false).await;
    assert_eq!(lines(&requests), [""; 0]);
}

#[tokio::test]
async fn an_api_server_that_is_busy_is_tried_again_and_one_that_refuses_later() {
    let spec = || world(json!({"brokerPodSpec": {"containers": []}}));
    let (client, _) = api_server(&[("POST", 503, status(503, "busy"))]);
    let (busy, memory) = one_pass(client, spec(), true).await;
    assert!(!busy.failed.is_empty());
    let pod = ObjectKey::new("ns", "cam-1-pod");
    assert!(!memory.is_created(&pod, "instance"));
    let (client, _) = api_server(&[("POST", 422, status(422, "no image"))]);
    let (refused, _) = one_pass(client, spec(), true).await;
    assert!(refused.failed.is_empty());
    assert!(refused.waits.first().unwrap() <= Duration::from_secs(1));
}

#[tokio::test]
async fn the_generation_is_remembered_once_the_job_is_created() {
    let spec = || world(json!({"brokerJobSpec": {"template": {"spec": {"containers": []}}}}));
    let patched = || ("PATCH", 200, json!({"metadata": {"name": "cam-1"}}));
    for answer in [
        ("POST", 201, json!({"metadata": {}})),
        ("POST", 409, status(409, "there")),
    ] {
        let (client, requests) = api_server(&[patched(), answer]);
        one_pass(client, spec(), true).await;
        assert_eq!(lines(&requests), [JOBS, STATUS]);
        let written = json!({"metadata": {"uid": "instance"}, "status": {"brokerGeneration": 3}});
        assert_eq!(requests.lock().unwrap()[1].1, written);
    }
    let (client, requests) = api_server(&[("POST", 403, status(403, "quota"))]);
    one_pass(client, spec(), true).await;
    assert_eq!(lines(&requests), [JOBS]);
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
    };
    let old_key = ObjectKey::new("ns", "cam-1-2-job");
    world.jobs.insert(old_key, Arc::new(old));
    let why = "Job.batch \"cam-1-3-job\" is invalid: spec.template.spec.containers: Required value";
    let (client, requests) = api_server(&[("POST", 422, status(422, why))]);
    let (pass, _, reports) = one_pass_reported(client, world, true).await;
    assert!(pass.failed.is_empty());
    assert_eq!(lines(&requests), [JOBS]);
    let problem = reports[&Key::new("ns", "cam")].problem();
    assert_eq!(problem.reason, "BrokerSpecInvalid");
    assert!(problem.message.contains("spec.template.spec.containers"));
}
