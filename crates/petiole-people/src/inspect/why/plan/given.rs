//! Says which devices a Pod was given, and at which paths. Pure.
use super::slots::Taken;
use crate::inspect::{
    devices::device_name,
    pods::given,
    snapshot::{Owner, Snapshot},
    words::listed,
};
use k8s_openapi::api::core::v1::Pod;
use petiole_model::model::{container_devices::ContainerDevices, resource_name::ResourceName};

/// Returns a resource of a Pod, with its devices and where the container has them, as far as that is known:
/// `akri.sh/zigbee (/dev/ttyUSB0, also at /dev/zigbee)`.
pub(super) fn what_it_has(
    snapshot: &Snapshot,
    pod: &Pod,
    resource: &ResourceName,
    slots: &[Taken<'_>],
) -> String {
    let owner = snapshot.owner_of(resource);
    let of = match &owner {
        None => return resource.to_string(),
        Some(Owner::Configuration(key)) => key.clone(),
        Some(Owner::Instance(key)) => snapshot.instances[key]
            .spec
            .configuration_key(&key.namespace),
    };
    let is_of = |taken: &&Taken<'_>| match &owner {
        Some(Owner::Instance(key)) => key == taken.key,
        None | Some(Owner::Configuration(_)) => {
            taken.instance.spec.configuration_key(&taken.key.namespace) == of
        }
    };
    // A slot that one of several Pods has may be another's.
    let its = slots.iter().filter(|taken| taken.slot.pods.len() == 1);
    let its = its.filter(is_of);
    let mut facts: Vec<String> = its.map(|taken| device_name(taken.instance)).collect();
    if let Some(configuration) = snapshot.configurations.get(&of) {
        if !configuration.spec.instances {
            let ids = given(pod, resource).map(|(id, _)| id);
            facts.extend(ids.map(|id| format!("slot {id}")));
        }
        let wish = configuration.spec.container_devices.as_ref();
        facts.extend(wish.and_then(places));
    }
    if facts.is_empty() {
        resource.to_string()
    } else {
        format!("{resource} ({})", listed(&facts))
    }
}

/// Returns where a container has its device nodes besides their own paths.
fn places(wish: &ContainerDevices) -> Option<String> {
    let path = wish.path.as_ref().map(|path| {
        if path.ends_with('/') {
            format!("in {path}")
        } else {
            format!("at {path}")
        }
    });
    let links = wish.links.then(|| "at the links of udev".to_owned());
    let places: Vec<String> = path.into_iter().chain(links).collect();
    (!places.is_empty()).then(|| format!("also {}", places.join(" and ")))
}
