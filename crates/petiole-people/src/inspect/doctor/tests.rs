use super::*;
use k8s_openapi::api::core::v1::Node;
use petiole_model::model::names::ObjectKey;
use serde_json::{Value, json};

mod counted;

fn own(component: &str, image: &str, node: &str) -> (ObjectKey, Pod) {
    let pod = json!({
        "metadata": {"labels": {
            "app.kubernetes.io/component": component, "app.kubernetes.io/version": "1.2.3",
            "helm.sh/chart": "petiole-1.2.3", // as of an earlier version of the chart
        }},
        "spec": {"nodeName": node, "containers": [{"name": component, "image": image}]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    });
    let key = ObjectKey::new("petiole", format!("{component}-{node}"));
    (key, serde_json::from_value(pod).unwrap())
}

fn node_devices(problems: &Value) -> petiole_model::api::node_devices::NodeDevicesSpec {
    let view = json!({"namespace": "default", "name": "cam", "problems": problems});
    serde_json::from_value(json!({"configurations": [view]})).unwrap()
}

fn node(ready: &str) -> Node {
    let status = json!({"conditions": [{"type": "Ready", "status": ready}]});
    serde_json::from_value(json!({"metadata": {}, "status": status})).unwrap()
}

fn condition(type_: &str, status: &str, reason: &str) -> Value {
    json!({"type": type_, "status": status, "reason": reason, "message": "", "lastTransitionTime": ""})
}

fn with_configuration(facts: &mut Facts) {
    let configuration = json!({
        "metadata": {"namespace": "default", "name": "cam"},
        "spec": {"discoveryHandler": {"name": "zeroconf"}},
        "status": {"conditions": [condition("Ready", "True", "Working")]},
    });
    let key = petiole_model::model::names::Key::new("default", "cam".to_owned());
    let configuration = serde_json::from_value(configuration).unwrap();
    facts.snapshot.configurations.insert(key, configuration);
}

/// An installation on one node without a fault.
fn well() -> Facts {
    let policies = [
        "agent-instances",
        "agent-reports",
        "controller",
        "controller-configurations",
        "controller-evictions",
        "node-status",
    ];
    let policies = policies.map(|policy| format!("leaf-{policy}"));
    let mut facts = Facts {
        daemon_sets: Some(1),
        deployments: Some(1),
        policies: Some(policies.into()),
        stale: Some(vec![]),
        version: "1.2.3".to_owned(),
        ..Facts::default()
    };
    let snapshot = &mut facts.snapshot;
    snapshot.pods.extend([
        own("agent", "i:1", "node-1"),
        own("controller", "i:1", "node-1"),
    ]);
    snapshot.nodes.insert("node-1".to_owned(), node("True"));
    let devices = node_devices(&json!([]));
    snapshot.node_devices.insert("node-1".to_owned(), devices);
    facts
}

/// Returns the lines that are not ok.
fn troubles(facts: &Facts) -> Vec<(Level, String)> {
    let checks = checks(facts).into_iter();
    let troubles = checks.filter(|check| check.level != Level::Ok);
    troubles.map(|check| (check.level, check.text)).collect()
}

/// Asserts that there is one trouble, of this level, which says this.
fn one(change: impl FnOnce(&mut Facts), level: Level, says: &str) {
    let mut facts = well();
    change(&mut facts);
    let troubles = troubles(&facts);
    let [(its, text)] = troubles.as_slice() else {
        panic!("{says}: {troubles:?}");
    };
    assert!(*its == level && text.contains(says), "{says}: {troubles:?}");
}

#[test]
fn an_installation_without_a_fault_is_ok() {
    assert_eq!(troubles(&well()), []);
}

#[test]
fn an_agent_without_a_configuration_for_its_node_needs_no_report() {
    let mut facts = well();
    facts.snapshot.node_devices.clear();
    assert_eq!(troubles(&facts), []);
    let said = checks(&facts);
    let is_said = |check: &Check| check.text.contains("node node-1: agent ready");
    assert!(said.iter().any(is_said), "{said:?}");
    with_configuration(&mut facts);
    for configuration in facts.snapshot.configurations.values_mut() {
        configuration.spec.node_selector = [("zone".to_owned(), "a".to_owned())].into();
    }
    assert_eq!(troubles(&facts), []);
}

#[test]
fn cordoned_nodes_are_one_line_and_no_fault() {
    let mut facts = well();
    for name in ["node-2", "node-3"] {
        let mut node = node("True");
        node.spec.get_or_insert_default().unschedulable = Some(true);
        facts.snapshot.nodes.insert(name.to_owned(), node);
        (facts.snapshot.pods).extend([own("agent", "i:1", name)]);
    }
    assert_eq!(troubles(&facts), []);
    let said = "nodes node-2, node-3: agent ready; cordoned, so no new Pod gets its devices until kubectl uncordon node-2";
    assert!(
        checks(&facts).iter().any(|check| check.text == said),
        "{facts:?}"
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "it is a table")]
fn each_fault_is_one_line_that_says_what_to_do() {
    let (warn, fail) = (Level::Warn, Level::Fail);
    one(
        |f| f.checked = vec![Err("lacks a field".to_owned())],
        fail,
        "lacks a field",
    );
    one(|f| f.daemon_sets = Some(0), fail, "no DaemonSet of agents");
    one(
        |f| f.deployments = Some(0),
        fail,
        "no Deployment of controllers",
    );
    one(
        |f| f.daemon_sets = Some(2),
        fail,
        "several DaemonSets of agents",
    );
    one(
        |f| f.version = "1.3.0".to_owned(),
        warn,
        "is version 1.3.0, and the installation is 1.2.3",
    );
    one(
        |f| f.snapshot.pods.extend([own("controller", "i:2", "node-2")]),
        warn,
        "different images (i:1, i:2)",
    );
    for (phase, next) in [("Pending", "describe pod"), ("Running", "logs")] {
        one(
            |f| {
                let (_, agent) = f.snapshot.pods.first_entry().unwrap().remove_entry();
                let mut agent = serde_json::to_value(agent).unwrap();
                agent["status"] = json!({"phase": phase});
                let agent = serde_json::from_value(agent).unwrap();
                let key = ObjectKey::new("petiole", "agent-node-1");
                f.snapshot.pods.insert(key, agent);
            },
            fail,
            &format!("kubectl -n petiole {next} agent-node-1"),
        );
    }
    one(
        |f| {
            f.snapshot.node_devices.clear();
            with_configuration(f);
        },
        fail,
        "has written no NodeDevices: kubectl",
    );
    one(
        |f| {
            drop(
                f.snapshot
                    .nodes
                    .insert("node-1".to_owned(), node("Unknown")),
            )
        },
        fail,
        "node node-1: not ready, so its devices cannot be used: kubectl describe node node-1",
    );
    one(
        |f| {
            f.snapshot.node_devices.clear();
            with_configuration(f);
            let (key, mut agent) = own("agent", "i:1", "node-1");
            let variables = json!([{"name": "PETIOLE_WATCH_NAMESPACES", "value": "cams,doors"}]);
            let containers = &mut agent.spec.as_mut().unwrap().containers;
            containers[0].env = serde_json::from_value(variables).unwrap();
            f.snapshot.pods.insert(key, agent);
        },
        warn,
        "no agent reads (default/cam): agents read cams,doors",
    );
    one(
        |f| drop(f.snapshot.nodes.insert("node-2".to_owned(), node("True"))),
        warn,
        "node node-2: no agent",
    );
    one(|f| f.policies = None, warn, "cannot be listed");
    one(
        |f| f.policies = Some(["leaf-controller".to_owned()].into()),
        warn,
        "missing (agent-instances, agent-reports, controller-configurations, controller-evictions, node-status)",
    );
    one(
        |f| f.stale = Some(vec![("node-9".into(), "akri.sh/a".parse().unwrap())]),
        warn,
        "petiole tidy --wait",
    );
    one(
        |f| {
            f.stale = Some(vec![("node-9".into(), "squat.ai/a".parse().unwrap())]);
            let environment =
                json!([{"name": "PETIOLE_RESOURCE_PREFIXES", "value": "akri.sh,squat.ai"}]);
            let (key, agent) = own("agent", "i:1", "node-1");
            let mut agent = serde_json::to_value(&agent).unwrap();
            agent["spec"]["containers"][0]["env"] = environment;
            let agent = serde_json::from_value(agent).unwrap();
            f.snapshot.pods.insert(key, agent);
            f.snapshot.note_prefixes();
        },
        warn,
        "petiole tidy --wait --resource-prefixes akri.sh,squat.ai",
    );
    one(
        |f| {
            f.snapshot.nodes.insert("node-2".to_owned(), node("True"));
            (f.snapshot.pods).extend([own("agent", "i:1", "node-2")]);
            let instance = json!({"metadata": {"name": "cam-0a1b2c"}, "spec": {
                "cdiName": "", "configurationName": "cam", "shared": true, "capacity": 1,
                "nodes": ["node-1", "node-2"], "deviceUsage": {"cam-0a1b2c-0": "node-2"},
            }});
            let key = petiole_model::model::names::Key::new("default", "cam-0a1b2c".to_owned());
            let instance = serde_json::from_value(instance).unwrap();
            f.snapshot.instances.insert(key, instance);
            let pod = json!({"spec": {"nodeName": "node-1", "containers": []}, "status": {"containerStatuses": [{
                "name": "main", "ready": true, "restartCount": 0, "image": "", "imageID": "",
                "allocatedResourcesStatus": [{
                    "name": "akri.sh/cam-0a1b2c", "resources": [{"resourceID": "cam-0a1b2c-0"}],
                }],
            }]}});
            let key = ObjectKey::new("default", "web");
            f.snapshot
                .pods
                .insert(key, serde_json::from_value(pod).unwrap());
        },
        warn,
        "1 slot is used by two Pods, on node-2 and node-1: petiole why -n default instance/cam-0a1b2c (cam-0a1b2c-0)",
    );
    one(
        |f| f.snapshot.unread = vec!["cannot list nodes".to_owned()],
        warn,
        "cannot list nodes",
    );
    one(
        |f| {
            f.rollout = Rollout {
                desired: 2,
                updated: 1,
            }
        },
        warn,
        "is on 1 of 2 nodes: see kubectl rollout status",
    );
}

#[test]
fn entries_that_an_agent_is_about_to_remove_are_no_fault() {
    let mut facts = well();
    facts.stale = Some(vec![("node-1".into(), "akri.sh/a".parse().unwrap())]);
    assert_eq!(troubles(&facts), []);
    let said =
        "1 capacity entry without a device on node-1 (akri.sh/a): the agent there removes them";
    let checks = checks(&facts);
    assert!(
        checks.iter().any(|check| check.text.starts_with(said)),
        "{checks:?}"
    );
}

#[test]
fn an_update_that_a_dead_node_holds_up_says_so() {
    let mut facts = well();
    facts
        .snapshot
        .nodes
        .insert("node-2".to_owned(), node("Unknown"));
    facts.rollout = Rollout {
        desired: 2,
        updated: 0,
    };
    let said = troubles(&facts);
    let held_up = "the wanted version of the agents is on 0 of 2 nodes: nodes that are not ready can hold it up (node-2)";
    assert!(
        said.iter().any(|line| line.1.starts_with(held_up)),
        "{said:?}"
    );
}

#[test]
fn a_right_that_is_missing_is_named_with_its_place_and_its_command() {
    let lists = |granted: Granted| Right {
        verb: "list",
        resource: "instances.akri.sh",
        place: " in all namespaces".to_owned(),
        command: "devices",
        granted,
    };
    let says = |granted: Granted, text: &str| {
        one(|f| f.rights = vec![lists(granted)], Level::Warn, text);
    };
    says(
        Granted::Nothing,
        "you may not list instances.akri.sh in all namespaces, which `petiole devices` needs",
    );
    says(
        Granted::In("shop".to_owned()),
        "you may list instances.akri.sh in the namespace shop only, to which `petiole devices` is limited",
    );
    let watches = Right {
        verb: "watch",
        command: "top",
        ..lists(Granted::Nothing)
    };
    one(
        |f| f.rights = vec![watches],
        Level::Warn,
        "you may not watch instances.akri.sh in all namespaces, so `petiole top` looks every 10 s",
    );
    let mut facts = well();
    facts.rights = vec![lists(Granted::Whole)];
    assert_eq!(troubles(&facts), []);
}

#[test]
fn each_kind_is_counted_for_itself() {
    let mut facts = well();
    (facts.daemon_sets, facts.deployments) = (Some(2), Some(0));
    let troubles = troubles(&facts);
    let [(Level::Fail, several), (Level::Fail, none)] = troubles.as_slice() else {
        panic!("{troubles:?}");
    };
    assert!(several.starts_with("there are several DaemonSets of agents"));
    assert!(none.starts_with("there is no Deployment of controllers"));
}

#[test]
fn nothing_is_said_of_what_was_not_read() {
    let mut facts = well();
    facts.stale = None;
    assert!(
        checks(&facts)
            .iter()
            .all(|check| !check.text.contains("capacity entries"))
    );
    let mut facts = well();
    facts.snapshot.pods.clear();
    facts.snapshot.hidden.pods = true;
    assert_eq!(troubles(&facts), []);
    let mut facts = well();
    facts.snapshot.node_devices.clear();
    facts.snapshot.hidden.node_devices = true;
    assert_eq!(troubles(&facts), []);
}

#[test]
fn an_agent_that_is_not_ready_fails() {
    let not_ready = |facts: &mut Facts| {
        let agent = facts.snapshot.pods.values_mut().next().unwrap();
        agent.status = None;
    };
    one(
        not_ready,
        Level::Fail,
        "kubectl -n petiole logs agent-node-1",
    );
}

#[test]
fn devices_of_namespaces_that_cannot_be_read_are_not_counted_as_all() {
    let mut facts = well();
    facts.snapshot.hidden.objects = true;
    let says =
        |facts: &Facts, text: &str| checks(facts).iter().any(|check| check.text.ends_with(text));
    assert!(says(
        &facts,
        "0 Configurations that you may read: none has a problem; 0 devices offered"
    ));
}
