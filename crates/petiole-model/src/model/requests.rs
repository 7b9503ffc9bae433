//! Counts the extended resources that the containers of a Pod ask for. Pure.
use super::resource_name::ResourceName;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use petiole_base::quantity::count;
use std::collections::BTreeMap;

/// The parts of a container that say what it asks for.
#[derive(Clone, Copy)]
pub struct Asking<'a> {
    pub limits: Option<&'a BTreeMap<String, Quantity>>,
    pub restart_policy: Option<&'a str>,
}

impl Asking<'_> {
    /// Returns whether an init container is always restarted.
    fn is_sidecar(&self) -> bool {
        self.restart_policy == Some("Always")
    }
}

/// Returns the extended resources that a Pod asks for. Sidecars, which are init containers that are always restarted, run
/// beside the containers and beside the init containers after them. Other init containers run before the containers, one
/// after the other, so the larger number counts.
pub fn extended<'a>(
    containers: impl Iterator<Item = Asking<'a>>,
    init_containers: impl Iterator<Item = Asking<'a>>,
) -> BTreeMap<ResourceName, u64> {
    let mut together: BTreeMap<ResourceName, u64> = BTreeMap::new();
    for (resource, n) in containers.flat_map(of_container) {
        *together.entry(resource).or_default() += n;
    }
    let mut sidecars: BTreeMap<ResourceName, u64> = BTreeMap::new();
    let mut before: BTreeMap<ResourceName, u64> = BTreeMap::new();
    for container in init_containers {
        for (resource, n) in of_container(container) {
            let beside = sidecars.entry(resource.clone()).or_default();
            if container.is_sidecar() {
                *beside += n;
                *together.entry(resource).or_default() += n;
            } else {
                let most = before.entry(resource).or_default();
                *most = (*most).max(*beside + n);
            }
        }
    }
    for (resource, n) in before {
        let most = together.entry(resource).or_default();
        *most = n.max(*most);
    }
    together
}

fn of_container(container: Asking<'_>) -> impl Iterator<Item = (ResourceName, u64)> {
    let limits = container.limits.into_iter().flatten();
    let extended = limits.filter(|(name, _)| !name.contains("kubernetes.io"));
    extended.filter_map(|(name, Quantity(amount))| Some((name.parse().ok()?, count(amount)?)))
}
