//! Gives brokers their device by a ResourceClaim: where the spec names the placeholder's resource, the container gets a claim. Pure.
use super::{Subject, labels, owners};
use crate::model::{dra, names::shortened, typed_names::ConfigurationKey};
use serde_json::{Value, json};

/// The name of the claim in a Pod.
const CLAIM: &str = "akri-device";
/// Kubernetes' own limit of names.
const NAME_LIMIT: usize = 253;

/// Returns the template of the claims of an Instance's brokers: each Pod gets a claim of its own. The Instance owns it.
pub fn claim_template(subject: Subject<'_>) -> Value {
    let instance = subject.instance;
    let of: ConfigurationKey = instance.spec.configuration_key(&subject.key.namespace);
    let (driver, name) = (dra::DRIVER, dra::device_name(&subject.key.name));
    let expression = format!("device.attributes[\"{driver}\"].instance == \"{name}\"");
    let request = json!({
        "name": CLAIM,
        "exactly": {
            "deviceClassName": dra::class_name(&of),
            "selectors": [{"cel": {"expression": expression}}],
        },
    });
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {
            "name": template_name(subject),
            "namespace": subject.key.namespace,
            "labels": labels(subject),
            "ownerReferences": owners(subject),
        },
        "spec": {"spec": {"devices": {"requests": [request]}}},
    })
}

fn template_name(subject: Subject<'_>) -> String {
    shortened(&format!("{}-broker", subject.key.name), NAME_LIMIT)
}

/// Replaces the Instance's resource in the containers of a PodSpec by a claim.
pub fn by_claim(subject: Subject<'_>, pod_spec: &mut Value) {
    let resource = subject.resource();
    let mut is_found = false;
    for kind in ["initContainers", "containers"] {
        let containers = pod_spec.get_mut(kind).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let Some(resources) = container.get_mut("resources") else {
                continue;
            };
            let removed = ["limits", "requests"].map(|bound| {
                let quantities = resources.get_mut(bound).and_then(Value::as_object_mut);
                quantities.is_some_and(|all| all.remove(resource.as_str()).is_some())
            });
            if removed.contains(&true) {
                is_found = true;
                push(resources, "claims", json!({"name": CLAIM}));
            }
        }
    }
    if is_found {
        let template = template_name(subject);
        let claim = json!({"name": CLAIM, "resourceClaimTemplateName": template});
        push(pod_spec, "resourceClaims", claim);
    }
}

/// Adds to a list of the user's, which may be missing. One that is no list is the API server's to refuse.
fn push(object: &mut Value, field: &str, value: Value) {
    if object[field].is_null() {
        object[field] = json!([]);
    }
    if let Some(list) = object[field].as_array_mut() {
        list.push(value);
    }
}
