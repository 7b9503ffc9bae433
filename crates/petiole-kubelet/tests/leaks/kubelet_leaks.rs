//! Measures the tasks, descriptors and memory that a kubelet holds after many operations. The plugins are in the same
//! process, and end before the measurement.
#![allow(clippy::unwrap_used, reason = "a test")]

use crate::support::fake_plugin::{FakePlugin, Node, eventually};
use futures::future::join_all;
use serde_json::json;
use std::{fs, time::Duration};

const PLUGINS: usize = 50;
const CONTAINERS: usize = 50;
/// The bytes that an allocator may keep between two rounds.
const SLACK: usize = 6 * 1024 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Open {
    tasks: usize,
    descriptors: usize,
}

fn open() -> Open {
    let metrics = tokio::runtime::Handle::current().metrics();
    Open {
        tasks: metrics.num_alive_tasks(),
        descriptors: fs::read_dir("/proc/self/fd").unwrap().count(),
    }
}

fn memory() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    let pages = statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap();
    pages * 4096
}

async fn until_all_closed(idle: Open) {
    eventually(&format!("no more is open than {idle:?}"), async || {
        let now = open();
        now.tasks <= idle.tasks && now.descriptors <= idle.descriptors
    })
    .await;
}

/// Registers many plugins. Each registers twice, of which the second time is refused, and dies.
async fn register_many(node: &Node, round: usize) {
    let plugins: Vec<FakePlugin> = (0..PLUGINS)
        .map(|n| {
            let resource = format!("akri.sh/p{round}-{n}");
            FakePlugin::serve(node, &resource, &format!("p{n}.sock"), &["a", "b"])
        })
        .collect();
    for is_first in [true, false] {
        let registered = join_all(plugins.iter().map(|plugin| plugin.register(node))).await;
        assert!(
            registered.iter().all(|r| r.is_ok() == is_first),
            "{registered:?}"
        );
    }
    eventually("all are listed", async || {
        let plugins = node.client.plugins().await.unwrap();
        plugins.iter().filter(|plugin| plugin.healthy == 2).count() == PLUGINS
    })
    .await;
    join_all(plugins.into_iter().map(FakePlugin::die)).await;
    eventually("all are forgotten", async || {
        node.client.plugins().await.unwrap().is_empty()
    })
    .await;
}

// Only one test may run at a time, because descriptors and memory belong to the process.
#[tokio::test]
async fn what_has_come_and_gone_leaves_nothing_behind() {
    after_registrations(2).await;
    after_allocates(10).await;
}

#[tokio::test]
#[ignore = "takes minutes; by itself: just leaks"]
async fn a_thousand_registrations_and_ten_thousand_allocates_leave_nothing_behind() {
    after_registrations(10).await;
    after_allocates(200).await;
}

/// Checks that nothing is held after rounds of a hundred registrations.
async fn after_registrations(rounds: usize) {
    let grace = Duration::from_millis(100);
    let node = Node::start_with(|settings| settings.endpoint_grace = grace).await;
    register_many(&node, 0).await;
    let (idle, before) = (open(), memory());
    for round in 1..=rounds {
        register_many(&node, round).await;
    }
    until_all_closed(idle).await;
    let grown = memory().saturating_sub(before);
    assert!(grown < SLACK, "{grown} bytes more than before");
}

/// Returns a Pod that gets a device for each of its init containers, and too few for its last one, so that no process
/// starts.
fn allocating() -> String {
    use std::fmt::Write as _;
    let mut spec = String::from("  initContainers:\n");
    let container = |name: String, devices: usize| {
        format!(
            "  - {{name: {name}, image: none, resources: {{limits: {{akri.sh/cam: {devices}}}}}}}\n"
        )
    };
    for n in 0..CONTAINERS {
        spec.push_str(&container(format!("c{n}"), 1));
    }
    write!(spec, "  containers:\n{}", container("main".to_owned(), 3)).unwrap();
    spec
}

/// Checks that nothing is held after Pods with fifty allocations each.
async fn after_allocates(pods: usize) {
    let node = Node::start().await;
    let plugin = FakePlugin::start(&node, "akri.sh/cam", &["a", "b"]).await;
    node.until_counts("akri.sh/cam", Some("2/2")).await;
    let spec = allocating();
    let mut first = None;
    for n in 0..pods {
        let name = format!("p{n}");
        node.manifest(&name, &spec);
        node.until_pod(&name, "/reason", json!("UnexpectedAdmissionError"))
            .await;
        node.remove_manifest(&name);
        eventually("it is gone", async || node.pod(&name).await.is_none()).await;
        assert_eq!(plugin.calls().allocate.len(), (n + 1) * CONTAINERS);
        first.get_or_insert_with(|| (open(), memory()));
    }
    let (idle, before) = first.unwrap();
    until_all_closed(idle).await;
    let plugins = node.client.plugins().await.unwrap();
    assert_eq!(plugins[0].allocated, 0);
    let grown = memory().saturating_sub(before);
    assert!(grown < SLACK, "{grown} bytes more than before");
}
