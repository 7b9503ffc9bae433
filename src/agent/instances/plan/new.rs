//! The Instance of a device that has none yet. Pure.
use super::{PlanOfOne, World};
use crate::{
    agent::device_state::observed_slots,
    api::{
        instance::{Instance, InstanceSpec, InstanceStatus},
        names,
    },
    model::{
        container_edits::{stored, stored_copy},
        device::{Device, DeviceId, Scope},
        instance_name::InstanceKey,
        instance_name::InstanceName,
        slot_table::SlotTable,
    },
    store::plan::{with_availability, with_health},
};
use kube::Resource as _;
use std::collections::BTreeMap;

impl PlanOfOne<'_> {
    pub(super) fn candidates(&self, id: &DeviceId) -> [InstanceName; 2] {
        InstanceName::candidates(&self.key.name, id, self.accepted.scope, self.world.node)
    }

    pub(super) fn new_instance(&self, name: &InstanceName, device: &Device) -> Instance {
        let spec = InstanceSpec {
            configuration_name: self.key.name.as_str().into(),
            cdi_name: format!(
                "{}/{}={}",
                names::GROUP,
                self.key.name,
                name.digest().unwrap_or_default()
            ),
            capacity: self.accepted.configuration.spec.capacity,
            broker_properties: self.stored_copy(device),
            shared: self.accepted.scope == Scope::Shared,
            nodes: vec![self.world.node.clone()],
            device_usage: BTreeMap::new(),
        };
        let mut instance = Instance::new(name.as_str(), spec);
        instance.metadata.namespace = Some(self.key.namespace.clone());
        // Without a uid there is no API server that would collect it.
        let owner = self.accepted.configuration.controller_owner_ref(&());
        instance.metadata.owner_references = owner.map(|owner| vec![owner]);
        let id = (names::DEVICE_ID.to_owned(), device.id.to_string());
        let mut annotations = BTreeMap::from([id]);
        let pin = device.pin.as_ref();
        annotations.extend(pin.map(|pin| (names::PIN.to_owned(), pin.to_string())));
        if self.world.merges {
            annotations.insert(names::CONNECTION.to_owned(), device.connection_digest());
        }
        instance.metadata.annotations = Some(annotations);
        if self.may_be_used(name) {
            instance.spec.device_usage = self.used(name, &instance);
        }
        let (node, now) = (self.world.node, self.world.now.text);
        let status = with_health(&InstanceStatus::default(), node, &self.seen(device), now);
        instance.status = Some(with_availability(status, &instance.spec, now));
        instance
    }

    pub(super) fn may_be_used(&self, name: &InstanceName) -> bool {
        let mut uses = self.world.uses.unwrap_or_default().iter();
        uses.any(|one| one.may_be_of(name))
    }

    /// The slots of a new Instance that containers have already: by one of its name that was deleted.
    fn used(&self, name: &InstanceName, new: &Instance) -> BTreeMap<String, String> {
        let World { node, uses, .. } = *self.world;
        let uses = uses.unwrap_or_default();
        let key = InstanceKey::new(&self.key.namespace, name);
        let all = self.world.instances.iter().map(|(key, i)| (key, &**i));
        let mut table = SlotTable::new(node.clone());
        table.observe(
            all.chain([(&key, new)])
                .map(|(key, instance)| observed_slots(key, instance, node)),
        );
        let claims = table.adoptions(uses).changes.into_iter();
        let its = claims.filter(|claim| claim.key == key);
        its.filter_map(|claim| Some((claim.slot.to_string(), claim.to?.to_string())))
            .collect()
    }

    /// The properties of a device's Instance. They are borrowed: each copy is counted first.
    pub(super) fn stored_properties<'a>(
        &'a self,
        device: &'a Device,
    ) -> impl Iterator<Item = (&'a String, &'a String)> {
        let broker_properties = &self.accepted.configuration.spec.broker_properties;
        stored(&device.properties, broker_properties)
    }

    pub(super) fn stored_copy(&self, device: &Device) -> BTreeMap<String, String> {
        stored_copy(
            &device.properties,
            &self.accepted.configuration.spec.broker_properties,
        )
    }

    /// The bytes of the properties of a device's Instance.
    pub(super) fn stored_bytes(&self, device: &Device) -> usize {
        let properties = self.stored_properties(device);
        properties.map(|(key, value)| key.len() + value.len()).sum()
    }
}
