//! What others get wrong: each row of the design's table of bad input. Whatever comes in, the rest goes on.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod support;

use petiole::{
    model::device::Device,
    proto::device_plugin::{RegisterRequest, VERSION, registration_client::RegistrationClient},
    uds,
};
use std::{
    fs,
    os::unix::fs::{FileTypeExt as _, symlink},
    time::Duration,
};
use support::{
    node::{PATIENCE, TestNode, instance_name},
    test_handler::device,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{UnixListener, UnixStream},
    task::JoinSet,
    time::timeout,
};

/// Begins like HTTP/2 and goes on with what is none.
fn garbage() -> Vec<u8> {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend((0..4096_u32).map(|n| u8::try_from(n * 31 % 251).unwrap()));
    bytes
}

/// A node with one good device in a Configuration of its own, and a Pod that holds it.
async fn at_work() -> (TestNode, String) {
    let node = TestNode::started();
    node.configure("good", "capacity: 2");
    node.devices.see("good", [device("door")]);
    let door = instance_name("good", "door");
    node.until_counts(&door, 2, 2).await;
    node.run_pod("broker", &[(&format!("akri.sh/{door}"), 1)]);
    node.env("broker").await;
    (node, door)
}

/// The Pod of `at_work` runs undisturbed, another one is given the device, and another device is found.
async fn still_works(node: &TestNode, door: &str) {
    node.assert_all_run();
    assert_eq!(node.restarts("broker").await, Some(0));
    node.run_pod("another", &[(&format!("akri.sh/{door}"), 1)]);
    assert_eq!(node.env("another").await["ADDRESS"], "10.0.0.1");
    node.devices.see("good", [device("door"), device("yard")]);
    node.until_counts(&instance_name("good", "yard"), 2, 2)
        .await;
    assert_eq!(node.devices.runs("good"), 1);
}

mod handlers {
    use super::*;

    /// Whether it ran more than once, and not so often that it is all the agent does.
    fn assert_backed_off(node: &TestNode, details: &str) {
        let runs = node.devices.runs(details);
        assert!((2..20).contains(&runs), "{details} was run {runs} times");
    }

    #[tokio::test]
    async fn a_discovery_that_fails_says_so_and_is_tried_again_now_and_then() {
        let (node, door) = at_work().await;
        node.configure_with("bad", "fail-always", "capacity: 1");
        node.until_error("bad.yaml", "fail-always fails").await;
        node.until("it is tried again", async || {
            (node.devices.runs("fail-always") > 1).then_some(())
        })
        .await;
        still_works(&node, &door).await;
        assert_backed_off(&node, "fail-always");
    }

    #[tokio::test]
    async fn a_discovery_that_panics_says_so_and_is_tried_again_now_and_then() {
        let (node, door) = at_work().await;
        node.configure_with("bad", "panic-always", "capacity: 1");
        node.until("it is tried again", async || {
            (node.devices.runs("panic-always") > 1).then_some(())
        })
        .await;
        node.until_error("bad.yaml", "panic").await;
        still_works(&node, &door).await;
        assert_backed_off(&node, "panic-always");
    }

    #[tokio::test]
    async fn a_discovery_that_hangs_and_hears_no_signal_holds_up_nothing() {
        let (mut node, door) = at_work().await;
        node.configure_with("bad", "hang-always", "capacity: 1");
        node.until("it hangs", async || {
            (node.devices.runs("hang-always") > 0).then_some(())
        })
        .await;
        node.remove_manifest("bad.yaml");
        // Its end is waited for in vain; other discoveries begin all the same.
        node.configure("later", "capacity: 1");
        node.devices.see("later", [device("roof")]);
        node.until_counts(&instance_name("later", "roof"), 1, 1)
            .await;
        still_works(&node, &door).await;
        // And with another one that hangs.
        node.configure_with("bad", "hang-more", "capacity: 1");
        node.until("it hangs", async || {
            (node.devices.runs("hang-more") > 0).then_some(())
        })
        .await;
        node.stop_agent().await;
    }

    #[tokio::test]
    async fn strange_devices_become_instances_or_a_message() {
        let (node, door) = at_work().await;
        node.configure("odd", "capacity: 1, maxInstances: 3");
        let mut huge = Device::new("huge");
        huge.properties
            .insert("HUGE".to_owned(), "x".repeat(300_000));
        let mut nul = Device::new("nul");
        nul.properties.insert("NUL".to_owned(), "a\0b".to_owned());
        let names = ["", "ünï/cödé\n: {}", "x".repeat(5000).as_str()].map(Device::new);
        let strange = names.into_iter().chain([huge, nul]);
        node.devices.see("odd", strange);
        node.until("three of them have Instances", async || {
            let of_odd = node
                .instances()
                .into_keys()
                .filter(|name| name.starts_with("odd-"));
            (of_odd.count() == 3).then_some(())
        })
        .await;
        node.until_error("odd.yaml", "2 more devices were found")
            .await;
        still_works(&node, &door).await;
    }
}

mod peers_of_the_kubelet {
    use super::*;

    /// Asks our kubelet to register what listens at `socket`, and waits for no answer.
    fn register(node: &TestNode, socket: &str, name: &str) -> JoinSet<Option<tonic::Status>> {
        let path = node.agent_settings.plugin_folder.join("kubelet.sock");
        let request = RegisterRequest {
            version: VERSION.to_owned(),
            endpoint: socket.to_owned(),
            resource_name: name.to_owned(),
            options: None,
        };
        let mut call = JoinSet::new();
        call.spawn(async move {
            let channel = uds::dial(&path).await.unwrap();
            RegistrationClient::new(channel)
                .register(request)
                .await
                .err()
        });
        call
    }

    #[tokio::test]
    async fn a_plugin_that_never_answers_holds_up_no_other() {
        let (node, door) = at_work().await;
        let listener =
            UnixListener::bind(node.agent_settings.plugin_folder.join("mute.sock")).unwrap();
        let _call = register(&node, "mute.sock", "example.com/mute");
        let (_connection, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
        still_works(&node, &door).await;
        assert_eq!(node.counts("mute").await, None);
    }

    #[tokio::test]
    async fn a_plugin_that_sends_garbage_is_refused() {
        let (node, door) = at_work().await;
        let listener =
            UnixListener::bind(node.agent_settings.plugin_folder.join("junk.sock")).unwrap();
        let mut call = register(&node, "junk.sock", "example.com/junk");
        let (mut connection, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
        connection.write_all(&garbage()[24..]).await.ok();
        drop(connection);
        drop(listener);
        let refusal = timeout(PATIENCE, call.join_next())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        assert!(refusal.is_some(), "it was registered");
        still_works(&node, &door).await;
    }

    #[tokio::test]
    async fn a_plugin_that_is_not_there_is_refused_by_name() {
        let (node, door) = at_work().await;
        for socket in ["gone.sock", "../gone.sock", ""] {
            let mut call = register(&node, socket, "example.com/gone");
            let refusal = timeout(PATIENCE, call.join_next())
                .await
                .unwrap()
                .unwrap()
                .unwrap();
            let message = refusal.expect("refused").message().to_owned();
            assert!(
                message.contains(socket.trim_start_matches("../")),
                "{message}"
            );
        }
        still_works(&node, &door).await;
    }

    #[tokio::test]
    async fn names_and_versions_that_are_none_are_refused() {
        let (node, door) = at_work().await;
        for name in ["", "none", "a b/c", "kubernetes.io/x", "x/"] {
            let mut call = register(&node, "x.sock", name);
            let refusal = timeout(PATIENCE, call.join_next())
                .await
                .unwrap()
                .unwrap()
                .unwrap();
            let message = refusal.expect("refused").message().to_owned();
            assert!(message.contains("is invalid"), "{name:?}: {message}");
        }
        still_works(&node, &door).await;
    }

    #[tokio::test]
    async fn garbage_at_its_own_sockets_is_not_heard() {
        let (node, door) = at_work().await;
        for socket in [
            node.agent_settings.plugin_folder.join("kubelet.sock"),
            node.agent_settings.pod_resources_socket.clone(),
            node.kubelet_settings.root_dir.join("kubelet-api.sock"),
        ] {
            let mut stream = UnixStream::connect(&socket).await.unwrap();
            stream.write_all(&garbage()).await.ok();
            let mut answer = vec![];
            // It hangs up, or waits for more; both are well.
            timeout(Duration::from_millis(300), stream.read_to_end(&mut answer))
                .await
                .ok();
        }
        still_works(&node, &door).await;
    }
}

mod peers_of_the_agent {
    use super::*;

    #[tokio::test]
    async fn garbage_and_silence_at_a_plugin_disturb_no_other_call() {
        let (node, door) = at_work().await;
        let socket = node
            .agent_settings
            .plugin_folder
            .join(node.socket_of(&door).unwrap());
        let mut silent = vec![];
        for _ in 0..20 {
            silent.push(UnixStream::connect(&socket).await.unwrap());
            let mut stream = UnixStream::connect(&socket).await.unwrap();
            stream.write_all(&garbage()).await.ok();
        }
        still_works(&node, &door).await;
    }

    #[tokio::test]
    async fn a_call_for_what_is_no_slot_is_refused_with_the_reason() {
        let (node, door) = at_work().await;
        let beyond = format!("{door}-7");
        for (ids, reason) in [
            (vec!["nonsense"], "is no slot of"),
            (vec![""], "is no slot of"),
            (vec!["good-0"], "is no slot of"),
            (vec![beyond.as_str()], "beyond the capacity"),
        ] {
            let refusal = node.allocate(&door, &ids).await.unwrap_err();
            assert!(refusal.message().contains(reason), "{ids:?}: {refusal}");
        }
        let slot = format!("{door}-1");
        let refusal = node.allocate(&door, &[&slot, &slot]).await.unwrap_err();
        assert!(refusal.message().contains("twice"), "{refusal}");
        assert_eq!(node.usage(&door).len(), 1, "a refused call claims nothing");
        still_works(&node, &door).await;
    }

    #[tokio::test]
    async fn a_kubelet_that_never_answers_is_given_up_for_the_next_one() {
        let mut node = TestNode::new();
        let folder = node.agent_settings.plugin_folder.clone();
        fs::create_dir_all(&folder).unwrap();
        let mute = UnixListener::bind(folder.join("kubelet.sock")).unwrap();
        node.start_agent();
        node.configure("cam", "capacity: 1");
        node.devices.see("cam", [device("door")]);
        let (_connection, _) = timeout(PATIENCE, mute.accept()).await.unwrap().unwrap();
        node.start_kubelet();
        node.until_counts(&instance_name("cam", "door"), 1, 1).await;
    }

    #[tokio::test]
    async fn pod_resources_that_hang_or_lie_release_no_slot() {
        let mut node = TestNode::new();
        let socket = node.root().join("pods.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        node.agent_settings.pod_resources_socket = socket;
        node.agent_settings.kubelet_settles = Duration::ZERO;
        node.agent_settings.between_looks = Duration::from_millis(100);
        node.start_kubelet();
        node.start_agent();
        node.configure("cam", "capacity: 1");
        node.devices.see("cam", [device("door")]);
        let door = instance_name("cam", "door");
        node.until_counts(&door, 1, 1).await;
        node.allocate(&door, &[&format!("{door}-0")]).await.unwrap();
        let mut held = vec![];
        for n in 0..6 {
            let (mut connection, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
            if n % 3 == 0 {
                held.push(connection); // and never a word; it is given up after a while
            } else {
                connection.write_all(&garbage()).await.ok();
            }
        }
        assert_eq!(node.usage(&door).len(), 1);
    }
}

mod configurations {
    use super::*;

    /// File, text, and a part of what is said of it.
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn bad_manifests() -> Vec<(&'static str, String, &'static str)> {
        let good = |name: &str, spec: &str| {
            format!(
                "apiVersion: akri.sh/v0\nkind: Configuration\nmetadata: {{name: {name}}}\nspec: {spec}\n"
            )
        };
        let handler = "discoveryHandler: {name: test, discoveryDetails: x}";
        let long = "a".repeat(53);
        vec![
            ("text", "{{{".to_owned(), ""),
            ("binary", "\u{1}\u{2}\u{fffd}".to_owned(), ""),
            (
                "nospec",
                "apiVersion: akri.sh/v0\nkind: Configuration\nmetadata: {name: nospec}\n"
                    .to_owned(),
                "spec",
            ),
            (
                "handler",
                good("a", "{discoveryHandler: {name: nobody}}"),
                "\"nobody\" is not a handler",
            ),
            (
                "details",
                good(
                    "b",
                    "{discoveryHandler: {name: test, discoveryDetails: refused}}",
                ),
                "is no test",
            ),
            (
                "zeroconf",
                good(
                    "z",
                    "{discoveryHandler: {name: zeroconf, discoveryDetails: 'kin: x'}}",
                ),
                "kin",
            ),
            (
                "capacity",
                good("c", &format!("{{{handler}, capacity: 0}}")),
                "capacity is 0",
            ),
            (
                "many",
                good("c2", &format!("{{{handler}, capacity: many}}")),
                "spec.capacity: ",
            ),
            (
                "grace",
                good("d", &format!("{{{handler}, gracePeriodSeconds: -1}}")),
                "gracePeriodSeconds is -1",
            ),
            ("dots", good("a.b", &format!("{{{handler}}}")), "no dots"),
            (
                "long",
                good(&long, &format!("{{{handler}}}")),
                "52 are the most",
            ),
            (
                "brokers",
                good("e", &format!("{{{handler}, brokerSpec: {{}}}}")),
                "one of brokerPodSpec",
            ),
            (
                "twice",
                good("good", &format!("{{{handler}}}")),
                "is in good.yaml already",
            ),
        ]
    }

    #[tokio::test]
    async fn each_bad_manifest_says_what_is_wrong_and_the_others_are_used() {
        let (node, door) = at_work().await;
        let rows = bad_manifests();
        for (file, text, _) in &rows {
            node.write_manifest(&format!("{file}.yaml"), text);
        }
        for (file, _, reason) in &rows {
            node.until_error(&format!("{file}.yaml"), reason).await;
        }
        still_works(&node, &door).await;
        assert_eq!(node.error_of("good.yaml"), None);
    }

    #[tokio::test]
    async fn a_manifest_that_becomes_bad_ends_nothing_that_runs() {
        let (node, door) = at_work().await;
        node.write_manifest(
            "good.yaml",
            "apiVersion: akri.sh/v0\nkind: Configuration\nmetadata: {",
        );
        node.until_error("good.yaml", "").await;
        still_works(&node, &door).await;
        node.configure("good", "capacity: 3");
        node.until_counts(&door, 3, 3).await;
        assert_eq!(node.error_of("good.yaml"), None);
    }

    #[tokio::test]
    async fn a_folder_of_configurations_that_is_gone_deletes_nothing_and_is_read_when_it_is_back() {
        let (node, door) = at_work().await;
        let away = node.root().join("away");
        fs::rename(node.configurations(), &away).unwrap();
        node.until("the folder is missed", async || {
            let path = node.configurations().display().to_string();
            node.agent_log()
                .contains(&format!("cannot list {path}"))
                .then_some(())
        })
        .await;
        still_works(&node, &door).await;
        fs::rename(&away, node.configurations()).unwrap();
        node.configure("good", "capacity: 3");
        node.until_counts(&door, 3, 3).await;
    }
}

mod disks {
    use super::*;

    #[tokio::test]
    async fn a_full_disk_refuses_a_claim_with_the_path_and_leaves_the_old_file_whole() {
        let (node, door) = at_work().await;
        let file = format!("default_{door}.yaml");
        let folder = node.state().join("instances");
        let before = fs::read_to_string(folder.join(&file)).unwrap();
        // What is written first goes to a device on which there is never room.
        symlink("/dev/full", folder.join(format!(".{file}.tmp"))).unwrap();
        let refusal = node
            .allocate(&door, &[&format!("{door}-1")])
            .await
            .unwrap_err();
        assert!(refusal.message().contains(&file), "{refusal}");
        assert!(
            refusal.message().contains("No space left on device"),
            "{refusal}"
        );
        assert_eq!(fs::read_to_string(folder.join(&file)).unwrap(), before);
        assert!(
            fs::metadata("/dev/full")
                .unwrap()
                .file_type()
                .is_char_device()
        );
        still_works(&node, &door).await;
    }

    #[tokio::test]
    async fn an_instance_that_cannot_be_written_is_tried_again() {
        let (node, door) = at_work().await;
        let roof = instance_name("good", "roof");
        let folder = node.state().join("instances");
        // A folder where its file should be.
        let obstacle = folder.join(format!("default_{roof}.yaml"));
        fs::create_dir_all(obstacle.join("full")).unwrap();
        node.devices.see("good", [device("door"), device("roof")]);
        node.until("it is said which file", async || {
            let log = node.agent_log();
            log.contains("the Instance cannot be written")
                .then_some(())?;
            log.contains(&obstacle.display().to_string()).then_some(())
        })
        .await;
        assert_eq!(node.counts(&roof).await, None);
        fs::remove_dir_all(&obstacle).unwrap();
        node.until_counts(&roof, 2, 2).await;
        still_works(&node, &door).await;
    }

    #[tokio::test]
    async fn a_state_folder_that_is_gone_ends_nothing_and_is_filled_again_when_it_is_back() {
        let (node, door) = at_work().await;
        let folder = node.state().join("instances");
        let away = node.root().join("away");
        fs::rename(&folder, &away).unwrap();
        let refusal = node
            .allocate(&door, &[&format!("{door}-1")])
            .await
            .unwrap_err();
        assert!(
            refusal.message().contains(&folder.display().to_string()),
            "{refusal}"
        );
        assert_eq!(node.counts(&door).await, Some((2, 2)));
        fs::rename(&away, &folder).unwrap();
        still_works(&node, &door).await;
    }

    #[tokio::test]
    async fn an_instance_file_that_is_half_a_file_costs_its_device_nothing_but_its_age() {
        let (mut node, door) = at_work().await;
        node.stop_agent().await;
        let path = node.state().join(format!("instances/default_{door}.yaml"));
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, &text[..text.len() / 2]).unwrap();
        node.start_agent();
        node.until_counts(&door, 2, 2).await;
        assert_eq!(node.restarts("broker").await, Some(0));
    }

    #[tokio::test]
    async fn a_plugin_folder_that_is_replaced_is_used_again() {
        let (mut node, door) = at_work().await;
        node.stop_kubelet().await;
        fs::remove_dir_all(&node.agent_settings.plugin_folder).unwrap();
        node.start_kubelet();
        node.until_counts(&door, 2, 2).await;
    }

    #[tokio::test]
    async fn a_folder_too_deep_for_sockets_is_named_and_tried_again() {
        // The kubelet's own sockets just fit.
        let mut node = TestNode::in_folder(&"d".repeat(60));
        node.start_kubelet();
        node.start_agent();
        node.configure("cam", "capacity: 1");
        node.devices.see("cam", [device("door")]);
        let door = instance_name("cam", "door");
        node.instance(&door).await;
        let folder = node.agent_settings.plugin_folder.display().to_string();
        let message = format!("{folder}: the path is too long for sockets");
        node.until("it is said twice which folder", async || {
            let log = node.agent_log();
            let of_door = log
                .lines()
                .filter(|l| l.contains(&door) && l.contains(&message));
            (of_door.count() >= 2).then_some(())
        })
        .await;
        node.assert_all_run();
    }
}
