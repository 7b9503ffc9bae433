//! Tests of plugins in `plugins_registry`, and of plugins that misbehave at each step: the answers that they get, the
//! state that clients see, and the isolation of other plugins.
#![allow(clippy::unwrap_used, reason = "a test")]
mod drivers;
mod misbehaviour;
mod registry;
mod shown;

use crate::support::fake_plugin::{FakePlugin, Node, devices, eventually};
use crate::support::raw_plugin::{
    Behaviour::{self, Answer, Die, End, Error, Hang, Stay},
    RawPlugin,
};
use futures::future::select;
use petiole_kubelet::{
    CallLimits, Settings,
    client::{CsiView, PluginState, PluginView},
};
use petiole_kubelet_api::{
    csi::NodeGetInfoResponse,
    device_plugin::{
        AllocateResponse, ContainerAllocateResponse, DevicePluginOptions, ListAndWatchResponse,
    },
    plugin_registration::{PluginInfo, RegistrationStatus},
};
use prost::Message as _;
use serde_json::json;
use std::{fs, path::PathBuf, sync::Arc, time::Duration};
use tokio::time::timeout;

const CAM: &str = "akri.sh/cam";
/// A time limit that plugins on this machine never need. The kubelet's own limits are half a minute.
const SHORT: Duration = Duration::from_millis(700);
/// A time limit that only ends a failing test.
const LONG: Duration = Duration::from_secs(30);

type Methods = Vec<(&'static str, Behaviour)>;

/// Starts a node with short time limits for plugins, and one plugin that works.
async fn node() -> (Node, FakePlugin) {
    node_with(|_| {}).await
}

async fn node_with(change: impl FnOnce(&mut Settings)) -> (Node, FakePlugin) {
    let node = Node::start_with(|settings| {
        change(settings);
        settings.call_limits = CallLimits {
            options: SHORT,
            allocate: SHORT,
            pre_start: SHORT,
            node_info: SHORT,
        };
    })
    .await;
    let works = FakePlugin::start(&node, CAM, &["a"]).await;
    node.until_counts(CAM, Some("1/1")).await;
    (node, works)
}

/// Asserts that the working plugin still works, and that a new Pod gets its device.
async fn is_undisturbed(node: &Node) {
    node.manifest("works", &asking(CAM));
    node.until_log("works", "c", "started").await;
    node.remove_manifest("works");
    eventually("its pod is gone", async || {
        node.pod("works").await.is_none()
    })
    .await;
    assert_eq!(node.counts(CAM).await.as_deref(), Some("1/1"));
}

fn asking(resource: &str) -> String {
    format!(
        "  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: none
    command: [sh, -c, 'echo started; exec sleep 1000']
    resources: {{limits: {{{resource}: 1}}}}
"
    )
}

fn info(kind: &str, name: &str, versions: &[&str]) -> Behaviour {
    let info = PluginInfo {
        r#type: kind.to_owned(),
        name: name.to_owned(),
        endpoint: String::new(),
        supported_versions: versions.iter().map(|v| (*v).to_owned()).collect(),
    };
    Answer(info.encode_to_vec())
}

fn list(ids: &[&str]) -> Behaviour {
    let list = ListAndWatchResponse {
        devices: devices(ids, &[]),
    };
    Stay(list.encode_to_vec())
}

/// Returns all methods of a working device plugin, with those in `except` replaced.
fn device_plugin(resource: &str, except: Methods) -> Methods {
    let options = DevicePluginOptions {
        pre_start_required: true,
        get_preferred_allocation_available: true,
    };
    let allocated = AllocateResponse {
        container_responses: vec![ContainerAllocateResponse::default()],
    };
    let mut methods = vec![
        ("GetInfo", info("DevicePlugin", resource, &["v1beta1"])),
        ("NotifyRegistrationStatus", Answer(vec![])),
        ("GetDevicePluginOptions", Answer(options.encode_to_vec())),
        ("ListAndWatch", list(&["a"])),
        ("GetPreferredAllocation", Answer(vec![])),
        ("Allocate", Answer(allocated.encode_to_vec())),
        ("PreStartContainer", Answer(vec![])),
    ];
    methods.extend(except);
    methods
}

fn in_registry(node: &Node, socket: &str) -> PathBuf {
    node.root().join("plugins_registry").join(socket)
}

async fn shown(node: &Node, name: &str) -> Vec<PluginView> {
    let plugins = node.client.plugins().await.unwrap().into_iter();
    plugins.filter(|plugin| plugin.name == name).collect()
}

async fn until_shown(node: &Node, name: &str, state: PluginState, reason: &str) {
    let what = format!("{name} is {state:?}: {reason}");
    eventually(&what, async || {
        let shown = shown(node, name).await;
        shown.iter().any(|plugin| {
            plugin.state == state && plugin.reason.clone().unwrap_or_default().contains(reason)
        })
    })
    .await;
}

fn notified(plugin: &RawPlugin) -> Option<(bool, String)> {
    let status: RegistrationStatus = plugin.last("NotifyRegistrationStatus")?;
    Some((status.plugin_registered, status.error))
}
