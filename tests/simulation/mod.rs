//! Simulates a whole cluster in one thread, and checks its promises in many histories.
//!
//! ```text
//! faults.rs ─┬> devices.rs ─> agent.rs ─────────────── http.rs ─┐
//! users.rs   │                  │ records.rs                     │
//!            └> node.rs ──────> kubelet.rs, pods.rs ─────────────┼─> network.rs ──> api_server.rs ──> invariants.rs
//!                               controller.rs ──────── http.rs ──┘                        │
//!                                          control_plane.rs, scheduler.rs ────────────────┘
//! ```
//! Controllers and agents are the product's, with a real client, under tokio's paused time. Each file says in its header what it
//! leaves out of them, or of what it is a model. Every delay, fault and order is random from a seed, so a seed that fails will
//! fail again.
//!
//! - `cargo test --lib simulation` runs a few dozen seeds.
//! - `just simulate --seeds N` runs N of them, and `just simulate --first S --seeds 1` the seed S alone.
//!
//! A seed that fails prints the broken promise and the history.
#![allow(clippy::unwrap_used, reason = "a simulation fails by panicking")]
#![expect(
    clippy::print_stdout,
    clippy::too_many_lines,
    reason = "a test prints what it has found, and lists its steps one after another"
)]
mod agent;
mod api_server;
mod brokers;
mod claims;
mod control_plane;
mod controller;
mod devices;
mod failover;
mod faults;
mod history;
mod http;
mod invariants;
mod kubelet;
mod machine;
mod network;
mod node;
mod objects;
mod patches;
mod plain;
mod pods;
mod records;
mod runs;
mod scheduler;
mod users;

use crate::{
    api::configuration::Configuration,
    controller::world::NodeState,
    model::{device::DeviceId, instance_name::InstanceName},
};
use api_server::ApiServer;
use controller::Controller;
use devices::{CONFIGURATIONS, Devices, Thing};
use history::History;
use machine::Machine;
use network::Weather;
use node::Node;
use serde_json::{Value, json};
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
};
use tokio::{sync::watch, task::coop::unconstrained};

/// The time in which everything comes to rest: longer than any grace period and any back-off.
const TO_REST: u64 = 1_000_000;
/// The changes of a cluster at rest.
const TOUCHES: u64 = 6;
/// The time for which the cluster is watched beyond the limit of each of them.
const WATCHED: u64 = 20_000;
/// The interval at which it is looked at.
const LOOKS: u64 = 500;
/// The interval at which rest is checked.
const BETWEEN_LOOKS: u64 = 65_000;

struct World {
    machine: Machine,
    history: History,
    server: RefCell<ApiServer>,
    /// True if the API server answers.
    is_up: watch::Sender<bool>,
    weather: Cell<Weather>,
    /// True if the next deletion of an Instance is late, and its device returns meanwhile.
    returns_late: Cell<bool>,
    /// The number of writes that the server refuses next.
    refusals: Cell<u64>,
    /// The time at which requests were last made slow or lost.
    stormy: Cell<u64>,
    nodes: Vec<Node>,
    devices: Devices,
    /// The name of each device's Instance on each node, which takes long to compute.
    instance_names: RefCell<BTreeMap<(&'static str, String, usize), String>>,
    /// True if the API server can list objects as the first events of a watch.
    streams_lists: bool,
    /// True if users let the scheduler give out the devices of Configurations, and take that back.
    has_claims: bool,
    /// The time for which an Instance stays without its device, in ms.
    grace: u64,
    control_link: watch::Sender<bool>,
    controllers: RefCell<Vec<Rc<Controller>>>,
    ledger: RefCell<invariants::Ledger>,
}

impl World {
    /// Breaks the cycle of references that keeps this world.
    fn end(&self) {
        self.machine.end();
        self.controllers.take();
        for node in &self.nodes {
            node.agent.take();
        }
    }

    fn new(seed: u64, keeps_history: bool) -> Rc<Self> {
        // Back-offs use the thread's generator.
        fastrand::seed(seed);
        let machine = Machine::new(seed);
        let capacity = machine.between(1, 2);
        let has_brokers = machine.chance(25);
        let streams_lists = machine.chance(75);
        let has_claims = machine.chance(50);
        let grace = if machine.chance(25) { 0 } else { 60_000 };
        let mut server = ApiServer::default();
        for (name, _) in CONFIGURATIONS {
            let spec = json!({
                "discoveryHandler": { "name": name }, "capacity": capacity, "gracePeriodSeconds": grace / 1_000,
            });
            server.put_configuration(configuration(name, spec, has_brokers));
        }
        let world = Rc::new(Self {
            machine,
            history: History::new(keeps_history),
            server: RefCell::new(server),
            is_up: watch::Sender::new(true),
            weather: Cell::default(),
            returns_late: Cell::default(),
            refusals: Cell::default(),
            stormy: Cell::default(),
            nodes: ["node-1", "node-2", "node-3"].map(Node::new).into(),
            devices: Devices::default(),
            instance_names: RefCell::default(),
            streams_lists,
            has_claims,
            grace,
            control_link: watch::Sender::new(true),
            controllers: RefCell::default(),
            ledger: RefCell::default(),
        });
        world.begin();
        world
    }

    fn begin(self: &Rc<Self>) {
        faults::furnish(self);
        for _ in 0..self.machine.between(0, 2) {
            faults::switch_allocation(self);
        }
        for (at, node) in self.nodes.iter().enumerate() {
            node.start_kubelet(self, at);
            node.start_agent(self, at);
            control_plane::register_node(self, &node.name);
        }
        let controller = Controller::start(self, "controller-0");
        self.controllers.borrow_mut().push(controller);
        let scheduling = scheduler::schedule(self.clone());
        self.machine.spawn(self.machine.process(), scheduling);
    }

    fn note(&self, line: impl FnOnce() -> String) {
        self.history.note(self.machine.now(), line);
    }

    fn broke(&self, promise: String) {
        self.history.broke(self.machine.now(), promise);
    }

    fn node(&self, name: &str) -> &Node {
        let node = self.nodes.iter().find(|node| node.name == name);
        node.expect("the world has no other nodes")
    }

    fn some_node(&self) -> usize {
        let last = u64::try_from(self.nodes.len() - 1).unwrap();
        usize::try_from(self.machine.between(0, last)).unwrap()
    }

    fn node_state(&self, name: &str) -> Option<NodeState> {
        let server = self.server.borrow();
        let node = server.nodes.objects.get(&api_server::key(name))?;
        Some(node.state.clone())
    }

    /// Returns whether the server refuses this write, because it is busy.
    fn refuses(&self) -> bool {
        let left = self.refusals.get();
        self.refusals.set(left.saturating_sub(1));
        left > 0
    }

    fn change_device(&self, n: usize, change: impl FnOnce(&mut Thing)) {
        let now = self.machine.now();
        self.devices.change(n, |thing| {
            change(thing);
            thing.changed = now;
        });
        self.note(|| format!("DEVICE: {:?}", self.devices.all.borrow()[n]));
    }

    /// Returns the first name of a device's Instance.
    fn instance_name(&self, thing: &Thing, at: usize) -> String {
        let mut names = self.instance_names.borrow_mut();
        let name = names
            .entry((thing.configuration, thing.id.clone(), at))
            .or_insert_with(|| {
                let [name, _] = InstanceName::candidates(
                    &thing.configuration.into(),
                    &DeviceId::new(&thing.id),
                    thing.scope(),
                    &self.nodes[at].name.as_str().into(),
                );
                name.to_string()
            });
        name.clone()
    }
}

fn configuration(name: &str, spec: Value, has_brokers: bool) -> Configuration {
    let mut object = json!({
        "apiVersion": "akri.sh/v0", "kind": "Configuration",
        "metadata": {
            "name": name, "namespace": "default", "uid": format!("uid-{name}"), "generation": 1,
        },
        "spec": spec,
    });
    if has_brokers {
        let limits = json!({ "{{PLACEHOLDER}}": "1" });
        object["spec"]["brokerSpec"]["brokerPodSpec"]["containers"] =
            json!([{ "name": "broker", "resources": { "limits": limits } }]);
    }
    serde_json::from_value(object).unwrap()
}

/// What became of a seed.
struct Run {
    /// The broken promise.
    broken: Option<String>,
    /// The history, if it was kept.
    history: String,
}

/// Runs a seed.
fn run(seed: u64, keeps_history: bool) -> Run {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build();
    // The model's tasks are one of tokio's, which would give them a budget together.
    let history = unconstrained(history(seed, keeps_history));
    runtime.unwrap().block_on(history)
}

async fn history(seed: u64, keeps_history: bool) -> Run {
    let world = World::new(seed, keeps_history);
    let machine = &world.machine;
    let is_over = || world.history.is_broken();
    // Most worlds start completely before the first fault.
    machine.run_for(machine.between(0, 20_000), is_over).await;
    let is_stirred = Rc::new(Cell::new(false));
    let (steps, stirred) = (machine.between(3, 14), is_stirred.clone());
    let stirring = faults::stir(world.clone(), steps);
    machine.spawn(machine.process(), async move {
        stirring.await;
        stirred.set(true);
    });
    let is_stirred = || is_over() || is_stirred.get();
    machine.run_for(TO_REST * 100, is_stirred).await;
    machine.run_for(machine.between(0, 60_000), is_over).await;
    faults::mend(&world);
    rest(&world, TO_REST).await;
    for _ in 0..TOUCHES {
        // Nothing else has changed then, and nothing is due for another reason.
        let within = faults::touch(&world);
        follow(&world, within).await;
    }
    world.end();
    Run {
        broken: world.history.broken(),
        history: world.history.text(),
    }
}

/// Watches how the cluster follows one change. What is not right in the time `within` waits for something else than the change.
/// Containers that start or end are changes, too.
async fn follow(world: &Rc<World>, within: u64) {
    let machine = &world.machine;
    let is_over = || world.history.is_broken();
    let mut containers: Vec<_> = world.nodes.iter().map(|n| n.changes.subscribe()).collect();
    let (end, mut changed) = (machine.now() + within + WATCHED, machine.now());
    while !is_over() && machine.now() < end {
        machine.run_for(LOOKS, is_over).await;
        for changes in &mut containers {
            if changes.has_changed().is_ok_and(|has| has) {
                changes.mark_unchanged();
                changed = machine.now();
            }
        }
        if machine.now() > changed + within {
            for fault in invariants::at_rest(world) {
                world.broke(format!("{within} ms after one change {fault}"));
            }
        }
    }
}

/// Runs until everything is at rest, which means that two checks in a row find nothing wrong.
async fn rest(world: &Rc<World>, within: u64) {
    let machine = &world.machine;
    let (end, mut is_right) = (machine.now() + within, false);
    while !world.history.is_broken() {
        let is_over = || world.history.is_broken();
        machine.run_for(BETWEEN_LOOKS, is_over).await;
        let faults = invariants::at_rest(world);
        if faults.is_empty() && is_right {
            return;
        }
        is_right = faults.is_empty();
        if machine.now() > end {
            faults.into_iter().for_each(|fault| world.broke(fault));
        }
    }
}
