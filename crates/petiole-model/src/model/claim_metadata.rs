//! Describes the devices of a ResourceClaim to the containers that have them, as KEP 5304 says: a file for each request. Pure.
//!
//! Source: `api/metadata` of `k8s.io/dynamic-resource-allocation`.
use super::dra;
use petiole_base::collect::CollectMap as _;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The folder of the files in containers.
const FOLDER: &str = "/var/run/kubernetes.io/dra-device-attributes";
/// The versions of the format, which are alike: a reader takes the first that it knows.
const VERSIONS: [&str; 2] = ["v1beta1", "v1alpha1"];

/// The claim that has the devices.
#[derive(Debug, Clone, Copy)]
pub struct OfClaim<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
    pub uid: &'a str,
    /// The name that the Pod gives the claim, if it was made for the Pod by a template.
    pub in_pod: Option<&'a str>,
}

/// A device of a request.
#[derive(Debug, Clone)]
pub struct Described<'a> {
    /// The request, or `request/subrequest`.
    pub request: &'a str,
    pub pool: &'a str,
    pub name: &'a str,
    /// The attributes that the scheduler knows.
    pub attributes: BTreeMap<String, String>,
}

/// Returns the path of the file of a request in containers. A request with alternatives has one name for all of them.
pub fn path(claim: OfClaim<'_>, request: &str) -> String {
    let (kind, name) = match claim.in_pod {
        Some(name) => ("resourceclaimtemplates", name),
        None => ("resourceclaims", claim.name),
    };
    let driver = dra::DRIVER;
    format!("{FOLDER}/{kind}/{name}/{request}/{driver}-metadata.json")
}

/// Returns the text of the file: an object for each version.
pub fn text(claim: OfClaim<'_>, devices: &[Described<'_>]) -> String {
    let described = devices.iter().map(|device| {
        let attributes = device.attributes.iter();
        let attributes = attributes.map(|(name, value)| (name.clone(), json!({"string": value})));
        json!({
            "driver": dra::DRIVER, "pool": device.pool, "name": device.name,
            "attributes": attributes.collect_map(),
        })
    });
    let name = devices.first().map(|device| device.request);
    let requests = json!([{"name": name, "devices": Vec::from_iter(described)}]);
    let object = |version: &&str| {
        let mut object = json!({
            "apiVersion": format!("metadata.resource.k8s.io/{version}"), "kind": "DeviceMetadata",
            "metadata": {"namespace": claim.namespace, "name": claim.name, "uid": claim.uid},
            "requests": requests,
        });
        if let Some(name) = claim.in_pod {
            object["podClaimName"] = Value::from(name);
        }
        format!("{object}\n")
    };
    VERSIONS.iter().map(object).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLAIM: OfClaim<'_> = OfClaim {
        namespace: "lab",
        name: "viewer-camera-x7",
        uid: "u-1",
        in_pod: Some("camera"),
    };

    #[test]
    fn a_pod_finds_the_file_by_the_names_that_its_spec_has() {
        let folder = "/var/run/kubernetes.io/dra-device-attributes";
        let by_template = path(CLAIM, "one");
        let file = "one/akri.sh-metadata.json";
        assert_eq!(
            by_template,
            format!("{folder}/resourceclaimtemplates/camera/{file}")
        );
        let named = OfClaim {
            in_pod: None,
            ..CLAIM
        };
        let path = path(named, "one");
        assert_eq!(
            path,
            format!("{folder}/resourceclaims/viewer-camera-x7/{file}")
        );
    }

    #[test]
    fn each_version_says_the_same() {
        let device = Described {
            request: "one/best",
            pool: "lab/cam",
            name: "cam-1",
            attributes: [("ROOM".to_owned(), "hall".to_owned())].into(),
        };
        let text = text(CLAIM, &[device]);
        let versions: Vec<Value> = (text.lines())
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let names = versions.iter().map(|version| &version["apiVersion"]);
        let expected = ["v1beta1", "v1alpha1"].map(|v| format!("metadata.resource.k8s.io/{v}"));
        assert!(names.eq(expected.iter()), "{text}");
        for version in versions {
            let request = &version["requests"][0];
            assert_eq!(request["name"], "one/best");
            let room = &request["devices"][0]["attributes"]["ROOM"];
            assert_eq!(*room, json!({"string": "hall"}));
            assert_eq!(version["podClaimName"], "camera");
        }
    }
}
