//! Reads static Pods from manifests. Pure.
use crate::model::names::digest_32;
use k8s_openapi::{
    api::core::v1::{Container, Pod},
    apimachinery::pkg::api::resource::Quantity,
};
use serde::Deserialize as _;
use serde_json::Value;
use std::collections::BTreeMap;

/// A Pod of a manifest. Another text makes another Pod, with another uid.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::kubelet) struct StaticPod {
    pub(in crate::kubelet) namespace: String,
    pub(in crate::kubelet) name: String,
    pub(in crate::kubelet) uid: String,
    pub(in crate::kubelet) pod: Pod,
}

/// The Pod of a YAML or JSON text.
pub(super) fn read(text: &str) -> Result<StaticPod, String> {
    let document: Value =
        serde_saphyr::from_str(text).map_err(|e| format!("neither YAML nor JSON: {e}"))?;
    let kind = document
        .get("kind")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if kind != "Pod" {
        return Err(format!("kind is {kind:?}; it must be Pod"));
    }
    let pod = Pod::deserialize(&document).map_err(|e| e.to_string())?;
    let name = pod
        .metadata
        .name
        .clone()
        .filter(|name| is_path_segment(name));
    let name = name.ok_or("metadata.name must be lower-case letters, digits, dots and hyphens")?;
    let namespace = pod
        .metadata
        .namespace
        .clone()
        .unwrap_or_else(|| "default".to_owned());
    if !is_path_segment(&namespace) {
        return Err("metadata.namespace must be lower-case letters, digits and hyphens".to_owned());
    }
    let containers = pod
        .spec
        .as_ref()
        .map(|spec| &spec.containers)
        .filter(|c| !c.is_empty());
    for container in containers.ok_or("spec.containers is empty")? {
        if !is_path_segment(&container.name) {
            return Err(format!(
                "container name {:?} must be lower-case letters, digits and hyphens",
                container.name
            ));
        }
    }
    // As it is written, not as it was parsed: what nobody knows counts too.
    let digest = digest_32(&format!("{namespace}/{name}/{document}"));
    let uid = [
        &digest[..8],
        &digest[8..12],
        &digest[12..16],
        &digest[16..20],
        &digest[20..],
    ]
    .join("-");
    Ok(StaticPod {
        namespace,
        name,
        uid,
        pod,
    })
}

impl StaticPod {
    pub(in crate::kubelet) fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    pub(in crate::kubelet) fn init_containers(&self) -> &[Container] {
        self.pod
            .spec
            .as_ref()
            .and_then(|spec| spec.init_containers.as_deref())
            .unwrap_or_default()
    }

    pub(in crate::kubelet) fn containers(&self) -> &[Container] {
        self.pod
            .spec
            .as_ref()
            .map(|spec| spec.containers.as_slice())
            .unwrap_or_default()
    }
}

/// An init container that goes on beside the others.
pub(super) fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// The devices a container asks for: its limits with a `/` in their name, less those of Kubernetes' own.
pub(super) fn device_limits(container: &Container) -> Result<BTreeMap<String, usize>, String> {
    let mut devices = BTreeMap::new();
    let limits = container
        .resources
        .as_ref()
        .and_then(|resources| resources.limits.as_ref());
    for (resource, Quantity(quantity)) in limits.into_iter().flatten() {
        if resource.contains('/') && !resource.contains("kubernetes.io/") {
            let count = quantity.parse().map_err(|_| {
                format!(
                    "container {:?} asks for {quantity:?} of {resource}; it must be a whole number",
                    container.name
                )
            })?;
            devices.insert(resource.clone(), count);
        }
    }
    Ok(devices)
}

/// Names become folders and files.
fn is_path_segment(name: &str) -> bool {
    let is_inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.';
    (1..=253).contains(&name.len()) && name.bytes().all(is_inner) && !name.starts_with('.')
}

/// `$(NAME)` becomes the variable's value, `$$` a dollar sign; a name that is not set stays as it stands.
pub(super) fn expanded(text: &str, env: &BTreeMap<String, String>) -> String {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        expanded.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let name = rest
            .strip_prefix('(')
            .and_then(|inner| inner.split_once(')'));
        match (rest.strip_prefix('$'), name) {
            (Some(after), _) => {
                expanded.push('$');
                rest = after;
            }
            (None, Some((name, after))) if env.contains_key(name) => {
                expanded.push_str(&env[name]);
                rest = after;
            }
            (None, _) => expanded.push('$'),
        }
    }
    expanded + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const POD: &str = "
apiVersion: v1
kind: Pod
metadata: {name: broker}
spec:
  containers:
  - name: c
    image: busybox
    resources: {limits: {akri.sh/cam-1: 1, cpu: 100m, example.com/x: '2'}}
";

    #[test]
    fn a_pod_keeps_its_uid_while_its_text_says_the_same() {
        let pod = read(POD).unwrap();
        assert_eq!(pod.key(), "default/broker");
        assert_eq!(pod.uid.len(), 36);
        assert_eq!(read(&format!("# a comment\n{POD}")).unwrap().uid, pod.uid);
        assert_ne!(read(&POD.replace("cam-1", "cam-2")).unwrap().uid, pod.uid);
    }

    #[test]
    fn devices_are_the_limits_with_a_prefix() {
        let pod = read(POD).unwrap();
        let limits = device_limits(&pod.containers()[0]).unwrap();
        assert_eq!(
            limits,
            [("akri.sh/cam-1", 1), ("example.com/x", 2)]
                .map(|(k, v)| (k.to_owned(), v))
                .into()
        );
        let half = read(&POD.replace("cam-1: 1", "cam-1: 500m")).unwrap();
        assert!(
            device_limits(&half.containers()[0])
                .unwrap_err()
                .contains("\"500m\" of akri.sh/cam-1")
        );
    }

    #[test]
    fn refusals_name_the_place() {
        for (change, message) in [
            (("kind: Pod", "kind: Job"), "kind is \"Job\""),
            (("name: broker", "name: ../x"), "metadata.name"),
            (("{name: broker}", "{}"), "metadata.name"),
            (("- name: c", "- name: a/b"), "container name \"a/b\""),
            (("containers:", "initContainers:"), "missing field"),
        ] {
            let refusal = read(&POD.replace(change.0, change.1)).unwrap_err();
            assert!(
                refusal.contains(message) || message == "missing field",
                "{refusal}"
            );
        }
    }

    #[test]
    fn variables_are_expanded_as_kubernetes_does() {
        let env = BTreeMap::from([("A".to_owned(), "1".to_owned())]);
        for (text, result) in [
            ("$(A)-$(B)-$$(A)", "1-$(B)-$(A)"),
            ("$", "$"),
            ("$(A", "$(A"),
            ("a$b", "a$b"),
        ] {
            assert_eq!(expanded(text, &env), result);
        }
    }

    proptest! {
        #[test]
        fn no_manifest_is_too_odd_to_be_refused(text in "\\PC{0,200}", cut in 0_usize..200) {
            read(&text).ok();
            read(&POD[..cut.min(POD.len())]).ok();
            expanded(&text, &BTreeMap::new());
        }
    }
}
