//! Defines the claims that a driver prepares, and checks what the API server has of them. Pure.
use k8s_openapi::{
    api::resource::v1::{
        AllocationResult, DeviceAllocationConfiguration, DeviceRequestAllocationResult,
        ResourceClaim,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::Resource;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The longest UID of a claim, in bytes. It becomes a part of the names of files. Beyond it: the kubelet is told that the claim
/// is not valid, and the other claims of the call are prepared.
const UID_LIMIT: usize = 63;
/// The longest name and namespace of a claim, in bytes, which is Kubernetes' own. Beyond it: the claim is not valid, as with
/// a UID that is too long.
const NAME_LIMIT: usize = 253;

/// The annotation of a claim that was made for a Pod: its name there.
const IN_POD: &str = "resource.kubernetes.io/pod-claim-name";
/// The longest name of a claim in its Pod, in bytes, which is Kubernetes' own. Beyond it: the claim counts as one that Pods name.
const IN_POD_LIMIT: usize = 63;

/// The identity of a claim.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ClaimKey {
    /// The UID. It is never used again, unlike the name.
    pub uid: String,
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl fmt::Display for ClaimKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

fn is_word(text: &str) -> bool {
    let mut bytes = text.bytes();
    !text.is_empty() && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

impl ClaimKey {
    /// Checks what a kubelet sent, because files and paths of requests are named after it.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        let is_name = |name: &str| name.len() <= NAME_LIMIT && name.split('.').all(is_word);
        let is_valid = is_name(&self.namespace) && is_name(&self.name);
        if is_valid && self.uid.len() <= UID_LIMIT && is_word(&self.uid) {
            return Ok(());
        }
        Err(Refusal::Malformed(self.clone()))
    }
}

/// A claim as the API server has it, with what a driver reads.
#[derive(Debug, Clone, Default, Deserialize, Resource)]
#[resource(inherit = ResourceClaim)]
pub(crate) struct ResourceClaimPart {
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(default)]
    status: StatusPart,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct StatusPart {
    allocation: Option<AllocationResult>,
}

/// A claim with its devices of one driver.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    /// Its identity.
    pub key: ClaimKey,
    /// The name that a Pod gives the claim, if it was made for the Pod.
    pub in_pod: Option<String>,
    /// The devices of this driver, in the order of the allocation: at least one.
    pub devices: Vec<DeviceRequestAllocationResult>,
    /// The configuration for this driver. Of two that are for one request, the later one is more specific.
    pub configs: Vec<DeviceAllocationConfiguration>,
}

/// The reason that a claim cannot be prepared, for the Events of its Pod.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("the kubelet sent a claim whose namespace, name or UID is not valid: {0:?}")]
    Malformed(ClaimKey),
    #[error("ResourceClaim {key} was replaced: its UID is not {uid} any more; delete the Pod", uid = .key.uid)]
    Replaced { key: ClaimKey },
    #[error(
        "ResourceClaim {0} has no allocation; it is prepared when the scheduler has allocated it"
    )]
    NotAllocated(ClaimKey),
    #[error("ResourceClaim {key} has no device of driver {driver}")]
    NoDevice { key: ClaimKey, driver: String },
}

/// Returns the claim `key` of this driver from the object that the API server has under its name.
pub(crate) fn checked(
    found: ResourceClaimPart,
    key: &ClaimKey,
    driver: &str,
) -> Result<Claim, Refusal> {
    if found.metadata.uid.as_ref() != Some(&key.uid) {
        return Err(Refusal::Replaced { key: key.clone() });
    }
    let Some(allocation) = found.status.allocation else {
        return Err(Refusal::NotAllocated(key.clone()));
    };
    let allocated = allocation.devices.unwrap_or_default();
    let mut devices = allocated.results.unwrap_or_default();
    devices.retain(|device| device.driver == driver);
    if devices.is_empty() {
        return Err(Refusal::NoDevice {
            key: key.clone(),
            driver: driver.to_owned(),
        });
    }
    let is_ours = |config: &DeviceAllocationConfiguration| {
        let opaque = config.opaque.as_ref();
        opaque.is_some_and(|opaque| opaque.driver == driver)
    };
    let mut configs = allocated.config.unwrap_or_default();
    configs.retain(is_ours);
    let annotations = found.metadata.annotations.unwrap_or_default();
    Ok(Claim {
        key: key.clone(),
        // Anybody who makes a claim can write it, and paths are named after it.
        in_pod: (annotations.get(IN_POD).cloned())
            .filter(|name| name.len() <= IN_POD_LIMIT && is_word(name)),
        devices,
        configs,
    })
}

/// Returns the name of the request of a device without that of a subrequest: the kubelet knows no others.
pub fn base_request(device: &DeviceRequestAllocationResult) -> &str {
    device.request.split('/').next().unwrap_or_default()
}

impl Claim {
    /// Returns the configuration for a device, the most specific one last.
    pub fn configs_of(
        &self,
        device: &DeviceRequestAllocationResult,
    ) -> impl Iterator<Item = &DeviceAllocationConfiguration> {
        self.configs.iter().filter(|config| {
            let is_named =
                |request: &String| *request == device.request || request == base_request(device);
            let requests = config.requests.as_deref().unwrap_or_default();
            requests.is_empty() || requests.iter().any(is_named)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn key() -> ClaimKey {
        ClaimKey {
            uid: "u-1".to_owned(),
            namespace: "default".to_owned(),
            name: "cam".to_owned(),
        }
    }

    fn found(status: serde_json::Value) -> ResourceClaimPart {
        serde_json::from_value(json!({"metadata": {"uid": "u-1"}, "spec": {}, "status": status}))
            .unwrap()
    }

    fn result(request: &str, driver: &str, device: &str) -> serde_json::Value {
        json!({"request": request, "driver": driver, "pool": "p", "device": device, "new": [1]})
    }

    #[test]
    fn a_claim_has_the_devices_and_the_configuration_of_one_driver() {
        let config = |driver: &str, requests: &[&str], level: i64| {
            json!({"source": "FromClass", "requests": requests,
                "opaque": {"driver": driver, "parameters": {"level": level}}})
        };
        let found = found(json!({"allocation": {"devices": {
            "results": [result("a/big", "d", "x"), result("b", "e", "y"), result("b", "d", "z")],
            "config": [config("d", &[], 1), config("e", &[], 2), config("d", &["a"], 3),
                config("d", &["a/small"], 4), config("d", &["b"], 5)],
        }}}));
        let claim = checked(found, &key(), "d").unwrap();
        let names = claim.devices.iter().map(|d| (&*d.device, base_request(d)));
        assert_eq!(names.collect::<Vec<_>>(), [("x", "a"), ("z", "b")]);
        let levels = |n: usize| {
            let configs = claim.configs_of(&claim.devices[n]);
            let opaque = configs.map(|c| c.opaque.clone().unwrap().parameters.0["level"].clone());
            opaque.collect::<Vec<_>>()
        };
        assert_eq!([levels(0), levels(1)], [[1, 3], [1, 5]]);
    }

    #[test]
    fn what_is_no_allocation_of_this_claim_is_refused() {
        let allocated = |results: &[serde_json::Value]| json!({"allocation": {"devices": {"results": results}}});
        let why = |status| checked(found(status), &key(), "d").unwrap_err().to_string();
        assert!(why(json!({})).contains("default/cam has no allocation"));
        assert!(why(allocated(&[result("a", "e", "x")])).contains("no device of driver d"));
        let other = ClaimKey {
            uid: "u-2".to_owned(),
            ..key()
        };
        let replaced = checked(found(allocated(&[result("a", "d", "x")])), &other, "d");
        assert_eq!(replaced, Err(Refusal::Replaced { key: other }));
    }

    #[test]
    fn a_claim_that_was_made_for_a_pod_has_its_name_there_and_no_path() {
        let long = "a".repeat(64);
        for (name, expected) in [
            ("cam", Some("cam")),
            ("../cam", None),
            ("", None),
            (&*long, None),
        ] {
            let status = json!({"allocation": {"devices": {"results": [result("a", "d", "x")]}}});
            let mut found = found(status);
            found.metadata.annotations = Some([(IN_POD.to_owned(), name.to_owned())].into());
            let claim = checked(found, &key(), "d").unwrap();
            assert_eq!(claim.in_pod.as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn what_could_leave_a_folder_is_no_key() {
        assert_eq!(key().check(), Ok(()));
        let long = "a".repeat(64);
        for uid in ["", "..", "../x", "a/b", "a.b", &*long] {
            let key = ClaimKey {
                uid: uid.to_owned(),
                ..key()
            };
            assert!(key.check().is_err(), "{uid}");
        }
        for name in ["", "..", "a/b", "a?b", "a%2fb"] {
            let key = ClaimKey {
                name: name.to_owned(),
                ..key()
            };
            assert!(key.check().is_err(), "{name}");
        }
    }
}
