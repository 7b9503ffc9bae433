//! Measures the turns of the controller for one changed Instance, and for a changed Node, after which each part of the
//! cluster has its turn: from the object in a watch to the end of the plans.
#![allow(
    clippy::print_stdout,
    reason = "a benchmark prints what it has measured"
)]
use petiole::controller::fuzzing::Controller;
use serde_json::{Value, json};
use std::{collections::BTreeMap, time::Duration};
use tokio::time::Instant;

const NODES: usize = 100;
/// The Instances of one Configuration.
const INSTANCES: usize = 50;
const WHOLE_ROUNDS: usize = 3;
const PART_ROUNDS: usize = 15;

fn node_name(n: usize) -> String {
    format!("node-{:03}", n % NODES)
}

fn configuration_name(n: usize) -> String {
    format!("camera-{:04}", n / INSTANCES)
}

fn instance_name(n: usize) -> String {
    format!("{}-{n:06x}", configuration_name(n))
}

fn node(n: usize, zone: usize) -> Value {
    let ready =
        json!({ "type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z" });
    let metadata = json!({ "name": node_name(n), "uid": node_name(n), "labels": { "zone": zone.to_string() } });
    json!({ "kind": "Node", "metadata": metadata, "status": { "conditions": [ready] } })
}

fn configuration(n: usize) -> Value {
    let name = configuration_name(n);
    json!({
        "apiVersion": "akri.sh/v0", "kind": "Configuration",
        "metadata": { "name": name, "namespace": "default", "uid": format!("uid-{name}"), "generation": 1 },
        "spec": {
            "discoveryHandler": { "name": "debugEcho" },
            "brokerSpec": { "brokerPodSpec": { "containers": [{ "name": "a" }] } },
            "maxInstances": 1000,
        },
    })
}

fn instance(n: usize, round: usize) -> Value {
    let (name, node) = (instance_name(n), node_name(n));
    let metadata = json!({
        "name": name, "namespace": "default", "uid": format!("uid-{name}"),
        "labels": { format!("node.akri.sh/{node}"): "" },
        "annotations": { "akri.sh/device-id": n.to_string(), "round": round.to_string() },
    });
    let spec = json!({
        "configurationName": configuration_name(n), "cdiName": format!("akri.sh/camera={n:06x}"),
        "capacity": 1, "brokerProperties": { "URL": format!("rtsp://{n}/") }, "shared": true,
        "nodes": [node], "deviceUsage": { format!("{name}-0"): node },
    });
    json!({ "apiVersion": "akri.sh/v0", "kind": "Instance", "metadata": metadata, "spec": spec })
}

fn broker(n: usize) -> Value {
    let (name, node) = (instance_name(n), node_name(n));
    let owner = json!({
        "apiVersion": "akri.sh/v0", "kind": "Instance", "name": name, "uid": format!("uid-{name}"),
        "controller": true,
    });
    let labels = json!({
        "akri.sh/configuration": configuration_name(n), "akri.sh/instance": name,
        "akri.sh/target-node": node,
    });
    let metadata = json!({
        "name": format!("{node}-{name}-pod"), "namespace": "default", "uid": format!("pod-{n}"),
        "labels": labels, "ownerReferences": [owner],
    });
    let ready = json!({ "type": "Ready", "status": "True" });
    json!({
        "kind": "Pod", "metadata": metadata, "spec": { "nodeName": node },
        "status": { "phase": "Running", "conditions": [ready] },
    })
}

/// Returns the objects of all nodes.
fn reports(instances: usize) -> Vec<Value> {
    let mut views: BTreeMap<(usize, usize), Vec<Value>> = BTreeMap::new();
    for n in 0..instances {
        let of = (n % NODES, n / INSTANCES * INSTANCES);
        let device = json!({ "id": n.to_string() });
        views.entry(of).or_default().push(device);
    }
    let mut objects: BTreeMap<usize, Vec<Value>> = BTreeMap::new();
    for ((node, of), devices) in views {
        let view = json!({
            "namespace": "default", "name": configuration_name(of), "complete": true, "devices": devices,
        });
        objects.entry(node).or_default().push(view);
    }
    let object = |(node, views): (usize, Vec<Value>)| {
        json!({
            "apiVersion": "akri.sh/v0", "kind": "NodeDevices",
            "metadata": { "name": node_name(node), "uid": node_name(node) },
            "spec": { "configurations": views },
        })
    };
    objects.into_iter().map(object).collect()
}

/// Returns a controller that has nothing to do, in a cluster in which each Instance has a broker.
fn controller(instances: usize) -> anyhow::Result<Controller> {
    let mut controller = Controller::new()?;
    for n in 0..NODES {
        controller.show(node(n, 0))?;
    }
    for object in reports(instances) {
        controller.show(object)?;
    }
    for n in 0..instances {
        if n % INSTANCES == 0 {
            controller.show(configuration(n))?;
        }
        controller.show(instance(n, 0))?;
        controller.show(broker(n))?;
    }
    while controller.run()? > 0 {}
    Ok(controller)
}

fn median(
    rounds: usize,
    mut round: impl FnMut(usize) -> anyhow::Result<Duration>,
) -> anyhow::Result<f64> {
    let mut times = vec![];
    for n in 1..=rounds {
        times.push(round(n)?);
    }
    times.sort();
    Ok(times[rounds / 2].as_secs_f64() * 1000.0)
}

/// Returns how long it takes until everything is planned after an object was shown.
fn timed(controller: &mut Controller, object: Value) -> anyhow::Result<Duration> {
    let began = Instant::now();
    controller.show(object)?;
    let sent = controller.run()?;
    let took = began.elapsed();
    anyhow::ensure!(sent == 0, "something is left to do");
    Ok(took)
}

fn main() -> anyhow::Result<()> {
    println!("| Instances | the whole cluster | one part |");
    println!("|---|---|---|");
    for instances in [1_000, 10_000, 50_000] {
        let mut controller = controller(instances)?;
        let whole = median(WHOLE_ROUNDS, |round| timed(&mut controller, node(0, round)))?;
        let part = median(PART_ROUNDS, |round| {
            timed(&mut controller, instance(round * 7919 % instances, round))
        })?;
        println!("| {instances} | {whole:.1} ms | {part:.2} ms |");
    }
    Ok(())
}
