//! Tests of CDI files on a node: a resource with its own name, the values that a container gets, and the device's end.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::support::{node::TestNode, process::Process};
use petiole::{
    agent,
    discovery::{
        handlers::cdi::{Cdi, Kinds},
        session::Handlers,
    },
    store::folder::{self, FolderStore},
};
use petiole_base::files;
use std::{fs, process::Command, sync::Arc, time::Duration};

const THREE: [&str; 3] = ["pflex1", "pflex2", "pflex3"];

fn cdi_file(names: &[&str]) -> String {
    let device = |name: &&str| {
        serde_json::json!({
            "name": name,
            "annotations": {"pflex.io/serial": format!("S-{name}")},
            "containerEdits": {"deviceNodes": [{"path": format!("/dev/{name}")}]},
        })
    };
    let devices: Vec<_> = names.iter().map(device).collect();
    let file =
        serde_json::json!({"cdiVersion": "0.6.0", "kind": "pflex.io/block", "devices": devices});
    file.to_string()
}

fn node() -> TestNode {
    let mut node = TestNode::new();
    node.agent_settings.resource_prefixes = "akri.sh,pflex.io".parse().unwrap();
    for folder in node.cdi_folders() {
        fs::create_dir(folder).unwrap();
    }
    node.start_kubelet();
    node
}

fn describe(node: &TestNode, file: &str, text: &str) {
    files::write_atomically(&node.cdi_folders()[0].join(file), text.as_bytes(), 0o644).unwrap();
}

fn configure(node: &TestNode, resource: &str) {
    configure_as(node, "block", resource);
}

fn configure_as(node: &TestNode, name: &str, resource: &str) {
    let text = format!(
        "{{apiVersion: akri.sh/v0, kind: Configuration, metadata: {{name: {name}}}, spec: {{\
         discoveryHandler: {{name: cdi, discoveryDetails: 'kind: pflex.io/block'}}, \
         resourceName: {resource}, gracePeriodSeconds: 1}}}}"
    );
    node.write_manifest(&format!("{name}.yaml"), &text);
}

/// Waits until the status of a Configuration contains `part`.
async fn until_status(node: &TestNode, part: &str) {
    node.until(&format!("a status says {part}"), async || {
        let entries = fs::read_dir(node.state().join("configurations")).ok()?;
        let texts = entries.filter_map(|entry| fs::read_to_string(entry.ok()?.path()).ok());
        texts
            .into_iter()
            .any(|text| text.contains(part))
            .then_some(())
    })
    .await;
}

#[tokio::test]
async fn three_devices_of_a_file_are_a_resource_of_three_by_its_own_name() {
    let mut node = node();
    node.start_agent();
    describe(&node, "pflex.json", &cdi_file(&THREE));
    configure(&node, "pflex.io/block");
    node.until_counts("pflex.io/block", 3, 3).await;
    let names: Vec<String> = node.instances().into_keys().collect();
    assert_eq!(names.len(), 3);
    assert_eq!(node.counts("block").await, None, "it has one name");
    for name in &names {
        node.until_counts(name, 1, 1).await;
    }

    let answer = node.allocate("block", &["block-0"]).await.unwrap();
    let device = &answer.envs["CDI_DEVICE"];
    let given: Vec<&String> = answer.cdi_devices.iter().map(|d| &d.name).collect();
    assert_eq!(given, [device]);
    let name = device.strip_prefix("pflex.io/block=").unwrap();
    assert!(THREE.contains(&name), "{device}");
    assert_eq!(answer.envs["CDI_KIND"], "pflex.io/block");
    assert_eq!(answer.envs["CDI_NAME"], name);
    assert_eq!(
        answer.envs["CDI_ANNOTATION_PFLEX_IO_SERIAL"],
        format!("S-{name}")
    );
    assert_eq!(answer.envs["AKRI_SLOT"].rsplit_once('-').unwrap().1, "0");
}

#[tokio::test]
async fn a_pod_asks_for_the_name_and_one_whose_file_is_gone_is_unhealthy_and_then_gone() {
    let mut node = node();
    node.start_agent();
    describe(&node, "pflex.json", &cdi_file(&THREE));
    configure(&node, "pflex.io/block");
    node.until_counts("pflex.io/block", 3, 3).await;
    node.run_pod("user", &[("pflex.io/block", 1)]);
    let device = node.env("user").await["CDI_NAME"].clone();

    let left: Vec<&str> = THREE.into_iter().filter(|name| *name != device).collect();
    describe(&node, "pflex.json", &cdi_file(&left));
    // The slot is held, so it stays and is unhealthy as long as its container runs.
    node.until_counts("pflex.io/block", 3, 2).await;
    node.remove_pod("user");
    node.until_counts("pflex.io/block", 2, 2).await;
    fs::remove_file(node.cdi_folders()[0].join("pflex.json")).unwrap();
    node.until("no Instance is left", async || {
        node.instances().is_empty().then_some(())
    })
    .await;
    node.until("the capacity entry is gone", async || {
        node.counts("pflex.io/block").await.is_none().then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_file_that_cannot_be_used_is_named_in_the_status_and_the_others_count() {
    let mut node = node();
    node.start_agent();
    describe(&node, "good.json", &cdi_file(&["pflex1"]));
    describe(&node, "bad.yaml", "kind: [");
    configure(&node, "pflex.io/block");
    node.until_counts("pflex.io/block", 1, 1).await;
    until_status(&node, "DiscoveryIncomplete").await;
    until_status(&node, "etc-cdi/bad.yaml").await;

    describe(&node, "bad.yaml", &cdi_file(&["pflex2"]));
    node.until_counts("pflex.io/block", 2, 2).await;
}

#[tokio::test]
async fn a_pipe_in_the_folder_is_named_in_the_status_and_holds_nothing_up() {
    let mut node = node();
    describe(&node, "good.json", &cdi_file(&["pflex1"]));
    let pipe = node.cdi_folders()[0].join("bad.json");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    node.start_agent();
    configure(&node, "pflex.io/block");
    node.until_counts("pflex.io/block", 1, 1).await;
    until_status(&node, "bad.json: it is not a regular file").await;
    node.stop_agent().await;
}

#[tokio::test]
async fn a_name_that_is_refused_is_offered_nowhere_and_its_reason_is_in_the_status() {
    let mut node = node();
    node.start_agent();
    describe(&node, "pflex.json", &cdi_file(&THREE));
    configure(&node, "example.com/block");
    until_status(&node, "ResourcePrefix").await;
    assert!(node.sockets().is_empty(), "{:?}", node.sockets());
    configure_as(&node, "older", "pflex.io/block");
    node.until_counts("pflex.io/block", 3, 3).await;
    configure(&node, "pflex.io/block");
    until_status(&node, "ResourceTaken").await;
    assert_eq!(node.counts("pflex.io/block").await, Some((3, 3)));
}

#[tokio::test]
async fn another_name_moves_the_plugin_and_what_a_container_holds_stays_its_own() {
    let mut node = node();
    node.agent_settings.look_interval = Duration::from_millis(200);
    node.kubelet_settings.endpoint_grace = Duration::from_secs(1);
    node.start_agent();
    describe(&node, "pflex.json", &cdi_file(&["pflex1", "pflex2"]));
    configure(&node, "pflex.io/block");
    node.until_counts("pflex.io/block", 2, 2).await;
    for pod in ["user", "other"] {
        node.run_pod(pod, &[("pflex.io/block", 1)]);
        node.env(pod).await;
    }
    let users = node.env("user").await["AKRI_SLOT"].clone();
    let others = node.env("other").await["AKRI_SLOT"].clone();
    let owner = |slot: &str| node.usage(slot.rsplit_once('-').unwrap().0).remove(slot);
    let users_owner = owner(&users).unwrap();

    configure(&node, "pflex.io/disk");
    node.until_counts("pflex.io/disk", 2, 0).await;
    node.until("the old name is gone", async || {
        node.counts("pflex.io/block").await.is_none().then_some(())
    })
    .await;
    node.remove_pod("other");
    node.until("the other's slot is free", async || {
        owner(&others).is_none().then_some(())
    })
    .await;
    assert_eq!(owner(&users).as_ref(), Some(&users_owner));
    // One of the two is still in use, even if the kubelet considers it free.
    node.until_counts("pflex.io/disk", 2, 1).await;
    let refusal = node.allocate("block", &["block-0", "block-1"]).await;
    let refusal = refusal.unwrap_err();
    let reason = "as pflex.io/block, which";
    assert!(refusal.message().contains(reason), "{refusal}");
    assert_eq!(owner(&users), Some(users_owner));

    node.remove_pod("user");
    node.until("the slot is free", async || {
        owner(&users).is_none().then_some(())
    })
    .await;
    node.run_pod("third", &[("pflex.io/disk", 2)]);
    assert!(node.env("third").await.contains_key("CDI_DEVICE"));
}

#[tokio::test]
async fn a_name_that_another_plugin_has_is_refused_until_it_is_free() {
    let mut node = node();
    node.start_agent();
    describe(&node, "pflex.json", &cdi_file(&THREE));
    configure(&node, "pflex.io/block");
    node.until_counts("pflex.io/block", 3, 3).await;

    // For this agent, another agent is a foreign plugin.
    let (configurations, state) = (node.root().join("rivals"), node.root().join("rival-state"));
    fs::create_dir(&configurations).unwrap();
    let own = fs::read_to_string(node.configurations().join("block.yaml")).unwrap();
    let text = own.replace("name: block", "name: rival");
    fs::write(configurations.join("rival.yaml"), text).unwrap();
    let store = FolderStore::open(folder::Settings {
        node_name: "node-a".into(),
        configurations,
        state: state.clone(),
    });
    let (store, settings) = (Arc::new(store.unwrap()), node.agent_settings.clone());
    let handlers = Handlers::new(vec![Box::new(Cdi::new(node.cdi_folders(), Kinds::All))]);
    let log = node.root().join("rival.log");
    let rival = Process::start(&log, |shutdown| {
        agent::run(settings, store, handlers, shutdown)
    });
    node.until("the rival is refused", async || {
        let entries = fs::read_dir(state.join("configurations")).ok()?;
        let texts = entries.filter_map(|entry| fs::read_to_string(entry.ok()?.path()).ok());
        (texts.into_iter().any(|text| text.contains("ResourceTaken"))).then_some(())
    })
    .await;
    assert_eq!(node.counts("pflex.io/block").await, Some((3, 3)));

    node.remove_manifest("block.yaml");
    node.until("the rival has it", async || {
        let sockets = node.sockets();
        let is_whole = |s: &String| {
            s.strip_prefix("rival-")
                .is_some_and(|s| s.len() == "1700000000.sock".len())
        };
        sockets.iter().any(is_whole).then_some(())
    })
    .await;
    node.until_counts("pflex.io/block", 3, 3).await;
    rival.stop().await.unwrap();
}

#[tokio::test]
async fn a_restarted_agent_offers_its_name_again_and_never_the_default_one() {
    let mut node = node();
    node.start_agent();
    describe(&node, "pflex.json", &cdi_file(&THREE));
    configure(&node, "pflex.io/block");
    node.until_counts("pflex.io/block", 3, 3).await;
    node.kill_agent();
    node.until_counts("pflex.io/block", 3, 0).await;
    node.start_agent();
    node.until_counts("pflex.io/block", 3, 3).await;
    assert_eq!(node.counts("block").await, None);
    let log = node.agent_log();
    assert!(log.contains("resource=\"pflex.io/block\""), "{log}");
    for never in ["ResourceTaken", "resource=\"akri.sh/block\""] {
        assert!(!log.contains(never), "{never}: {log}");
    }
}
