//! Lists the Configurations and Instances of a cluster.
use super::{failure::Failure, plan::InstanceUse};
use crate::{
    api::{configuration::Configuration, instance::Instance},
    cluster::{
        self,
        watch::{self, Read},
    },
    model::{resource_name::ResourceName, slot::holders, typed_names::ConfigurationKey},
};
use kube::{Client, Resource, core::NamespaceResourceScope};
use petiole_base::collect::CollectMap as _;
use serde::de::DeserializeOwned;
use std::{collections::BTreeMap, fmt::Debug};

/// Lists all objects of a kind. The list is empty if the cluster does not know the kind.
async fn all<K>(
    client: &Client,
    namespaces: &[String],
    resource: &str,
) -> Result<Vec<Read<K>>, Failure>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + 'static,
{
    let mut objects = vec![];
    for api in watch::apis::<K>(client, namespaces) {
        match cluster::list_all(&api).await {
            Ok(of_namespace) => objects.extend(of_namespace),
            Err(e) if cluster::is_not_found(&e) => {}
            Err(e) => return Err(Failure::new(e, "list", resource)),
        }
    }
    Ok(objects)
}

pub(super) async fn configurations(
    client: &Client,
    namespaces: &[String],
) -> Result<Vec<Read<Configuration>>, Failure> {
    all(client, namespaces, "configurations.akri.sh").await
}

pub(super) async fn instances(
    client: &Client,
    namespaces: &[String],
    configurations: &[Read<Configuration>],
) -> Result<Vec<InstanceUse>, Failure> {
    let named = configurations.iter().filter_map(|configuration| {
        let name = configuration.0.as_ref().ok()?.spec.resource()?;
        Some((cluster::configuration_key(configuration.meta()), name))
    });
    let named = named.collect_map();
    let all = all::<Instance>(client, namespaces, "instances.akri.sh").await?;
    Ok(all.into_iter().map(|i| instance_use(i, &named)).collect())
}

/// Returns what accounts for the entries of Configurations whose devices have no Instances, and of those that cannot be read, which
/// may be such: on any node.
pub(super) fn without_instances(configurations: &[Read<Configuration>]) -> Vec<InstanceUse> {
    let may_be = |read: &&Read<Configuration>| {
        !(read.0.as_ref()).is_ok_and(|configuration| configuration.spec.instances)
    };
    let used = |read: &Read<Configuration>| {
        let key = cluster::configuration_key(read.meta());
        let configuration = read.0.as_ref().ok();
        InstanceUse {
            key: key.to_string(),
            name: (&*key.name).into(),
            configuration: key.name,
            resource_name: configuration.and_then(|configuration| configuration.spec.resource()),
            nodes: None,
        }
    };
    configurations.iter().filter(may_be).map(used).collect()
}

fn instance_use(
    instance: Read<Instance>,
    resource_names: &BTreeMap<ConfigurationKey, ResourceName>,
) -> InstanceUse {
    let key = cluster::instance_key(instance.meta());
    let (configuration, nodes) = match instance.0 {
        Ok(instance) => {
            // A node that sees it no more has its plugin as long as a container there has a slot.
            let mut nodes = holders(&instance.spec.device_usage);
            nodes.extend(instance.spec.nodes);
            (instance.spec.configuration_name, Some(nodes))
        }
        // The name of the Instance contains that of its Configuration.
        Err(_) => {
            let configuration = key.name.configuration();
            (configuration.unwrap_or_default(), None)
        }
    };
    let its_configuration = ConfigurationKey::new(&key.namespace, &configuration);
    InstanceUse {
        key: key.to_string(),
        name: key.name,
        resource_name: resource_names.get(&its_configuration).cloned(),
        configuration,
        nodes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_configuration_without_instances_accounts_for_its_entries_on_any_node() {
        let read = |name: &str, has_instances: bool| {
            let configuration = json!({
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"discoveryHandler": {"name": "paths"}, "instances": has_instances},
            });
            Read(Ok(serde_json::from_value(configuration).unwrap()))
        };
        let used = without_instances(&[read("kvm", false), read("cam", true)]);
        let [kvm] = used.as_slice() else {
            panic!("{used:?}");
        };
        assert_eq!((&*kvm.configuration, &kvm.nodes), ("kvm", &None));
    }
}
