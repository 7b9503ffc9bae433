//! Chooses the devices for a container: the kubelet's `devicesToAllocate`, with its error texts. Pure.
use super::inventory::{Claim, Holder, Inventory, Resource};
use std::collections::BTreeSet;

/// A container's request for one resource.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) resource: &'a str,
    pub(crate) quantity: usize,
    pub(crate) holder: &'a Holder,
    pub(crate) reuse: &'a Reuse,
    /// The container had its devices when the kubelet started.
    pub(crate) had_devices_at_start: bool,
}

/// The containers whose devices a container may take over. Such devices are chosen first, whatever their health.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Reuse {
    /// Init containers of the Pod that have ended when the container starts.
    pub(crate) from: Vec<Holder>,
    /// Containers that keep running. Devices that they have taken over are not available.
    pub(crate) kept_by: Vec<Holder>,
}

impl Reuse {
    fn of<C>(&self, resource: &Resource<C>) -> BTreeSet<String> {
        let held = |holders: &[Holder]| -> BTreeSet<String> {
            let claims = holders.iter().filter_map(|h| resource.holders().get(h));
            claims.flat_map(Claim::device_ids).collect()
        };
        &held(&self.from) - &held(&self.kept_by)
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// No call is needed: the container has its devices, or the device manager does not handle the resource.
    Nothing,
    /// The plugin must be asked for its preference. Then [`choose`] is called again with the answer.
    AskPreferred {
        available: BTreeSet<String>,
        must_include: BTreeSet<String>,
    },
    Take(BTreeSet<String>),
}

/// The reason that a container cannot have its devices, with the Go kubelet's text.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error(
        "pod {pod_uid:?} container {container:?} changed request for resource {resource:?} from {held} to {quantity}"
    )]
    ChangedRequest {
        pod_uid: String,
        container: String,
        resource: String,
        held: usize,
        quantity: usize,
    },
    #[error("cannot allocate unregistered device {0}")]
    Unregistered(String),
    #[error("no healthy devices present; cannot allocate unhealthy devices {0}")]
    NoneHealthy(String),
    #[error(
        "previously allocated devices are no longer healthy; cannot allocate unhealthy devices {0}"
    )]
    HeldUnhealthy(String),
    #[error(
        "requested number of devices unavailable for {resource}. Requested: {needed}, Available: {available}"
    )]
    TooFew {
        resource: String,
        needed: usize,
        available: usize,
    },
}

/// Chooses devices. `preferred` is the plugin's answer to [`Choice::AskPreferred`]; devices that it leaves open are
/// chosen in the order of their ids.
pub(crate) fn choose<C>(
    inventory: &Inventory<C>,
    request: &Request<'_>,
    preferred: Option<&[String]>,
) -> Result<Choice, Refusal> {
    let name = request.resource;
    let Some(resource) = inventory
        .resource(name)
        .filter(|_| inventory.is_managed(name))
    else {
        return Ok(Choice::Nothing);
    };
    let held = resource.holders().get(request.holder);
    let held = held.map(|claim| claim.device_ids());
    if let Some(held) = &held
        && held.len() != request.quantity
    {
        return Err(Refusal::ChangedRequest {
            pod_uid: request.holder.pod_uid.clone(),
            container: request.holder.container.clone(),
            resource: name.to_owned(),
            held: held.len(),
            quantity: request.quantity,
        });
    }
    if request.had_devices_at_start && held.is_some() {
        return Ok(Choice::Nothing);
    }
    let healthy = must_be_healthy(resource, name, held.as_ref())?;
    if held.is_some() || request.quantity == 0 {
        return Ok(Choice::Nothing);
    }
    fill(resource, request, &healthy, preferred)
}

fn must_be_healthy<C>(
    resource: &Resource<C>,
    name: &str,
    held: Option<&BTreeSet<String>>,
) -> Result<BTreeSet<String>, Refusal> {
    if !resource.is_listed() {
        return Err(Refusal::Unregistered(name.to_owned()));
    }
    let healthy = resource.healthy();
    if healthy.is_empty() {
        return Err(Refusal::NoneHealthy(name.to_owned()));
    }
    if held.is_some_and(|held| !held.is_subset(&healthy)) {
        return Err(Refusal::HeldUnhealthy(name.to_owned()));
    }
    Ok(healthy)
}

fn fill<C>(
    resource: &Resource<C>,
    request: &Request<'_>,
    healthy: &BTreeSet<String>,
    preferred: Option<&[String]>,
) -> Result<Choice, Refusal> {
    let reusable = request.reuse.of(resource).into_iter();
    let mut taken: BTreeSet<String> = reusable.take(request.quantity).collect();
    let needed = request.quantity - taken.len();
    if needed == 0 {
        return Ok(Choice::Take(taken));
    }
    let held = resource.held();
    let available: BTreeSet<String> = healthy.difference(&held).cloned().collect();
    if available.len() < needed {
        return Err(Refusal::TooFew {
            resource: request.resource.to_owned(),
            needed,
            available: available.len(),
        });
    }
    let options = resource.endpoint().and_then(|endpoint| endpoint.options);
    if preferred.is_none() && options.is_some_and(|o| o.get_preferred_allocation_available) {
        return Ok(Choice::AskPreferred {
            available: available.union(&taken).cloned().collect(),
            must_include: taken,
        });
    }
    let preferred = preferred.unwrap_or_default().iter();
    let preferred = preferred.filter(|id| available.contains(*id));
    for id in preferred.chain(&available) {
        if taken.len() == request.quantity {
            break;
        }
        taken.insert(id.clone());
    }
    Ok(Choice::Take(taken))
}
