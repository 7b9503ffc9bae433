use super::*;
use crate::api::{configuration::ConfigurationSpec, instance::InstanceSpec};

fn instance(shared: bool) -> Instance {
    let mut instance = Instance::new(
        "cam.a-1",
        InstanceSpec {
            configuration_name: "cam".into(),
            shared,
            ..InstanceSpec::default()
        },
    );
    instance.metadata.uid = Some("uid".to_owned());
    instance
}

fn configuration(broker: Value) -> Configuration {
    let spec: ConfigurationSpec = serde_json::from_value(json!({
        "discoveryHandler": { "name": "debugEcho" },
        "brokerSpec": broker,
    }))
    .unwrap();
    Configuration::new("cam", spec)
}

fn with<T>(shared: bool, f: impl FnOnce(Subject<'_>) -> T) -> T {
    let (key, instance) = (InstanceKey::new("ns", "cam.a-1"), instance(shared));
    f(Subject {
        key: &key,
        instance: &instance,
        resource_prefix: &"akri.sh".parse().unwrap(),
    })
}

const AFFINITY: &str =
    "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";

fn named(node: &str) -> Value {
    json!({"key": "metadata.name", "operator": "In", "values": [node]})
}

fn made(spec: &Value, nodes: &[&str]) -> Result<Value, SpecError> {
    let nodes: Vec<NodeName> = nodes.iter().map(|node| (*node).into()).collect();
    let nodes: Vec<&NodeName> = nodes.iter().collect();
    with(true, |subject| pod(subject, "cam-a-1-pod", &nodes, spec))
}

/// Returns what keeps brokers of one Instance apart, and spreads those of a Configuration.
fn apart() -> (Value, Value) {
    let of_configuration = json!({"controller": "akri.sh", "akri.sh/configuration": "cam"});
    let mut of_instance = of_configuration.clone();
    of_instance["akri.sh/instance"] = json!("cam.a-1");
    let apart = json!({"labelSelector": {"matchLabels": of_instance}, "topologyKey": "kubernetes.io/hostname"});
    let spread = json!({
        "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": of_configuration},
    });
    (apart, spread)
}

#[test]
fn a_pod_has_akris_name_labels_and_owner_and_keeps_what_is_unknown_to_us() {
    let spec = json!({
        "unknownToUs": "kept",
        "containers": [{"name": "a", "resources": {"limits": {"{{PLACEHOLDER}}": 1, "cpu": "1"}}}],
    });
    let made = made(&spec, &["node-a"]).unwrap();
    let (apart, spread) = apart();
    let expected = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "cam-a-1-pod",
            "namespace": "ns",
            "labels": {
                "app": "cam-a-1-pod",
                "controller": "akri.sh",
                "akri.sh/configuration": "cam",
                "akri.sh/instance": "cam.a-1",
            },
            "ownerReferences": [{
                "apiVersion": "akri.sh/v0", "kind": "Instance", "name": "cam.a-1", "uid": "uid",
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "unknownToUs": "kept",
            "containers": [{"name": "a", "resources": {"limits": {"akri.sh/cam.a-1": 1, "cpu": "1"}}}],
            "affinity": {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchFields": [named("node-a")]}],
                }},
                "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]},
            },
            "topologySpreadConstraints": [spread],
        },
    });
    assert_eq!(made, expected);
    let names = [0, 1, 12].map(|n| with(false, |s| pod_name(s, n)));
    assert_eq!(names, ["cam-a-1-pod", "cam-a-1-1-pod", "cam-a-1-12-pod"]);
    let fixed = with(true, |s| static_pod(s, "node-a", &spec)).unwrap();
    assert_eq!(fixed["metadata"]["name"], "node-a-cam-a-1-pod");
    assert_eq!(fixed["metadata"]["labels"]["akri.sh/target-node"], "node-a");
    assert_eq!(fixed["spec"].get("affinity"), None);
    let of_windows = with(true, |s| static_pod(s, "DESKTOP-1AB", &spec)).unwrap();
    assert_eq!(of_windows["metadata"]["name"], "desktop-1ab-cam-a-1-pod");
}

#[test]
fn each_node_is_joined_with_each_of_the_users_terms_because_any_one_of_them_is_enough() {
    let zone = json!([{"key": "zone", "operator": "Exists"}]);
    let spec = json!({
        "containers": [],
        "affinity": {
            "podAffinity": {"kept": true},
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": ["kept"]},
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": zone},
                {"matchFields": [named("node-c")]},
                {},
            ]}},
        },
    });
    let made = made(&spec, &["node-a", "node-b"]).unwrap();
    let expected = json!([
        {"matchExpressions": zone, "matchFields": [named("node-a")]},
        {"matchExpressions": zone, "matchFields": [named("node-b")]},
        {"matchFields": [named("node-c"), named("node-a")]},
        {"matchFields": [named("node-c"), named("node-b")]},
    ]);
    assert_eq!(made.pointer(AFFINITY), Some(&expected));
    let affinity = &made["spec"]["affinity"];
    assert_eq!(affinity["podAffinity"], json!({"kept": true}));
    let others = &affinity["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    assert_eq!(*others, json!(["kept", apart().0]));
    let read: Vec<String> = named_nodes(affinity)
        .iter()
        .map(|n| n.to_string())
        .collect();
    assert_eq!(read, ["node-a", "node-b", "node-c"]);
}

#[test]
fn affinity_and_spread_that_are_null_or_empty_are_none() {
    for affinity in [
        json!(null),
        json!({}),
        json!({"nodeAffinity": null, "podAntiAffinity": null}),
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}),
    ] {
        for spread in [json!(null), json!([])] {
            let spec = json!({"containers": [], "affinity": affinity, "topologySpreadConstraints": spread});
            let made = made(&spec, &["node-a"]).unwrap();
            let expected = json!([{"matchFields": [named("node-a")]}]);
            assert_eq!(made.pointer(AFFINITY), Some(&expected), "{affinity}");
            assert_eq!(
                made["spec"]["topologySpreadConstraints"],
                json!([apart().1])
            );
        }
    }
    for nothing in [json!(null), json!({}), json!({"nodeAffinity": 1})] {
        assert!(named_nodes(&nothing).is_empty());
    }
}

#[test]
fn how_the_user_spreads_pods_counts() {
    let zones =
        json!([{"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]);
    let spec = json!({"containers": [], "topologySpreadConstraints": zones});
    assert_eq!(
        made(&spec, &["a"]).unwrap()["spec"]["topologySpreadConstraints"],
        zones
    );
    let spec = json!({"template": {"spec": spec}});
    let made = with(true, |subject| job(subject, 1, &spec, &BTreeMap::new())).unwrap();
    assert_eq!(
        made["spec"]["template"]["spec"]["topologySpreadConstraints"],
        zones
    );
}

#[test]
fn what_no_scheduler_could_follow_is_refused() {
    let terms = |terms: Value| {
        let required = json!({"nodeSelectorTerms": terms});
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}})
    };
    let terms_path =
        "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    let one = json!({"matchFields": [named("node-a")]});
    for (part, path) in [
        (json!({"nodeName": "node-a"}), "nodeName"),
        (terms(json!([{}, {"matchExpressions": []}])), terms_path),
        (terms(json!(vec![one.clone(); 17])), terms_path),
        (
            json!({"topologySpreadConstraints": {}}),
            "topologySpreadConstraints",
        ),
        (
            json!({"affinity": {"podAntiAffinity": []}}),
            "affinity.podAntiAffinity",
        ),
    ] {
        let mut spec = json!({"containers": []});
        spec.as_object_mut()
            .unwrap()
            .extend(part.as_object().unwrap().clone());
        let error = check(&configuration(json!({"brokerPodSpec": spec}))).unwrap_err();
        assert_eq!(error.path, format!("brokerPodSpec.{path}"));
        assert_eq!(made(&spec, &["node-a"]), Err(error));
    }
    let spec = json!({"containers": [], "nodeName": ""});
    assert_eq!(
        check(&configuration(json!({"brokerPodSpec": spec}))),
        Ok(())
    );
    let spec = json!({"template": {"spec": {"containers": [], "nodeName": "node-a"}}});
    let error = check(&configuration(json!({"brokerJobSpec": spec}))).unwrap_err();
    assert_eq!(error.path, "brokerJobSpec.template.spec.nodeName");
    // The kubelet that reads it from a folder is the node.
    let fixed = configuration(json!({"brokerPodSpec": {"containers": [], "nodeName": "node-a"}}));
    assert_eq!(check_static(&fixed.spec), Ok(()));
    let most = terms(json!(vec![one; 16]));
    let mut spec = json!({"containers": []});
    spec.as_object_mut()
        .unwrap()
        .extend(most.as_object().unwrap().clone());
    let nodes: Vec<String> = (0..NODES_MAX).map(|n| format!("node-{n}")).collect();
    let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
    let made = made(&spec, &nodes).unwrap();
    assert_eq!(
        made.pointer(AFFINITY).unwrap().as_array().unwrap().len(),
        1024
    );
}

#[test]
fn a_jobs_pods_have_the_labels_that_services_select_and_run_where_the_configuration_says() {
    let spec = json!({
        "backoffLimit": 3,
        "template": {
            "metadata": {"labels": {"mine": "kept"}},
            "spec": {
                "initContainers": [{"resources": {"requests": {"{{PLACEHOLDER}}": "1"}}}],
                "containers": [{"name": "a"}],
            },
        },
    });
    let zone = [("zone".to_owned(), "a".to_owned())].into();
    let made = with(true, |subject| job(subject, 4, &spec, &zone)).unwrap();
    assert_eq!(made["metadata"]["name"], "cam-a-1-4-job");
    assert_eq!(made["metadata"]["labels"]["app"], "cam-a-1-4-job");
    assert_eq!(made["metadata"]["ownerReferences"][0]["uid"], "uid");
    let expected = json!({
        "backoffLimit": 3,
        "template": {
            "metadata": {"labels": {
                "mine": "kept",
                "controller": "akri.sh",
                "akri.sh/configuration": "cam",
                "akri.sh/instance": "cam.a-1",
            }},
            "spec": {
                "initContainers": [{"resources": {"requests": {"akri.sh/cam.a-1": "1"}}}],
                "containers": [{"name": "a"}],
                "nodeSelector": {"zone": "a"},
                "topologySpreadConstraints": [apart().1],
            },
        },
    });
    assert_eq!(made["spec"], expected);
}

#[test]
fn a_spec_that_is_broken_is_named_and_nothing_panics() {
    for (pod_spec, expected) in [
        (json!("x"), "brokerPodSpec is a text: it must be an object"),
        (
            json!({}),
            "brokerPodSpec.containers is missing: it must be a list of containers",
        ),
        (
            json!({"containers": {}}),
            "brokerPodSpec.containers is an object: it must be a list of containers",
        ),
        (
            json!({"containers": [{}, 3]}),
            "brokerPodSpec.containers[1] is a number: it must be an object",
        ),
        (
            json!({"containers": [{"resources": []}]}),
            "brokerPodSpec.containers[0].resources is a list: it must be an object",
        ),
        (
            json!({"containers": [], "initContainers": [{"resources": {"limits": true}}]}),
            "brokerPodSpec.initContainers[0].resources.limits is true or false: it must be an object",
        ),
        (
            json!({"containers": [{"resources": {"limits": {"cpu": 1, "{{PLACEHOLDR}}": "1"}}}]}),
            "brokerPodSpec.containers[0].resources.limits[\"{{PLACEHOLDR}}\"] is no resource: it must be \"{{PLACEHOLDER}}\", which stands for the device",
        ),
        (
            json!({"containers": [{"resources": {"requests": {"akri.sh/{{PLACEHOLDER}}": "1"}}}]}),
            "brokerPodSpec.containers[0].resources.requests[\"akri.sh/{{PLACEHOLDER}}\"] is no resource: it must be \"{{PLACEHOLDER}}\", which stands for the device",
        ),
    ] {
        let error = check(&configuration(json!({"brokerPodSpec": pod_spec}))).unwrap_err();
        assert_eq!(error.to_string(), format!("spec.brokerSpec.{expected}"));
        assert_eq!(made(&pod_spec, &["n"]), Err(error));
    }
    for (affinity, path) in [
        (json!("x"), "affinity"),
        (json!({"nodeAffinity": []}), "affinity.nodeAffinity"),
    ] {
        let spec = json!({"containers": [], "affinity": affinity});
        let error = check(&configuration(json!({"brokerPodSpec": spec}))).unwrap_err();
        assert_eq!(error.path, format!("brokerPodSpec.{path}"));
    }
    for (job_spec, path) in [
        (json!([]), "brokerJobSpec"),
        (json!({}), "brokerJobSpec.template"),
        (json!({"template": {}}), "brokerJobSpec.template.spec"),
        (
            json!({"template": {"spec": {"containers": ["x"]}}}),
            "brokerJobSpec.template.spec.containers[0]",
        ),
    ] {
        let error = check(&configuration(json!({"brokerJobSpec": job_spec}))).unwrap_err();
        assert_eq!(error.path, path);
    }
}

#[test]
fn the_digest_follows_the_spec_and_the_broker_properties_and_nothing_else() {
    let first = configuration(json!({"brokerPodSpec": {"containers": []}}));
    let mut other = first.clone();
    other.spec.capacity = 5;
    other.spec.discovery_handler.discovery_details = "changed".to_owned();
    assert_eq!(digest(&other), digest(&first));
    other
        .spec
        .broker_properties
        .insert("A".to_owned(), "1".to_owned());
    assert_ne!(digest(&other), digest(&first));
    let other = configuration(json!({"brokerPodSpec": {"containers": [{}]}}));
    assert_ne!(digest(&other), digest(&first));
}

#[test]
fn long_names_are_cut_and_stay_apart() {
    let mut instance = instance(true);
    instance.spec.configuration_name = "c".repeat(70).into();
    let key = InstanceKey::new("ns", format!("{}-1", "c".repeat(70)));
    let subject = Subject {
        key: &key,
        instance: &instance,
        resource_prefix: &"akri.sh".parse().unwrap(),
    };
    let name = pod_name(subject, 0);
    assert_ne!(name, pod_name(subject, 1));
    let made = pod(subject, &name, &[&"n".into()], &json!({"containers": []})).unwrap();
    for (_, value) in made["metadata"]["labels"].as_object().unwrap() {
        assert!(value.as_str().unwrap().len() <= 63, "{value}");
    }
    assert_ne!(job_name(subject, 1), job_name(subject, 2));
}
