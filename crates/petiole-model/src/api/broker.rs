//! Makes Pods and Jobs of the broker specs that users write: a Pod for an Instance on a node, a Job for an Instance. Pure.
//!
//! The specs stay JSON, edited by path: types would drop fields that are newer than they are. Only what is edited is
//! looked at; the API server validates the rest.
mod claim;
mod placement;
mod spec;

pub use placement::{NODES_MAX, named_nodes};
pub use spec::SpecError;

use crate::{
    api::{
        configuration::{Allocation, BrokerSpec, Configuration, ConfigurationSpec},
        instance::Instance,
        names,
    },
    model::{
        dra,
        instance_name::InstanceKey,
        names::{digest_32, shortened},
        resource_name::{ResourceName, ResourcePrefix},
        typed_names::NodeName,
    },
};
use serde_json::{Map, Value, json};
use spec::{at, error, member, object, or_empty};
use std::collections::BTreeMap;

/// The name of the field with the PodSpec, in messages.
const POD_SPEC: &str = "brokerPodSpec";
/// The text about a placeholder that is not spelt as [`names::PLACEHOLDER`].
const PLACEHOLDER_TEXT: &str = "\"{{PLACEHOLDER}}\", which stands for the device";
/// Names that become host names, and label values: DNS labels.
const NAME_LIMIT: usize = 63;
/// The longest name of a template of claims, in bytes, which is Kubernetes' own. Beyond it: it is cut, and ends with a digest.
const TEMPLATE_NAME_LIMIT: usize = 253;

/// The workload that a user wants to run for each Instance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Wanted<'a> {
    /// A PodSpec: one Pod for each node that sees the device, at most one for each slot.
    Pod(&'a Value),
    /// A JobSpec: one Job.
    Job(&'a Value),
}

/// The Instance that a broker is for.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    pub key: &'a InstanceKey,
    pub instance: &'a Instance,
    pub resource_prefix: &'a ResourcePrefix,
}

/// Returns the workload of a broker spec; `None` if the spec is empty.
pub fn wanted(spec: Option<&BrokerSpec>) -> Option<Wanted<'_>> {
    let spec = spec?;
    let pod = spec.broker_pod_spec.as_ref().map(Wanted::Pod);
    pod.or_else(|| spec.broker_job_spec.as_ref().map(Wanted::Job))
}

/// Returns an error if no broker can be made from a Configuration, whatever its Instances.
pub fn check(configuration: &Configuration) -> Result<(), SpecError> {
    match wanted(configuration.spec.broker_spec.as_ref()) {
        None => Ok(()),
        Some(Wanted::Pod(spec)) => {
            let mut spec = spec.clone();
            node_spec(&mut spec, POD_SPEC, "")?;
            place(&mut spec, &[&"".into()], &Map::new())
        }
        Some(Wanted::Job(spec)) => job_spec(&mut spec.clone(), "", &Map::new()),
    }
}

/// Returns an error if no static Pod can be made from a Configuration, whatever its Instances.
pub fn check_static(configuration: &ConfigurationSpec) -> Result<(), SpecError> {
    match wanted(configuration.broker_spec.as_ref()) {
        None => Ok(()),
        Some(Wanted::Pod(spec)) => node_spec(&mut spec.clone(), POD_SPEC, ""),
        Some(Wanted::Job(_)) => Err(no_job()),
    }
}

/// Returns the error for a Job where no controller runs Jobs.
pub fn no_job() -> SpecError {
    SpecError {
        path: "brokerJobSpec".to_owned(),
        found: "for a cluster, whose controllers run Jobs",
        expected: "a brokerPodSpec for static Pods",
    }
}

/// Returns the digest of the broker spec and the broker properties: a Pod with another digest is replaced, because a
/// container gets the properties only once, with its device. The digest is made of the user's text, not of the Pod that
/// results from it, so that another version of Petiole does not replace running Pods.
pub fn digest(configuration: &Configuration) -> String {
    let spec = &configuration.spec;
    let pod = (spec.broker_spec.as_ref()).and_then(|spec| spec.broker_pod_spec.as_ref());
    let text = match spec.allocation {
        Allocation::DevicePlugin => json!([pod, spec.broker_properties]),
        Allocation::Dra => json!([pod, spec.broker_properties, "claim"]),
    };
    digest_32(&text.to_string())
}

/// Returns the name of a Pod of an Instance by its number: a name that somebody else has is left out.
pub fn pod_name(subject: Subject<'_>, number: usize) -> String {
    let plain = subject.key.name.replace('.', "-");
    let name = match number {
        0 => format!("{plain}-pod"),
        number => format!("{plain}-{number}-pod"),
    };
    shortened(&name, NAME_LIMIT)
}

pub fn job_name(subject: Subject<'_>, generation: i64) -> String {
    let plain = subject.key.name.replace('.', "-");
    shortened(&format!("{plain}-{generation}-job"), NAME_LIMIT)
}

/// Returns the Pod for one node, for a kubelet that reads it from its folder of manifests.
pub fn static_pod(subject: Subject<'_>, node: &str, spec: &Value) -> Result<Value, SpecError> {
    let plain = subject.key.name.replace('.', "-");
    let name = if subject.instance.spec.shared {
        // A node may be called what no Pod may.
        format!("{}-{plain}-pod", node.to_lowercase())
    } else {
        format!("{plain}-pod")
    };
    let mut pod = rendered(subject, &shortened(&name, NAME_LIMIT), spec)?;
    pod["metadata"]["labels"][names::TARGET_NODE_LABEL] = label(node);
    Ok(pod)
}

/// Returns the Pod that the scheduler puts on one of the nodes. The Instance owns it.
pub fn pod(
    subject: Subject<'_>,
    name: &str,
    nodes: &[&NodeName],
    spec: &Value,
) -> Result<Value, SpecError> {
    let mut pod = rendered(subject, name, spec)?;
    place(&mut pod["spec"], nodes, &labels(subject))?;
    pod["metadata"]["ownerReferences"] = owners(subject);
    Ok(pod)
}

fn rendered(subject: Subject<'_>, name: &str, spec: &Value) -> Result<Value, SpecError> {
    let mut spec = spec.clone();
    node_spec(&mut spec, POD_SPEC, &subject.resource())?;
    let mut labels = labels(subject);
    labels.insert("app".to_owned(), json!(name));
    Ok(json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "namespace": subject.key.namespace, "labels": labels },
        "spec": spec,
    }))
}

/// Says in a PodSpec on which nodes the Pod can be, beside others with these labels.
fn place(
    spec: &mut Value,
    nodes: &[&NodeName],
    labels: &Map<String, Value>,
) -> Result<(), SpecError> {
    placement::check_node_name(spec, POD_SPEC)?;
    placement::limit(spec, POD_SPEC, nodes, labels)?;
    placement::spread(spec, POD_SPEC, &of_configuration(labels))
}

/// A Job that goes with its Instance. The device's resource decides where its Pods run, among the nodes that
/// `spec.nodeSelector` of the Configuration selects: a node may say that it has a resource. It names no nodes, because the
/// template of a Job cannot be changed when other nodes see the device, and another Job would run a second time.
pub fn job(
    subject: Subject<'_>,
    generation: i64,
    spec: &Value,
    node_selector: &BTreeMap<String, String>,
) -> Result<Value, SpecError> {
    let mut spec = spec.clone();
    let mut labels = labels(subject);
    job_spec(&mut spec, &subject.resource(), &labels)?;
    select(&mut spec["template"]["spec"], node_selector)?;
    let name = job_name(subject, generation);
    labels.insert("app".to_owned(), json!(name));
    Ok(json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": subject.key.namespace,
            "labels": labels,
            "ownerReferences": owners(subject),
        },
        "spec": spec,
    }))
}

/// Returns the template of the claims of an Instance's brokers: each Pod gets a claim of its own. The Instance owns it.
pub fn claim_template(subject: Subject<'_>) -> Value {
    let of = subject
        .instance
        .spec
        .configuration_key(&subject.key.namespace);
    let metadata = json!({
        "name": template_name(subject),
        "namespace": subject.key.namespace,
        "labels": labels(subject),
        "ownerReferences": owners(subject),
    });
    claim::template(
        &dra::class_name(&of),
        &dra::device_name(&subject.key.name),
        &metadata,
    )
}

/// Replaces the Instance's resource in the containers of a PodSpec by a claim.
pub fn by_claim(subject: Subject<'_>, pod_spec: &mut Value) {
    claim::instead_of(&subject.resource(), pod_spec, &template_name(subject));
}

fn template_name(subject: Subject<'_>) -> String {
    shortened(&format!("{}-broker", subject.key.name), TEMPLATE_NAME_LIMIT)
}

impl Subject<'_> {
    /// Returns the name of the Instance's resource.
    pub fn resource(&self) -> ResourceName {
        (self.resource_prefix).resource(&self.key.name)
    }
}

/// Services select by these.
fn labels(subject: Subject<'_>) -> Map<String, Value> {
    let configuration = &subject.instance.spec.configuration_name;
    Map::from_iter([
        (names::CONTROLLER_LABEL.to_owned(), json!(names::GROUP)),
        (names::CONFIGURATION_LABEL.to_owned(), label(configuration)),
        (names::INSTANCE_LABEL.to_owned(), label(&subject.key.name)),
    ])
}

fn label(value: &str) -> Value {
    json!(shortened(value, NAME_LIMIT))
}

fn owners(subject: Subject<'_>) -> Value {
    json!([{
        "apiVersion": names::API_VERSION,
        "kind": "Instance",
        "name": subject.key.name,
        "uid": subject.instance.metadata.uid,
        "controller": true,
        "blockOwnerDeletion": true,
    }])
}

/// Returns the labels that all brokers of a Configuration have.
fn of_configuration(labels: &Map<String, Value>) -> Map<String, Value> {
    let mut labels = labels.clone();
    labels.remove(names::INSTANCE_LABEL);
    labels
}

/// Names the resource in a JobSpec, labels its Pods, and spreads them.
fn job_spec(
    spec: &mut Value,
    resource: &str,
    labels: &Map<String, Value>,
) -> Result<(), SpecError> {
    const PATH: &str = "brokerJobSpec";
    let template = at(object(spec, PATH)?, "template");
    let path = format!("{PATH}.template");
    let template = object(template, &path)?;
    let of_pods = format!("{path}.spec");
    let spec = at(template, "spec");
    node_spec(spec, &of_pods, resource)?;
    placement::check_node_name(spec, &of_pods)?;
    placement::spread(spec, &of_pods, &of_configuration(labels))?;
    let path = format!("{path}.metadata");
    let metadata = object(or_empty(at(template, "metadata")), &path)?;
    let path = format!("{path}.labels");
    let own = object(or_empty(at(metadata, "labels")), &path)?;
    own.extend(labels.clone());
    Ok(())
}

/// Adds labels to the user's node selector as requirements.
fn select(spec: &mut Value, labels: &BTreeMap<String, String>) -> Result<(), SpecError> {
    if labels.is_empty() {
        return Ok(());
    }
    let path = "brokerJobSpec.template.spec.nodeSelector";
    let own = object(or_empty(at(object(spec, path)?, "nodeSelector")), path)?;
    own.extend((labels.iter()).map(|(key, value)| (key.clone(), json!(value))));
    Ok(())
}

/// Gives the resource `{{PLACEHOLDER}}` of every container of a PodSpec its name. `path` is the field with the spec.
fn node_spec(spec: &mut Value, path: &str, resource: &str) -> Result<(), SpecError> {
    let spec = object(spec, path)?;
    for kind in ["initContainers", "containers"] {
        let path = format!("{path}.{kind}");
        let Some(containers) = spec.get_mut(kind).filter(|value| !value.is_null()) else {
            if kind == "containers" {
                return Err(error(&Value::Null, &path, "a list of containers"));
            }
            continue;
        };
        if !containers.is_array() {
            return Err(error(containers, &path, "a list of containers"));
        }
        for (n, container) in containers.as_array_mut().into_iter().flatten().enumerate() {
            name_resource(container, resource, &format!("{path}[{n}]"))?;
        }
    }
    Ok(())
}

fn name_resource(container: &mut Value, resource: &str, path: &str) -> Result<(), SpecError> {
    let Some(resources) = member(object(container, path)?, "resources", path)? else {
        return Ok(());
    };
    let path = format!("{path}.resources");
    for bound in ["limits", "requests"] {
        let Some(quantities) = member(resources, bound, &path)? else {
            continue;
        };
        if let Some(quantity) = quantities.remove(names::PLACEHOLDER) {
            quantities.insert(resource.to_owned(), quantity);
        }
        // No resource has such a name: the API server would refuse it in many words that do not name the placeholder.
        if let Some(key) = quantities.keys().find(|key| key.contains("{{")) {
            return Err(SpecError {
                path: format!("{path}.{bound}[{key:?}]"),
                found: "no resource",
                expected: PLACEHOLDER_TEXT,
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
