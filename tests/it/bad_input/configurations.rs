//! Tests of invalid manifests.
use super::*;

/// The rows: a file name, the text, and a part of the error.
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
            "apiVersion: akri.sh/v0\nkind: Configuration\nmetadata: {name: nospec}\n".to_owned(),
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
            "slots",
            good("c3", &format!("{{{handler}, capacity: 2147483647}}")),
            "capacity is 2147483647; it must be 10000 or less",
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
        (
            "path",
            good(
                "p",
                &format!("{{{handler}, containerDevices: {{path: /dev/../etc/a}}}}"),
            ),
            "containerDevices.path is \"/dev/../etc/a\"; it must be absolute",
        ),
        (
            "rights",
            good(
                "r",
                &format!("{{{handler}, containerDevices: {{mode: '0660'}}}}"),
            ),
            "set cdi.write of the chart (--cdi-folder)",
        ),
        (
            "names",
            good("m", &format!("{{{handler}, instanceName: '{{X}} a'}}")),
            "instanceName is \"{X} a\"; it must be lower-case letters",
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

/// The object was written by another program, or by an agent before the limit existed.
#[tokio::test]
async fn an_instance_with_a_capacity_without_bound_offers_a_bounded_number_of_slots() {
    let mut node = TestNode::new();
    let door = instance_name("cam", "door");
    node.configure("cam", "capacity: 2147483647");
    let folder = node.state().join("instances");
    fs::create_dir_all(&folder).unwrap();
    let text = format!(
        "apiVersion: akri.sh/v0\nkind: Instance\n\
         metadata: {{name: {door}, namespace: default, annotations: {{akri.sh/device-id: door}}}}\n\
         spec: {{configurationName: cam, cdiName: akri.sh/cam=1, capacity: 2147483647, nodes: [node-a], shared: true}}\n"
    );
    fs::write(folder.join(format!("default_{door}.yaml")), text).unwrap();
    node.start_kubelet();
    node.start_agent();
    node.until_error(
        "cam.yaml",
        "capacity is 2147483647; it must be 10000 or less",
    )
    .await;
    node.until_counts(&door, 10_000, 10_000).await;
}
