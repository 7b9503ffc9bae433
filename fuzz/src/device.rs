//! Checks the rules that hold for every device, whoever announced it.
use petiole::model::{
    container_edits::{ContainerEdits, Given},
    device::{Device, Scope},
    instance_name::InstanceName,
    slot::SlotId,
};
use std::collections::BTreeMap;

/// `count` and `bytes` bound the properties.
pub fn check(device: &Device, count: usize, bytes: usize) {
    let id = device.id.as_str();
    assert!(!id.is_empty() && !id.contains('\0'), "id {id:?}");
    assert!(
        device.properties.len() <= count,
        "{} properties",
        device.properties.len()
    );
    let sizes = device
        .properties
        .iter()
        .map(|(name, value)| name.len() + value.len());
    let size: usize = sizes.sum();
    assert!(size <= bytes, "properties of {size} bytes");
    check_variables(&device.properties);
    for name in &device.connection {
        assert!(
            device.properties.contains_key(name),
            "{name} is no property"
        );
    }
    for scope in [Scope::Shared, Scope::Node] {
        for name in InstanceName::candidates(&"cam".into(), &device.id, scope, &"node-a".into()) {
            let slot = SlotId::new(&name, 0);
            let edits = ContainerEdits::of(
                &[Given {
                    digest: name.digest().expect("a device has a digest"),
                    slot: &slot,
                    device,
                    broker_properties: &BTreeMap::new(),
                }],
                None,
            )
            .expect("without wishes nothing is refused");
            check_variables(&edits.env);
            assert_eq!(name.configuration().as_deref(), Some("cam"));
        }
    }
}

fn check_variables(variables: &BTreeMap<String, String>) {
    for (name, value) in variables {
        let is_safe = |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_';
        assert!(
            !name.is_empty() && name.bytes().all(is_safe),
            "variable {name:?}"
        );
        assert!(!value.contains('\0'), "{name} has a NUL");
    }
}
