//! Decides why the kubelet calls a device of a Pod unhealthy although no Instance says that it is gone. Pure.
use super::{
    super::finding::{Cause, Finding},
    agents::agent_trouble,
    resource::{described_in, maker_of},
    slots::Taken,
};
use crate::inspect::{
    pods::{given, inspection, node_of},
    snapshot::{Owner, Snapshot},
};
use k8s_openapi::api::core::v1::Pod;
use petiole_model::model::{
    names::ObjectKey, plugin_name::PluginName, resource_name::ResourceName, slot::SlotId,
    typed_names::ConfigurationKey,
};

/// A device that the kubelet calls unhealthy, and the Pod that has it.
pub(super) struct Unhealthy<'a> {
    snapshot: &'a Snapshot,
    key: &'a ObjectKey,
    pod: &'a Pod,
    resource: &'a ResourceName,
    id: &'a str,
}

impl<'a> Unhealthy<'a> {
    /// Returns the first such device of a Pod.
    pub(super) fn of(
        snapshot: &'a Snapshot,
        key: &'a ObjectKey,
        pod: &'a Pod,
        mut asked: impl Iterator<Item = &'a ResourceName>,
    ) -> Option<Self> {
        asked.find_map(|resource| {
            let mut ids = given(pod, resource);
            let (id, _) = ids.find(|(_, health)| *health == Some("Unhealthy"))?;
            Some(Self {
                snapshot,
                key,
                pod,
                resource,
                id,
            })
        })
    }

    /// Returns the cause. A device is gone only if nothing else explains it: an agent that is away, an edit of the Configuration,
    /// and a slot that was released leave the device where it is.
    pub(super) fn explain(&self, slots: &[Taken<'_>]) -> Finding {
        self.without_agent()
            .or_else(|| self.not_offered())
            .or_else(|| self.beyond_capacity(slots))
            .or_else(|| self.shown(slots))
            .unwrap_or_else(|| self.not_shown())
    }

    /// Returns the begin of the sentence.
    fn said(&self) -> String {
        format!("The kubelet says that its device {} is unhealthy", self.id)
    }

    fn deletion(&self) -> String {
        let ObjectKey { namespace, name } = self.key;
        format!("kubectl -n {namespace} delete pod {name}")
    }

    /// Returns the finding for a node whose agent is away: the kubelet calls every device of a plugin that does not answer unhealthy.
    fn without_agent(&self) -> Option<Finding> {
        let trouble = agent_trouble(self.snapshot, node_of(self.pod)?)?;
        let text = format!(
            "{}. {} The Pod goes on with its device until it ends.",
            self.said(),
            trouble.text
        );
        Some(Finding { text, ..trouble })
    }

    /// Returns the finding for a resource that nothing offers any more, under another name perhaps.
    fn not_offered(&self) -> Option<Finding> {
        let Self {
            snapshot,
            key,
            resource,
            ..
        } = self;
        if snapshot.owner_of(resource).is_some() {
            return None;
        }
        let begin = format!(
            "{}, because no Configuration or Instance{} offers {resource}",
            self.said(),
            snapshot.readable_objects()
        );
        if let Some(now) = self.present_name() {
            let text = format!(
                "{begin} any more: it is called {now} now. The Pod keeps its device until it ends, and the next one would wait: write the new name into the limits where the Pod is described."
            );
            let finding = Finding::new(Cause::UnknownResource, text);
            return Some(finding.then(described_in(self.pod)));
        }
        if self.maker().is_some() {
            return None;
        }
        if snapshot.hidden.objects {
            let text = format!(
                "{begin}: one of another namespace may. The Pod keeps its device until it ends."
            );
            return Some(Finding::new(Cause::UnknownResource, text));
        }
        let text = format!(
            "{begin} any more: the Pod keeps its device until it ends, and the next one would wait."
        );
        let next = format!("kubectl -n {} get configurations,instances", key.namespace);
        Some(Finding::new(Cause::UnknownResource, text).then(next))
    }

    /// Returns what the resource is called now that nothing has its name. Its ids begin with the name of its Instance or Configuration,
    /// whatever the resource is called.
    fn present_name(&self) -> Option<ResourceName> {
        let plugin = PluginName::of_id(self.id)?;
        let is_it = |owner: &Owner| match owner {
            Owner::Configuration(key) => plugin == key.name,
            Owner::Instance(key) => plugin == key.name,
        };
        let offered = self.snapshot.resources().into_iter();
        let mut its = offered.filter(|(_, owner)| is_it(owner));
        if let Some((resource, _)) = its.next() {
            return Some(resource);
        }
        // Without Instances the ids are those of the devices all the same.
        let (key, configuration) = maker_of(self.snapshot, plugin.as_str())?;
        let is_without = !configuration.spec.instances;
        is_without.then(|| self.snapshot.configuration_resource(key, configuration))
    }

    /// Returns the Configuration that offers the resource, or that has offered the device of this id.
    fn maker(&self) -> Option<ConfigurationKey> {
        match self.snapshot.owner_of(self.resource) {
            Some(Owner::Configuration(key)) => Some(key),
            Some(Owner::Instance(key)) => {
                let instance = &self.snapshot.instances[&key];
                Some(instance.spec.configuration_key(&key.namespace))
            }
            None => {
                let plugin = PluginName::of_id(self.id)?;
                let (key, _) = maker_of(self.snapshot, plugin.as_str())?;
                Some(key.clone())
            }
        }
    }

    /// Returns the finding for a slot of a device that has fewer slots now.
    fn beyond_capacity(&self, slots: &[Taken<'_>]) -> Option<Finding> {
        let slots = slots.iter().map(|taken| {
            let spec = &taken.instance.spec;
            let of = spec.configuration_key(&taken.key.namespace);
            (taken.slot.slot.as_str(), spec.capacity, of)
        });
        let without_object = self.maker().and_then(|of| {
            let spec = &self.snapshot.configurations.get(&of)?.spec;
            (!spec.instances).then_some((self.id, spec.capacity, of))
        });
        let is_beyond = |(slot, capacity, _): &(&str, i32, ConfigurationKey)| {
            let slot = slot.parse::<SlotId>();
            slot.is_ok_and(|slot| i64::from(slot.index) >= i64::from(*capacity))
        };
        let (slot, capacity, of) = slots.chain(without_object).find(is_beyond)?;
        let text = format!(
            "{}, because spec.capacity of Configuration {of} was lowered to {capacity}, and the Pod has slot {slot}. The device is there, and the Pod keeps the slot until it ends; no other Pod gets it unless spec.capacity is raised again.",
            self.said(),
        );
        let next = format!("kubectl -n {} edit configuration {}", of.namespace, of.name);
        Some(Finding::new(Cause::Fine, text).then(next))
    }

    /// Returns what is said if the Configuration is there as it was, and an Instance shows the slot.
    fn shown(&self, slots: &[Taken<'_>]) -> Option<Finding> {
        let taken = slots.first()?;
        let agent = self.snapshot.agent_on(&taken.slot.node);
        let rest = match agent {
            Some(_) => {
                "The agent tells the kubelet so within seconds; if that lasts, its log says why."
            }
            None => "Whether an agent runs on its node is not yours to read.",
        };
        let (said, key) = (self.said(), taken.key);
        let text = format!("{said}, and Instance {key} says that it is there. {rest}");
        let finding = Finding::new(Cause::OtherReason, text);
        Some(match agent {
            Some((key, agent)) => finding.then(inspection(key, agent)),
            None => finding,
        })
    }

    /// Returns what is said if no Instance shows the slot.
    fn not_shown(&self) -> Finding {
        let said = self.said();
        let why = match self.maker() {
            None => format!("{said}, and no Configuration is known to offer it"),
            Some(of) if self.has_instances(&of) => {
                let text = format!(
                    "{said}, and no Instance of Configuration {of} shows that the Pod has it: that of its device was deleted, or the slot was released while the node could not be reached. The Pod goes on with what it was given. Delete it, so that the next one gets a device that is there."
                );
                return Finding::new(Cause::InstanceDeleted, text).then(self.deletion());
            }
            Some(of) if self.has_objects(&of) => {
                format!("{said}, and Configuration {of} has no Instance of it any more")
            }
            Some(of) => {
                format!("{said}, and its node finds no such device for Configuration {of} any more")
            }
        };
        let text = format!(
            "{why}: the device is gone, and the Pod goes on with what it was given. Delete the Pod, so that the next one gets another device."
        );
        Finding::new(Cause::DeviceGone, text).then(self.deletion())
    }

    /// Returns whether the Pod asks for what a Configuration offers now, and an Instance of it is there.
    fn has_instances(&self, of: &ConfigurationKey) -> bool {
        let is_offered = self.snapshot.owner_of(self.resource).is_some();
        is_offered && self.snapshot.instances_of(of).next().is_some()
    }

    /// Returns whether the devices of a Configuration have Instances at all.
    fn has_objects(&self, of: &ConfigurationKey) -> bool {
        let configuration = self.snapshot.configurations.get(of);
        configuration.is_none_or(|configuration| configuration.spec.instances)
    }
}
