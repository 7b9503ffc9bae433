//! `petiole agent` as a process, with real signals.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod support;

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::process::{Child, Command, Stdio};
use support::node::TestNode;

struct Agent(Child);

impl Agent {
    fn start(node: &TestNode) -> Self {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(node.root().join("agent.log"))
            .unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_petiole"))
            .args(["agent", "--standalone", "--node-name", "node-a"])
            .args([
                "--configurations".as_ref(),
                node.configurations().as_os_str(),
            ])
            .args(["--state".as_ref(), node.state().as_os_str()])
            .args([
                "--kubelet-dir".as_ref(),
                node.kubelet_settings.root_dir.as_os_str(),
            ])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        Self(child)
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.0.id()).unwrap();
        kill(Pid::from_raw(pid), signal).unwrap();
    }

    async fn ended(&mut self, node: &TestNode) -> std::process::ExitStatus {
        node.until("the agent ends", async || self.0.try_wait().unwrap())
            .await
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn configure(node: &TestNode) {
    let text = "apiVersion: akri.sh/v0\nkind: Configuration\nmetadata: {name: echo}\n\
                spec: {discoveryHandler: {name: debugEcho, discoveryDetails: 'descriptions: [foo0]'}, capacity: 2}\n";
    node.write_manifest("echo.yaml", text);
}

async fn the_instance(node: &TestNode) -> String {
    node.until("one Instance", async || node.instances().into_keys().next())
        .await
}

#[tokio::test]
async fn an_agent_that_is_killed_leaves_sockets_and_the_next_one_clears_them_and_goes_on() {
    let mut node = TestNode::new();
    node.start_kubelet();
    let mut agent = Agent::start(&node);
    configure(&node);
    let name = the_instance(&node).await;
    node.until_counts(&name, 2, 2).await;
    node.run_pod("broker", &[(&format!("akri.sh/{name}"), 1)]);
    assert_eq!(node.env("broker").await["DEBUG_ECHO_DESCRIPTION"], "foo0");
    let (before, pid) = (node.instances(), node.pid("broker").await);

    agent.signal(Signal::SIGKILL);
    agent.ended(&node).await;
    let left = node.sockets();
    assert_eq!(left.len(), 2, "{left:?}");
    node.until_connected(0).await;
    agent = Agent::start(&node);
    node.until_connected(2).await;
    assert_eq!(node.sockets().len(), 2);
    assert_eq!(node.instances(), before);
    assert_eq!(node.pid("broker").await, pid);
    agent.signal(Signal::SIGTERM);
    assert!(agent.ended(&node).await.success(), "a clean stop is exit 0");
    assert_eq!(node.sockets().len(), 0);
    assert_eq!(node.instances(), before);
}
