//! Watches, reads and patches the resources in the status of Nodes, and our labels of Nodes.
use super::{
    parts::NodePart,
    requests::list_all,
    watch::{self, Set},
};
use json_patch::Patch as JsonPatch;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
    runtime::watcher,
};
use petiole_model::model::{
    node_labels::{LabelChanges, Labels, VALUE, key},
    node_resources::{EntryChange, NodeResources, Part},
    patch,
    resource_name::ResourcePrefixes,
    typed_names::NodeName,
};
use serde_json::json;
use std::{collections::BTreeMap, fmt, sync::Arc};
use tokio::sync;
use tokio_util::sync::CancellationToken;

/// Access to the resources of Nodes. It sees and changes only entries with our prefixes.
#[derive(Clone)]
pub struct Nodes {
    client: Client,
    prefixes: Arc<ResourcePrefixes>,
}

impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefixes = &self.prefixes;
        f.debug_struct("Nodes")
            .field("prefixes", prefixes)
            .finish_non_exhaustive()
    }
}

/// The Node of this node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnNode {
    pub resources: NodeResources,
    pub labels: Labels,
}

/// A Node in the list of all Nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListedNode {
    pub resources: NodeResources,
    pub labels: Labels,
    /// True if the kubelet reports as ready.
    pub is_ready: bool,
}

impl Nodes {
    pub fn new(client: Client, prefixes: &ResourcePrefixes) -> Self {
        Self {
            client,
            prefixes: Arc::new(prefixes.clone()),
        }
    }

    /// Publishes the resources and the labels of one Node to `set` at each change, until `shutdown`.
    pub async fn watch(
        self,
        node: NodeName,
        set: sync::watch::Sender<Set<OwnNode>>,
        shutdown: CancellationToken,
    ) -> anyhow::Result<()> {
        let config = watcher::Config::default().fields(&format!("metadata.name={node}"));
        let apis = vec![Api::all(self.client.clone())];
        let reduce = move |mut node: NodePart| OwnNode {
            labels: node.metadata.labels.take().unwrap_or_default(),
            resources: resources(node, &self.prefixes),
        };
        watch::run(
            apis,
            watch::Selection::new("this node", config),
            reduce,
            set,
            shutdown,
        )
        .await
    }

    pub async fn read(&self, node: &str) -> kube::Result<NodeResources> {
        let node = self.api().get(node).await?;
        Ok(resources(node, &self.prefixes))
    }

    /// Returns all Nodes by name.
    pub async fn list(&self) -> kube::Result<BTreeMap<NodeName, ListedNode>> {
        let nodes = list_all(&self.api()).await?;
        let listed = nodes.into_iter().map(|mut node| {
            let name = node.metadata.name.take().unwrap_or_default();
            let listed = ListedNode {
                is_ready: node.ready().is_some_and(|ready| ready.status == "True"),
                labels: node.metadata.labels.take().unwrap_or_default(),
                resources: resources(node, &self.prefixes),
            };
            (NodeName::new(name), listed)
        });
        Ok(listed.collect())
    }

    /// Applies all changes or none, and returns the new resources of the Node. The API server rejects the patch with
    /// 422 if an entry has changed since it was read.
    pub async fn patch(&self, node: &str, changes: &[EntryChange]) -> kube::Result<NodeResources> {
        let patch = Patch::Json::<()>(json_patch(changes));
        let params = PatchParams::default();
        let node = self.api().patch_status(node, &params, &patch).await?;
        Ok(resources(node, &self.prefixes))
    }

    /// Sets and removes labels, all or none. The API server rejects the patch with 422 if one of them has changed since it was
    /// read. It takes labels with the status, too, so that this needs no right to write Nodes.
    pub async fn label(&self, node: &str, changes: &LabelChanges) -> kube::Result<()> {
        let patch = Patch::Json::<()>(label_patch(changes));
        let params = PatchParams::default();
        self.api().patch_status(node, &params, &patch).await?;
        Ok(())
    }

    fn api(&self) -> Api<NodePart> {
        Api::all(self.client.clone())
    }
}

fn resources(node: NodePart, prefixes: &ResourcePrefixes) -> NodeResources {
    let ours = |map: BTreeMap<String, Quantity>| {
        map.into_iter()
            .filter_map(|(resource, quantity)| Some((prefixes.own_name(resource)?, quantity.0)))
            .collect()
    };
    NodeResources {
        capacity: ours(node.status.capacity),
        allocatable: ours(node.status.allocatable),
    }
}

/// Converts the changes to a JSON patch. A test of the old value precedes each change; a test for null succeeds if the
/// key does not exist.
fn json_patch(changes: &[EntryChange]) -> JsonPatch {
    let operations = changes.iter().flat_map(|change| {
        let part = match change.part {
            Part::Capacity => "capacity",
            Part::Allocatable => "allocatable",
        };
        let path = ["status", part, change.resource.as_str()];
        let write = match &change.to {
            Some(to) => patch::add(&path, json!(to)),
            None => patch::remove(&path),
        };
        [patch::test(&path, json!(change.from)), write]
    });
    JsonPatch(operations.collect())
}

/// Converts the changes of labels to a JSON patch. Every Node has labels, because its kubelet sets some.
fn label_patch(changes: &LabelChanges) -> JsonPatch {
    let operations = |name, is_added| {
        let key = key(name);
        let path = ["metadata", "labels", key.as_str()];
        let value = json!(VALUE);
        if is_added {
            [patch::test(&path, json!(null)), patch::add(&path, value)]
        } else {
            [patch::test(&path, value), patch::remove(&path)]
        }
    };
    let added = changes.added.iter().flat_map(|name| operations(name, true));
    let removed = changes.removed.iter();
    let removed = removed.flat_map(|name| operations(name, false));
    JsonPatch(added.chain(removed).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_set_where_there_is_none_and_removed_where_it_is_ours() {
        let patch = label_patch(&LabelChanges {
            added: ["cam".into()].into(),
            removed: ["usb".into()].into(),
        });
        let expected = json!([
            {"op": "test", "path": "/metadata/labels/akri.sh~1has-cam", "value": null},
            {"op": "add", "path": "/metadata/labels/akri.sh~1has-cam", "value": "true"},
            {"op": "test", "path": "/metadata/labels/akri.sh~1has-usb", "value": "true"},
            {"op": "remove", "path": "/metadata/labels/akri.sh~1has-usb"},
        ]);
        assert_eq!(serde_json::to_value(patch).unwrap(), expected);
    }

    #[test]
    fn a_patch_tests_each_entry_before_it_writes_it() {
        let change = |part, from: Option<&str>, to: Option<&str>| EntryChange {
            part,
            resource: "akri.sh/cam".parse().unwrap(),
            from: from.map(str::to_owned),
            to: to.map(str::to_owned),
        };
        let patch = json_patch(&[
            change(Part::Capacity, None, Some("2")),
            change(Part::Allocatable, Some("0"), None),
        ]);
        let expected = json!([
            {"op": "test", "path": "/status/capacity/akri.sh~1cam", "value": null},
            {"op": "add", "path": "/status/capacity/akri.sh~1cam", "value": "2"},
            {"op": "test", "path": "/status/allocatable/akri.sh~1cam", "value": "0"},
            {"op": "remove", "path": "/status/allocatable/akri.sh~1cam"},
        ]);
        assert_eq!(serde_json::to_value(patch).unwrap(), expected);
    }

    #[test]
    fn only_entries_with_our_prefixes_are_seen() {
        let node = serde_json::from_value(json!({
            "status": {
                "capacity": {"cpu": "2", "akri.sh/cam": "1", "example.com/gpu": "4"},
                "allocatable": {"cpu": "2", "akri.sh/cam": "0"},
            }
        }));
        let seen = resources(node.unwrap(), &"akri.sh".parse().unwrap());
        let entry =
            |value: &str| BTreeMap::from([("akri.sh/cam".parse().unwrap(), value.to_owned())]);
        let expected = NodeResources {
            capacity: entry("1"),
            allocatable: entry("0"),
        };
        assert_eq!(seen, expected);
    }
}
