//! Simulates Pods: the requests of their containers, and how a node's kubelet starts, restarts and ends them.
//!
//! Init containers run one after another, then sidecars and application containers side by side. A container that ends
//! is started again if the Pod says so. A container runs on while its kubelet is down, and ends with the node's power.
use super::{
    World,
    api_server::{ApiServer, refusal},
    invariants,
    kubelet::{self, Known},
    network::{Event, follow},
    node::Node,
    objects::Pod,
};
use crate::model::slot::SlotId;
use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use tokio::sync::{mpsc, watch};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Init,
    Sidecar,
    App,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Container {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// The requested quantities by the full name of the resource.
    pub(super) asks: Vec<(String, usize)>,
    /// The run time in milliseconds.
    pub(super) runs: u64,
}

/// A container in the container runtime.
#[derive(Debug, Clone, Default)]
pub(super) struct Run {
    pub(super) is_running: bool,
    pub(super) has_ended: bool,
    pub(super) slots: BTreeSet<SlotId>,
    starts: u64,
}

/// The containers by the Pod's uid and the container's name.
pub(super) type Runtime = BTreeMap<(u64, &'static str), Run>;

/// Follows the Pods of this node: admits new ones, one at a time, and ends deleted ones.
pub(super) async fn follow_pods(world: Rc<World>, at: usize) {
    let node = &world.nodes[at];
    let client = node.client(&world, "kubelet");
    let mut pods: BTreeMap<u64, Arc<Pod>> = BTreeMap::new();
    let name = node.name.clone();
    let mine = move |pod: &Pod| pod.node == name;
    let on = |events: Vec<Event<Pod>>| {
        let mut is_whole = false;
        for event in events {
            match event {
                Event::Init => pods.clear(),
                Event::Listed(pod) | Event::Applied(pod) => drop(pods.insert(pod.uid, pod)),
                Event::Deleted(pod) => drop(pods.remove(&pod.uid)),
                Event::Complete => is_whole = true,
            }
        }
        reconcile(&world, at, &pods, is_whole);
    };
    follow(client, |server: &ApiServer| &server.pods, mine, on).await;
}

fn reconcile(world: &Rc<World>, at: usize, pods: &BTreeMap<u64, Arc<Pod>>, is_whole: bool) {
    let node = &world.nodes[at];
    let mut borrowed = node.kubelet.borrow_mut();
    let Some(kubelet) = borrowed.as_mut() else {
        return;
    };
    kubelet.are_sources_ready |= is_whole;
    if !kubelet.are_sources_ready {
        return;
    }
    for pod in pods.values() {
        match kubelet.pods.get(&pod.uid) {
            None if pod.has_ended() => {}
            None => {
                let known = Known {
                    pod: Pod::clone(pod),
                    is_active: true,
                    stop: watch::Sender::new(pod.is_deleting),
                };
                kubelet.pods.insert(pod.uid, known);
                kubelet.admissions.send(Pod::clone(pod)).ok();
            }
            Some(known) if pod.is_deleting => drop(known.stop.send_replace(true)),
            Some(_) => {}
        }
    }
    for (uid, known) in &kubelet.pods {
        if !pods.contains_key(uid) {
            known.stop.send_replace(true);
        }
    }
    // Containers of Pods that were deleted while the kubelet was away. The kubelet ends them 1 s after its next
    // housekeeping, which comes every 2 s (kubelet_pods.go: HandlePodCleanups); that it gives their devices away before
    // is its own race.
    let mut orphans = node.pods_with_containers();
    orphans.retain(|uid| !pods.contains_key(uid) && !kubelet.pods.contains_key(uid));
    let process = kubelet.process;
    let claims = node.disk.lock().unwrap().claims.clone();
    let unknown = |uid: &u64| {
        let is_over = pods.get(uid).is_none_or(|pod| pod.has_ended());
        is_over && !kubelet.pods.contains_key(uid)
    };
    let mut without_pods: Vec<u64> = claims.into_values().flat_map(|known| known.pods).collect();
    without_pods.retain(unknown);
    drop(borrowed);
    for uid in orphans {
        node.end_pod(world, uid);
    }
    for uid in without_pods {
        let later = world.clone();
        let unprepare = async move { kubelet::unprepare(&later, at, uid).await };
        world.machine.spawn(process, unprepare);
    }
}

/// Admits Pods one at a time, as the kubelet does.
pub(super) async fn admit(world: Rc<World>, at: usize, mut pods: mpsc::UnboundedReceiver<Pod>) {
    while let Some(pod) = pods.recv().await {
        let node = &world.nodes[at];
        let is_running = node.is_running(pod.uid);
        let mut refusal = None;
        for container in pod
            .containers
            .iter()
            .filter(|_| !is_running && !pod.is_deleting)
        {
            if let Err(why) = kubelet::allocate(&world, at, (&pod, container)).await {
                refusal = Some(why);
                break;
            }
        }
        let Some(process) = node.kubelet.borrow().as_ref().map(|k| k.process) else {
            return;
        };
        let (worker, uid) = (world.clone(), pod.uid);
        world.machine.spawn(process, async move {
            match refusal {
                None => work(&worker, at, &pod).await,
                Some(why) => {
                    worker
                        .note(|| format!("{}: refuses {}: {why}", worker.nodes[at].name, pod.name));
                    worker.nodes[at].end_pod(&worker, uid);
                    report(&worker, at, &pod, "Failed").await;
                    removed(&worker, at, &pod).await;
                }
            }
        });
    }
}

/// Runs a Pod from its admission to its end.
async fn work(world: &Rc<World>, at: usize, pod: &Pod) {
    let node = &world.nodes[at];
    let Some(mut stop) = stop_of(node, pod) else {
        return;
    };
    let is_over = tokio::select! {
        biased;
        _ = stop.wait_for(|stop| *stop) => false,
        () = run(world, at, pod) => true,
    };
    let machine = &world.machine;
    if !is_over {
        machine.sleep(machine.between(10, 4_000)).await;
    }
    node.end_pod(world, pod.uid);
    // The kubelet says that a Pod has ended before or after that.
    let is_said_first = is_over && machine.chance(50);
    if is_said_first {
        report(world, at, pod, "Succeeded").await;
    }
    kubelet::unprepare(world, at, pod.uid).await;
    if is_over && !is_said_first {
        report(world, at, pod, "Succeeded").await;
    }
    removed(world, at, pod).await;
}

fn stop_of(node: &Node, pod: &Pod) -> Option<watch::Receiver<bool>> {
    let kubelet = node.kubelet.borrow();
    Some(kubelet.as_ref()?.pods.get(&pod.uid)?.stop.subscribe())
}

/// Removes a Pod without containers when it is deleted, also one that was refused.
async fn removed(world: &Rc<World>, at: usize, pod: &Pod) {
    let node = &world.nodes[at];
    let Some(mut stop) = stop_of(node, pod) else {
        return;
    };
    stop.wait_for(|stop| *stop).await.ok();
    let client = node.client(world, "kubelet");
    loop {
        let gone = client.request(
            || format!("delete pod {}", pod.name),
            |server| {
                if server.pod(&pod.name, pod.uid).is_some() {
                    server.put_pod(&pod.name, None);
                }
                Ok(())
            },
        );
        if gone.await.is_ok() {
            break;
        }
        world.machine.sleep(1_000).await;
    }
    if let Some(kubelet) = node.kubelet.borrow_mut().as_mut() {
        kubelet.pods.remove(&pod.uid);
    }
}

async fn run(world: &Rc<World>, at: usize, pod: &Pod) {
    let of = |kind: Kind| pod.containers.iter().filter(move |c| c.kind == kind);
    let node = &world.nodes[at];
    kubelet::prepare(world, at, pod).await;
    let mut changes = node.changes.subscribe();
    let is_past_init = of(Kind::App).any(|c| node.has_started(pod.uid, c.name));
    for container in of(Kind::Init).filter(|_| !is_past_init) {
        while !node.has_ended(pod.uid, container.name) {
            changes.mark_unchanged();
            if keep_up(world, at, (pod, container)).await {
                changes.changed().await.ok();
            }
        }
    }
    report(world, at, pod, "Running").await;
    loop {
        changes.mark_unchanged();
        let is_wanted = |c: &&Container| {
            c.kind == Kind::Sidecar || pod.restarts || !node.has_ended(pod.uid, c.name)
        };
        let all = of(Kind::Sidecar).chain(of(Kind::App));
        let mut is_done = true;
        for container in all.filter(is_wanted) {
            is_done &= keep_up(world, at, (pod, container)).await;
        }
        if !pod.restarts && of(Kind::App).all(|c| node.has_ended(pod.uid, c.name)) {
            return;
        }
        let wait = if is_done {
            Duration::from_secs(1_000_000)
        } else {
            Duration::from_millis(world.machine.between(2_000, 15_000))
        };
        let changed = Box::pin(changes.changed());
        world.machine.timeout(wait, changed).await;
    }
}

/// Starts a container that does not run. Returns whether it runs.
async fn keep_up(world: &Rc<World>, at: usize, (pod, container): (&Pod, &Container)) -> bool {
    let node = &world.nodes[at];
    if node.runs(pod.uid, container.name) {
        return true;
    }
    let machine = &world.machine;
    if let Err(why) = kubelet::pre_start(world, at, (pod, container)).await {
        world.note(|| {
            format!(
                "{}: {}/{} cannot start: {why}",
                node.name, pod.name, container.name
            )
        });
        machine.sleep(machine.between(1_000, 10_000)).await;
        node.changed();
        return false;
    }
    machine.sleep(machine.between(1, 300)).await;
    start(world, at, (pod, container));
    true
}

fn start(world: &Rc<World>, at: usize, (pod, container): (&Pod, &Container)) {
    let node = &world.nodes[at];
    let slots = node.slots_given(pod.uid, container.name);
    world.note(|| {
        format!(
            "{}: {}/{} runs with {slots:?}",
            node.name, pod.name, container.name
        )
    });
    let key = (pod.uid, container.name);
    let starts = {
        let mut runtime = node.runtime.borrow_mut();
        let run = runtime.entry(key).or_default();
        *run = Run {
            is_running: true,
            has_ended: false,
            slots,
            starts: run.starts + 1,
        };
        run.starts
    };
    node.changed();
    let later = world.clone();
    world.machine.after(container.runs, move || {
        let node = &later.nodes[at];
        let is_it = |run: &&mut Run| run.is_running && run.starts == starts;
        if let Some(run) = node.runtime.borrow_mut().get_mut(&key).filter(is_it) {
            run.is_running = false;
            run.has_ended = true;
        }
        node.changed();
    });
    invariants::started(world, at, key);
}

async fn report(world: &Rc<World>, at: usize, pod: &Pod, phase: &'static str) {
    let client = world.nodes[at].client(world, "kubelet");
    let now = world.machine.clock.now();
    loop {
        let reported = client.request(
            || format!("pod {} is {phase}", pod.name),
            |server| {
                let mut there = server
                    .pod(&pod.name, pod.uid)
                    .ok_or_else(|| refusal(404, "gone"))?;
                there.phase = phase;
                there.started.get_or_insert(now);
                server.put_pod(&pod.name, Some(there));
                Ok(())
            },
        );
        match reported.await {
            Err(e) if !crate::cluster::is_not_found(&e) => world.machine.sleep(2_000).await,
            Ok(()) | Err(_) => return,
        }
    }
}
