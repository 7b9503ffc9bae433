//! Gives brokers their device by a ResourceClaim: where the spec names the placeholder's resource, the container gets a claim. Pure.
use crate::model::dra;
use serde_json::{Value, json};

/// The name of the claim in a Pod.
const CLAIM: &str = "akri-device";

/// Returns the template of claims for one device of a class.
pub(super) fn template(class: &str, device: &str, metadata: &Value) -> Value {
    let driver = dra::DRIVER;
    let expression = format!("device.attributes[\"{driver}\"].instance == \"{device}\"");
    let selectors = json!([{"cel": {"expression": expression}}]);
    let exactly = json!({"deviceClassName": class, "selectors": selectors});
    let requests = json!([{"name": CLAIM, "exactly": exactly}]);
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": metadata,
        "spec": {"spec": {"devices": {"requests": requests}}},
    })
}

/// Replaces a resource in the containers of a PodSpec by a claim that is made of `template`.
pub(super) fn instead_of(resource: &str, pod_spec: &mut Value, template: &str) {
    let mut is_found = false;
    for kind in ["initContainers", "containers"] {
        let containers = pod_spec.get_mut(kind).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let Some(resources) = container.get_mut("resources") else {
                continue;
            };
            let removed = ["limits", "requests"].map(|bound| {
                let quantities = resources.get_mut(bound).and_then(Value::as_object_mut);
                quantities.is_some_and(|all| all.remove(resource).is_some())
            });
            if removed.contains(&true) {
                is_found = true;
                push(resources, "claims", json!({"name": CLAIM}));
            }
        }
    }
    if is_found {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_that_asks_for_the_resource_asks_by_a_claim() {
        let own = json!({"name": "b", "resources": {"claims": [{"name": "own"}], "limits": {"memory": "1Mi"}}});
        let of_user = json!({"name": "own", "resourceClaimName": "theirs"});
        let mut spec = json!({
            "initContainers": [{"name": "i"}],
            "containers": [
                {"name": "a", "resources": {"limits": {"akri.sh/cam-1": 1, "cpu": "1"}, "requests": {"akri.sh/cam-1": 1}}},
                own.clone(),
            ],
            "resourceClaims": [of_user.clone()],
        });
        instead_of("akri.sh/cam-1", &mut spec, "cam-1-broker");
        assert_eq!(spec["initContainers"], json!([{"name": "i"}]));
        assert_eq!(
            spec["containers"][0]["resources"],
            json!({"limits": {"cpu": "1"}, "requests": {}, "claims": [{"name": "akri-device"}]})
        );
        assert_eq!(spec["containers"][1], own);
        let ours = json!({"name": "akri-device", "resourceClaimTemplateName": "cam-1-broker"});
        assert_eq!(spec["resourceClaims"], json!([of_user, ours]));
        let without = json!({"containers": [{"name": "a"}]});
        let mut same = without.clone();
        instead_of("akri.sh/cam-1", &mut same, "cam-1-broker");
        assert_eq!(same, without);
    }

    #[test]
    fn a_template_selects_one_device_of_the_class() {
        let template = template("akri.ns.cam", "cam-1", &json!({"name": "cam-1-broker"}));
        let exactly = &template["spec"]["spec"]["devices"]["requests"][0]["exactly"];
        assert_eq!(exactly["deviceClassName"], "akri.ns.cam");
        let expression = &exactly["selectors"][0]["cel"]["expression"];
        assert_eq!(
            expression,
            "device.attributes[\"akri.sh\"].instance == \"cam-1\""
        );
    }
}
