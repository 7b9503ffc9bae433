//! Parses the manifest of a static Pod, checks it, and gives the Pod its name and uid as the kubelet does. Pure.
use crate::{
    device_manager::inventory::Holder,
    resource_name::{is_dns_label, is_dns_subdomain, is_extended},
};
use blake2::{Blake2b, Digest as _, digest::consts::U16};
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use petiole_base::{quantity::count, yaml};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

pub(crate) const HASH_ANNOTATION: &str = "kubernetes.io/config.hash";
const SOURCE_ANNOTATION: &str = "kubernetes.io/config.source";

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PodKey {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// A static Pod that this kubelet can run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StaticPod {
    pub(crate) key: PodKey,
    pub(crate) uid: String,
    /// The Pod of the manifest, with the fields that the kubelet sets.
    pub(crate) pod: Pod,
    pub(crate) spec: PodSpec,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{0}")]
    Syntax(String),
    #[error("apiVersion {version:?}, kind {kind:?}: only v1 Pods are run")]
    NotAPod { version: String, kind: String },
    #[error("{field}: {problem}")]
    Invalid { field: String, problem: String },
}

/// Parses YAML or JSON. The node's name is appended to the Pod's name. The uid is a digest of the whole manifest, so an
/// unchanged file is the same Pod after a restart, and a changed file is another Pod.
pub(crate) fn parse(text: &str, file: &str, node: &str) -> Result<StaticPod, Error> {
    let value: serde_json::Value =
        yaml::from_str(text).map_err(|e| Error::Syntax(e.to_string()))?;
    let field = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
    let (version, kind) = (field("apiVersion"), field("kind"));
    if version != "v1" || kind != "Pod" {
        return Err(Error::NotAPod { version, kind });
    }
    let mut pod: Pod =
        serde_json::from_value(value.clone()).map_err(|e| Error::Syntax(e.to_string()))?;
    let name = pod.metadata.name.clone().unwrap_or_default();
    check(is_dns_subdomain(&name), "metadata.name", || {
        format!("{name:?} is not a DNS-1123 subdomain")
    })?;
    let namespace = pod.metadata.namespace.get_or_insert("default".to_owned());
    let key = PodKey {
        namespace: namespace.clone(),
        name: format!("{name}-{}", node.to_lowercase()),
    };
    check(is_dns_label(&key.namespace), "metadata.namespace", || {
        format!("{:?} is not a DNS-1123 label", key.namespace)
    })?;
    let spec = pod.spec.clone().ok_or_else(|| Error::Invalid {
        field: "spec".to_owned(),
        problem: "is missing".to_owned(),
    })?;
    check_containers(&spec)?;
    let uid = uid(&[&value.to_string(), file, node]);
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(HASH_ANNOTATION.to_owned(), uid.clone());
    annotations.insert(SOURCE_ANNOTATION.to_owned(), "file".to_owned());
    pod.metadata.name = Some(key.name.clone());
    pod.metadata.uid = Some(uid.clone());
    if let Some(spec) = &mut pod.spec {
        spec.node_name = Some(node.to_owned());
    }
    Ok(StaticPod {
        key,
        uid,
        pod,
        spec,
    })
}

impl StaticPod {
    /// Returns a container as the device manager knows it.
    pub(crate) fn holder(&self, container: &Container) -> Holder {
        Holder {
            pod_uid: self.uid.clone(),
            container: container.name.clone(),
        }
    }
}

/// Returns all containers, init containers first.
pub(crate) fn containers(spec: &PodSpec) -> impl Iterator<Item = &Container> {
    let init = spec.init_containers.iter().flatten();
    init.chain(&spec.containers)
}

/// Returns whether an init container is a sidecar, which starts before the main containers and keeps running beside
/// them.
pub(crate) fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// Returns the extended resources that the container requests.
pub(crate) fn limits(container: &Container) -> Result<BTreeMap<String, usize>, Error> {
    let field = || format!("container {}: resources", container.name);
    let resources = container.resources.clone().unwrap_or_default();
    let limits = resources.limits.unwrap_or_default();
    for (name, request) in resources.requests.unwrap_or_default() {
        check(
            // `1k` and `1000` are the same quantity. The limits are checked below if neither of the two is a count.
            !is_extended(&name)
                || limits.get(&name).map(|l| count(&l.0)) == Some(count(&request.0)),
            &field(),
            || format!("{name}: must be equal in requests and limits"),
        )?;
    }
    let extended = limits.into_iter().filter(|(name, _)| is_extended(name));
    extended
        .map(|(name, quantity)| {
            let count = count(&quantity.0).and_then(|count| usize::try_from(count).ok());
            let count = count.ok_or_else(|| Error::Invalid {
                field: field(),
                problem: format!("{name}: {:?} is not a whole number", quantity.0),
            })?;
            Ok((name, count))
        })
        .collect()
}

fn check_containers(spec: &PodSpec) -> Result<(), Error> {
    check(!spec.containers.is_empty(), "spec.containers", || {
        "the list is empty".to_owned()
    })?;
    let policy = spec.restart_policy.as_deref().unwrap_or("Always");
    check(
        ["Always", "OnFailure", "Never"].contains(&policy),
        "spec.restartPolicy",
        || format!("{policy:?} must be Always, OnFailure or Never"),
    )?;
    let mut names = BTreeSet::new();
    for container in containers(spec) {
        let name = &container.name;
        check(is_dns_label(name), "container name", || {
            format!("{name:?} is not a DNS-1123 label")
        })?;
        check(names.insert(name), "container name", || {
            format!("{name:?} is used twice")
        })?;
        limits(container)?;
    }
    Ok(())
}

fn check(holds: bool, field: &str, problem: impl FnOnce() -> String) -> Result<(), Error> {
    if holds {
        return Ok(());
    }
    Err(Error::Invalid {
        field: field.to_owned(),
        problem: problem(),
    })
}

/// Returns the digest of `parts` as a UUID without dashes, the form of the kubelet's uids.
fn uid(parts: &[&str]) -> String {
    let mut hash = Blake2b::<U16>::new();
    for part in parts {
        hash.update(part.len().to_le_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

impl fmt::Display for PodKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn manifest(container: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: cam}}\nspec:\n  containers:\n  - name: c\n    image: none\n{container}"
        )
    }

    #[test]
    fn the_same_file_is_the_same_pod_and_a_changed_one_is_not() {
        let a = parse(&manifest(""), "a.yaml", "Node-1").unwrap();
        let b = parse(&manifest("    command: [x]\n"), "a.yaml", "Node-1").unwrap();
        assert_eq!(
            a,
            parse(&manifest("# no change\n"), "a.yaml", "Node-1").unwrap()
        );
        assert_eq!(a.key.to_string(), "default/cam-node-1");
        assert_ne!(a.uid, b.uid);
        assert_eq!(a.uid.len(), 32);
    }

    #[test]
    fn a_mode_that_begins_with_0_is_octal() {
        let text = manifest("  volumes: [{name: v, configMap: {name: m, defaultMode: 0400}}]\n");
        let pod = parse(&text, "a", "n").unwrap();
        let volume = &pod.spec.volumes.unwrap()[0];
        assert_eq!(volume.config_map.as_ref().unwrap().default_mode, Some(256));
    }

    #[test]
    fn only_extended_resources_are_asked_of_the_device_manager() {
        let limits_text = "    resources: {limits: {akri.sh/cam: 2, cpu: 100m, memory: 1Gi}}\n";
        let pod = parse(&manifest(limits_text), "a", "n").unwrap();
        let limits = limits(&pod.spec.containers[0]).unwrap();
        assert_eq!(limits, [("akri.sh/cam".to_owned(), 2)].into());
    }

    #[test]
    fn a_thousand_may_be_written_short() {
        let resources = "{limits: {akri.sh/cam: 1k}, requests: {akri.sh/cam: 1000}}";
        let pod = parse(
            &manifest(&format!("    resources: {resources}\n")),
            "a",
            "n",
        )
        .unwrap();
        let limits = limits(&pod.spec.containers[0]).unwrap();
        assert_eq!(limits, [("akri.sh/cam".to_owned(), 1000)].into());
    }

    #[test]
    fn what_is_wrong_is_named() {
        let with = |from: &str, to: &str| manifest("").replace(from, to);
        let cases = [
            (with("kind: Pod", "kind: Job"), "only v1 Pods are run"),
            (
                with("name: cam", "name: ../etc"),
                "metadata.name: \"../etc\"",
            ),
            (
                with("name: c\n", "name: ../c\n"),
                "container name: \"../c\"",
            ),
            (
                with("name: cam", "name: cam, namespace: a/b"),
                "metadata.namespace",
            ),
            (
                manifest("    resources: {limits: {akri.sh/cam: 500m}}\n"),
                "akri.sh/cam: \"500m\" is not a whole number",
            ),
            (
                manifest("    resources: {limits: {akri.sh/cam: 1}, requests: {akri.sh/cam: 2}}\n"),
                "must be equal in requests and limits",
            ),
            (
                manifest("  - name: c\n    image: x\n"),
                "\"c\" is used twice",
            ),
            (manifest("  restartPolicy: Sometimes\n"), "must be Always"),
            ("{".to_owned(), ""),
        ];
        for (text, want) in cases {
            let error = parse(&text, "a", "n").unwrap_err().to_string();
            assert!(error.contains(want), "{error:?} has no {want:?}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in "\\PC{0,200}") {
            parse(&text, "a", "n").ok();
        }

        #[test]
        fn arbitrary_pods_never_panic(name in "\\PC{0,20}", quantity in "\\PC{0,8}", policy in "\\PC{0,8}") {
            let pod = serde_json::json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
                "spec": {"restartPolicy": policy, "containers": [
                    {"name": "c", "resources": {"limits": {"a.b/c": quantity}}}]},
            });
            parse(&pod.to_string(), "a", "n").ok();
        }
    }
}
