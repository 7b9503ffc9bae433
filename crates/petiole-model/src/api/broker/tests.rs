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

fn this_node() -> Value {
    json!({"key": "metadata.name", "operator": "In", "values": ["node-a"]})
}

#[test]
fn a_pod_has_akris_name_labels_and_owner_and_keeps_what_is_unknown_to_us() {
    let spec = json!({
        "unknownToUs": "kept",
        "containers": [{"name": "a", "resources": {"limits": {"{{PLACEHOLDER}}": 1, "cpu": "1"}}}],
    });
    let made = with(true, |subject| pod(subject, "node-a", &spec)).unwrap();
    let expected = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "node-a-cam-a-1-pod",
            "namespace": "ns",
            "labels": {
                "app": "node-a-cam-a-1-pod",
                "controller": "akri.sh",
                "akri.sh/configuration": "cam",
                "akri.sh/instance": "cam.a-1",
                "akri.sh/target-node": "node-a",
            },
            "ownerReferences": [{
                "apiVersion": "akri.sh/v0", "kind": "Instance", "name": "cam.a-1", "uid": "uid",
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "unknownToUs": "kept",
            "containers": [{"name": "a", "resources": {"limits": {"akri.sh/cam.a-1": 1, "cpu": "1"}}}],
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchFields": [this_node()]}],
            }}},
        },
    });
    assert_eq!(made, expected);
    assert_eq!(with(false, |s| pod_name(s, "node-a")), "cam-a-1-pod");
}

#[test]
fn the_node_is_required_by_each_of_the_users_terms_because_any_one_of_them_is_enough() {
    let zone = json!([{"key": "zone", "operator": "Exists"}]);
    let other = json!({"key": "metadata.name", "operator": "In", "values": ["node-b"]});
    let spec = json!({
        "containers": [],
        "affinity": {
            "podAffinity": {"kept": true},
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": zone},
                {"matchFields": [other]},
                {},
            ]}},
        },
    });
    let made = with(true, |subject| pod(subject, "node-a", &spec)).unwrap();
    let expected = json!([
        {"matchExpressions": zone, "matchFields": [this_node()]},
        {"matchFields": [other, this_node()]},
        {},
    ]);
    assert_eq!(made.pointer(AFFINITY), Some(&expected));
    assert_eq!(
        made["spec"]["affinity"]["podAffinity"],
        json!({"kept": true})
    );
}

#[test]
fn affinity_that_is_null_or_empty_is_none() {
    for affinity in [
        json!(null),
        json!({}),
        json!({"nodeAffinity": null}),
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}),
    ] {
        let spec = json!({"containers": [], "affinity": affinity});
        let made = with(true, |subject| pod(subject, "node-a", &spec)).unwrap();
        let expected = json!([{"matchFields": [this_node()]}]);
        assert_eq!(made.pointer(AFFINITY), Some(&expected), "{affinity}");
    }
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
        assert_eq!(with(true, |s| pod(s, "n", &pod_spec)), Err(error));
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
    let made = pod(subject, &"n".repeat(90), &json!({"containers": []})).unwrap();
    for (_, value) in made["metadata"]["labels"].as_object().unwrap() {
        assert!(value.as_str().unwrap().len() <= 63, "{value}");
    }
    assert_ne!(job_name(subject, 1), job_name(subject, 2));
}
