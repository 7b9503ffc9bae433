use super::*;
use crate::agent::values::Accepted;
use crate::{
    api::instance::{Instance, InstanceSpec},
    model::container_edits::SLOT_VARIABLE,
};
use k8s_openapi::api::resource::v1::{
    DeviceAllocationConfiguration, DeviceRequestAllocationResult,
};
use petiole_dra::claim::ClaimKey;
use std::sync::Arc;

fn instances(names: &[&str]) -> Instances {
    let instance = |name: &&str| {
        let spec = InstanceSpec {
            configuration_name: "cam".into(),
            ..InstanceSpec::default()
        };
        let key = InstanceKey::new("lab", *name);
        (key, Arc::new(Instance::new(name, spec)))
    };
    names.iter().map(instance).collect()
}

fn claim(devices: &[(&str, &str, bool)]) -> Claim {
    let device = |(request, device, is_admin): &(&str, &str, bool)| DeviceRequestAllocationResult {
        request: (*request).to_owned(),
        driver: dra::DRIVER.to_owned(),
        pool: "lab/cam".to_owned(),
        device: (*device).to_owned(),
        admin_access: is_admin.then_some(true),
        ..DeviceRequestAllocationResult::default()
    };
    Claim {
        key: ClaimKey {
            uid: "u-1".to_owned(),
            namespace: "other".to_owned(),
            name: "view".to_owned(),
        },
        in_pod: None,
        devices: devices.iter().map(device).collect(),
        configs: vec![],
    }
}

fn edits(slots: &str) -> ContainerEdits {
    ContainerEdits {
        env: [(SLOT_VARIABLE.to_owned(), slots.to_owned())].into(),
        ..ContainerEdits::default()
    }
}

#[test]
fn the_devices_of_a_request_are_one_containers_and_those_of_another_request_may_be_anothers() {
    let instances = instances(&["cam-1", "cam-2"]);
    let claim = claim(&[
        ("both/a", "cam-1", false),
        ("both/a", "cam-2", false),
        ("look", "cam-1", true),
    ]);
    let requests = requests(&claim, &instances).unwrap();
    let found: Vec<_> = (requests.iter())
        .map(|one| {
            (
                one.devices.iter().map(|key| key.name.to_string()).collect(),
                one.is_admin,
            )
        })
        .collect();
    let expected: Vec<(Vec<String>, bool)> = vec![
        (vec!["cam-1".to_owned(), "cam-2".to_owned()], false),
        (vec!["cam-1".to_owned()], true),
    ];
    assert_eq!(found, expected);
    let mut both = edits("cam-1-0,cam-2-0");
    both.cdi_devices = vec!["vendor.com/x=1".to_owned()];
    assert_eq!(
        cdi_devices(&claim, &[both, ContainerEdits::default()]),
        [
            vec![
                "akri.sh/claim=u-1-0".to_owned(),
                "vendor.com/x=1".to_owned()
            ],
            vec![],
            vec!["akri.sh/claim=u-1-1".to_owned()]
        ]
    );
}

/// What a Configuration says of its containers is for its devices alone.
#[test]
fn one_request_for_devices_of_two_configurations_brings_each_what_its_own_says() {
    let mut both = claim(&[
        ("any", "cam-1", false),
        ("any", "tv-1", false),
        ("any", "cam-2", false),
    ]);
    both.devices[1].pool = "lab/tv".to_owned();
    let mut instances = instances(&["cam-1", "cam-2", "tv-1"]);
    let tv = instances.get_mut(&InstanceKey::new("lab", "tv-1")).unwrap();
    Arc::make_mut(tv).spec.configuration_name = "tv".into();
    let requests = requests(&both, &instances).unwrap();
    let found = requests
        .iter()
        .map(|one| one.devices.iter().map(|key| &*key.name).collect());
    let found: Vec<Vec<&str>> = found.collect();
    assert_eq!(found, [vec!["cam-1", "cam-2"], vec!["tv-1"]]);
    let devices = cdi_devices(&both, &[edits("cam-1-0,cam-2-0"), edits("tv-1-0")]);
    let own = |n: usize| vec![format!("akri.sh/claim=u-1-{n}")];
    assert_eq!(devices, [own(0), own(1), vec![]]);
}

#[test]
fn a_device_whose_name_is_not_its_instances_is_found_and_that_of_another_configuration_is_not() {
    let long = format!("cam-{}", "x".repeat(70));
    let instances = instances(&["cam.1", &long]);
    let of =
        |pool: &str, device: &str| Some(instance_of(pool, device, &instances)?.name.to_string());
    assert_eq!(of("lab/cam", "cam-1").as_deref(), Some("cam.1"));
    let device = dra::device_name(&long.as_str().into());
    assert_eq!(of("lab/cam", &device), Some(long.clone()));
    assert_eq!(of("lab/tv", "cam-1"), None);
    assert_eq!(of("other/cam", "cam-1"), None);
}

#[test]
fn a_device_without_an_instance_is_named() {
    let refused = requests(&claim(&[("a", "cam-3", false)]), &instances(&["cam-1"]));
    let refused = refused.unwrap_err();
    assert!(
        refused.starts_with("device cam-3 of pool lab/cam has no Instance"),
        "{refused}"
    );
}

#[test]
fn each_request_has_a_file_about_its_devices_whichever_of_them_are_known() {
    let claim = claim(&[
        ("both/a", "cam-1", false),
        ("look", "cam-9", true),
        ("both/a", "cam-2", false),
    ]);
    let files = metadata(&claim, &instances(&["cam-1", "cam-2"]), &Accepted::new());
    let paths: Vec<_> = files.iter().map(|file| (file.group, &*file.path)).collect();
    let folder = "/var/run/kubernetes.io/dra-device-attributes/resourceclaims/view";
    let expected = ["both", "look"].map(|name| format!("{folder}/{name}/akri.sh-metadata.json"));
    assert_eq!(paths, [(0, &*expected[0]), (1, &*expected[1])]);
    let devices = |n: usize, name: &str| files[n].text.matches(name).count();
    assert_eq!(
        (
            devices(0, "cam-1"),
            devices(0, "cam-2"),
            devices(1, "cam-9")
        ),
        (2, 2, 2)
    );
}

#[test]
fn a_configuration_for_the_driver_is_refused() {
    let mut claim = claim(&[("one", "cam-1", false)]);
    claim.configs = vec![DeviceAllocationConfiguration::default()];
    let refused = requests(&claim, &instances(&["cam-1"])).unwrap_err();
    assert!(refused.contains("ResourceClaim other/view"), "{refused}");
    assert!(refused.contains("`config` for driver akri.sh"), "{refused}");
}
