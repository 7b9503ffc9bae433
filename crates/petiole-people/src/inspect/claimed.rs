//! Finds the ResourceClaims of Pods: what they ask of us, and which Pods have what they were given. Pure.
use super::{claims::gives_out, snapshot::Snapshot};
use k8s_openapi::api::{
    core::v1::Pod,
    resource::v1::{ExactDeviceRequest, ResourceClaim},
};
use petiole_model::{
    api::configuration::Configuration,
    model::{dra, resource_name::ResourceName, typed_names::ConfigurationKey},
};
use std::collections::BTreeMap;

impl Snapshot {
    /// Returns whether the scheduler gives out devices at all.
    pub(super) fn has_claims(&self) -> bool {
        self.configurations.values().any(gives_out)
    }

    /// Returns the claims that a Pod names, and those that were made for it.
    pub(super) fn claims_of(&self, pod: &Pod) -> impl Iterator<Item = &ResourceClaim> {
        let named = pod.spec.iter().flat_map(|spec| &spec.resource_claims);
        let named = named
            .flatten()
            .filter_map(|c| c.resource_claim_name.as_deref());
        let named: Vec<&str> = named.collect();
        let (namespace, uid) = (&pod.metadata.namespace, &pod.metadata.uid);
        self.claims.iter().filter(move |claim| {
            let its = &claim.metadata;
            let mut owners = its.owner_references.iter().flatten();
            its.namespace == *namespace
                && (owners.any(|owner| Some(&owner.uid) == uid.as_ref())
                    || its
                        .name
                        .as_deref()
                        .is_some_and(|name| named.contains(&name)))
        })
    }

    /// Returns how many devices of our Configurations the claims of a Pod ask for, by the resource of the Configuration.
    pub(super) fn claimed(&self, pod: &Pod) -> BTreeMap<ResourceName, u64> {
        let mut asked = BTreeMap::new();
        for (request, (key, of)) in self.requested(pod) {
            let resource = self.configuration_resource(key, of);
            let count = request.count.map_or(Ok(1), u64::try_from);
            *asked.entry(resource).or_default() += count.unwrap_or_default();
        }
        asked
    }

    /// Returns the Configurations whose devices the claims of a Pod ask for.
    pub(super) fn configurations_claimed(
        &self,
        pod: &Pod,
    ) -> impl Iterator<Item = (&ConfigurationKey, &Configuration)> {
        self.requested(pod).map(|(_, its)| its)
    }

    /// Returns what the claims of a Pod ask of us, each with the Configuration of its class.
    fn requested(
        &self,
        pod: &Pod,
    ) -> impl Iterator<Item = (&ExactDeviceRequest, (&ConfigurationKey, &Configuration))> {
        let requests = self.claims_of(pod).flat_map(requests);
        requests.filter_map(|request| Some((request, self.of_class(&request.device_class_name)?)))
    }

    /// Returns the Configuration that a DeviceClass is for.
    fn of_class(&self, class: &str) -> Option<(&ConfigurationKey, &Configuration)> {
        let mut all = self.configurations.iter();
        all.find(|(key, of)| gives_out(of) && dra::class_name(key) == class)
    }

    /// Returns the Configuration of a resource, if the scheduler gives out its devices.
    pub(super) fn is_given_out(&self, resource: &ResourceName) -> bool {
        let mut all = self.configurations.iter();
        all.any(|(key, of)| gives_out(of) && self.configuration_resource(key, of) == *resource)
    }
}

/// Returns the requests of a claim for devices of one class. One for the first of several classes that is available is left out.
fn requests(claim: &ResourceClaim) -> impl Iterator<Item = &ExactDeviceRequest> {
    let requests = claim.spec.devices.iter().flat_map(|all| &all.requests);
    requests.flatten().filter_map(|one| one.exactly.as_ref())
}
