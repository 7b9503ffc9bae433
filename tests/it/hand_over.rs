//! An update of the agent as a DaemonSet with `maxSurge` does it: two processes are on one node, and the first one hands over to
//! the second one. Pods are admitted all the while.
use crate::{agent_process::Agent, support::node::TestNode};
use k8s_openapi::api::core::v1::Pod;
use nix::sys::signal::Signal;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The most Pods of a test. Each has a slot.
const SLOTS: u32 = 500;
/// A time that only ends a failing test.
const PATIENCE: Duration = Duration::from_secs(15);
/// The time between two Pods.
const BETWEEN_PODS: Duration = Duration::from_millis(50);
/// The Pods that run before something happens, and after it.
const SOME: usize = 5;

/// A node with a device, and Pods that ask for it.
struct Updated {
    node: TestNode,
    resource: String,
    pods: usize,
    /// How often nothing of the device could be allocated.
    gaps: usize,
}

impl Updated {
    async fn new() -> (Self, Agent) {
        let mut node = TestNode::new();
        node.start_kubelet();
        let text = format!(
            "apiVersion: akri.sh/v0\nkind: Configuration\nmetadata: {{name: echo}}\n\
             spec: {{discoveryHandler: {{name: debugEcho, discoveryDetails: 'descriptions: [foo0]'}}, capacity: {SLOTS}}}\n"
        );
        node.write_manifest("echo.yaml", &text);
        let agent = Agent::start_with(&node, &["--stand-by"]);
        let name = node.until("one Instance", async || node.instances().into_keys().next());
        let name = name.await;
        node.until_counts(&name, SLOTS, SLOTS).await;
        node.until_connected(2).await;
        let resource = format!("akri.sh/{name}");
        let updated = Self {
            node,
            resource,
            pods: 0,
            gaps: 0,
        };
        (updated, agent)
    }

    /// Starts an agent, and waits until it stands by.
    async fn stand_by(&self) -> Agent {
        let count = |log: &str| log.matches("This one stands by").count();
        let before = count(&self.node.agent_log());
        let agent = Agent::start_with(&self.node, &["--stand-by"]);
        let stands_by = async || (count(&self.node.agent_log()) > before).then_some(());
        self.node.until("it stands by", stands_by).await;
        agent
    }

    /// Makes one Pod after the other until `look` returns a value, and some more.
    async fn make_pods_until<T>(&mut self, mut look: impl FnMut() -> Option<T>) -> T {
        let began = Instant::now();
        let found = loop {
            self.make_pods(1).await;
            if let Some(found) = look() {
                break found;
            }
            assert!(began.elapsed() < PATIENCE, "never");
        };
        self.make_pods(SOME).await;
        found
    }

    async fn make_pods(&mut self, count: usize) {
        for _ in 0..count {
            self.make_pod();
            let end = Instant::now() + BETWEEN_PODS;
            while Instant::now() < end {
                let counts = self.node.counts(&self.resource).await;
                self.gaps += usize::from(counts.is_some_and(|(_, allocatable)| allocatable == 0));
                sleep(Duration::from_millis(1)).await;
            }
        }
    }

    fn make_pod(&mut self) {
        let name = format!("p{}", self.pods);
        self.node.run_pod(&name, &[(&self.resource, 1)]);
        self.pods += 1;
    }

    /// Waits until all Pods are admitted. Returns those that were refused.
    async fn refused(&self) -> Vec<String> {
        let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone());
        let pods = self
            .node
            .until("all Pods are admitted or refused", async || {
                let pods = self.node.kubelet().pods().await.ok()?.items;
                let is_settled = |pod: &Pod| phase(pod).is_some_and(|phase| phase != "Pending");
                (pods.len() == self.pods && pods.iter().all(is_settled)).then_some(pods)
            });
        let refused = pods
            .await
            .into_iter()
            .filter(|pod| phase(pod).as_deref() != Some("Running"));
        let message = |pod: Pod| {
            pod.status
                .and_then(|status| status.message)
                .unwrap_or_default()
        };
        refused.map(message).collect()
    }

    /// No slot has two holders: as many are held as Pods run.
    async fn assert_all_run(&self) {
        assert_eq!(
            self.refused().await,
            Vec::<String>::new(),
            "of {} Pods",
            self.pods
        );
        let held = || {
            self.node.instances().into_values().map(|instance| {
                let owners = instance.spec.device_usage.into_values();
                owners.filter(|owner| !owner.is_empty()).count()
            })
        };
        let all_are_held = async || (held().sum::<usize>() == self.pods).then_some(());
        self.node
            .until("each Pod has a slot of its own", all_are_held)
            .await;
    }
}

#[tokio::test]
async fn no_pod_is_refused_while_an_agent_takes_over_from_another_and_a_third_from_that() {
    let (mut updated, mut first) = Updated::new().await;
    updated.make_pods(SOME).await;
    for _ in 0..2 {
        let second = updated.stand_by().await;
        updated.make_pods(SOME).await;
        first.signal(Signal::SIGTERM);
        let ended = updated.make_pods_until(|| first.has_ended()).await;
        assert!(ended.success(), "a clean stop is exit 0");
        first = second;
    }
    updated.assert_all_run().await;
    assert_eq!(updated.gaps, 0, "it could always be allocated");
    assert_eq!(updated.node.sockets().len(), 2);
}

#[tokio::test]
async fn an_agent_that_stands_by_goes_on_when_the_other_one_is_killed() {
    let (mut updated, mut first) = Updated::new().await;
    updated.make_pods(SOME).await;
    updated.assert_all_run().await;
    let _second = updated.stand_by().await;
    first.signal(Signal::SIGKILL);
    first.ended(&updated.node).await;
    updated.node.until_connected(2).await;
    updated.make_pods(SOME).await;
    updated.assert_all_run().await;
    let is_one_each = async || (updated.node.sockets().len() == 2).then_some(());
    updated
        .node
        .until("the sockets of the first one are gone", is_one_each)
        .await;
}

#[tokio::test]
async fn an_agent_whose_stand_by_is_killed_ends_at_once() {
    let (updated, mut first) = Updated::new().await;
    let mut second = updated.stand_by().await;
    second.signal(Signal::SIGKILL);
    second.ended(&updated.node).await;
    let began = Instant::now();
    first.signal(Signal::SIGTERM);
    assert!(first.ended(&updated.node).await.success());
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(updated.node.sockets().len(), 0);
    updated.node.until_connected(0).await;
}

#[tokio::test]
async fn a_kubelet_that_restarts_meanwhile_has_the_plugins_of_the_new_agent_alone() {
    let (mut updated, mut first) = Updated::new().await;
    updated.make_pods(SOME).await;
    updated.assert_all_run().await;
    let _second = updated.stand_by().await;
    updated.node.kill_kubelet();
    first.signal(Signal::SIGTERM);
    updated.node.start_kubelet();
    assert!(first.ended(&updated.node).await.success());
    updated.node.until_connected(2).await;
    updated.make_pods(SOME).await;
    updated.assert_all_run().await;
}
