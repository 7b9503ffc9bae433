//! Finds the parts of the world that have changed, by comparing each object with the one that was there before. Pure.
use super::{
    parts::{Parts, part_of},
    services::plan::service_key,
    world::{Meta, World},
};
use crate::{
    api::{
        instance::Instance,
        names,
        node_devices::{ConfigurationView, NodeDevices},
    },
    model::{instance_name::InstanceKey, names::ObjectKey},
};
use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// More changes than these are planned with the whole world.
const CHANGES_MAX: usize = 1000;
/// The longest names of brokers and Services. Longer ones are cut, and do not say whose they are.
const NAME_LIMIT: usize = 63;

/// Returns the parts that differ between two whole worlds.
pub(crate) fn touched(before: &World, now: &World) -> Parts {
    let mut touched = Touched::default();
    let [before, now] = [before, now].map(Side::new);
    each_change(&before.world.nodes, &now.world.nodes, &mut |_, was, is| {
        // Most changes of a Node are heartbeats.
        touched.is_all |= was != is;
    });
    let (was, is) = (&before.world.node_devices, &now.world.node_devices);
    each_change(was, is, &mut |_, was, is| touched.reports(was, is));
    let (was, is) = (&before.world.configurations, &now.world.configurations);
    each_change(was, is, &mut |key, _, _| touched.part(&key.name));
    touched.unreadable(before.world, now.world);
    let (was, is) = (&before.world.instances, &now.world.instances);
    each_change(was, is, &mut |key, was, is| touched.instance(key, was, is));
    // After a relist every object is another one.
    if touched.is_whole() {
        return Parts::All;
    }
    let (was, is) = (&before.world.jobs, &now.world.jobs);
    each_change(was, is, &mut |key, was, is| {
        for (side, job) in [(&before, was), (&now, is)] {
            if let Some(job) = job {
                touched.workload(side, key, &job.meta);
            }
        }
    });
    let (was, is) = (&before.world.pods, &now.world.pods);
    each_change(was, is, &mut |key, was, is| {
        for (side, pod) in [(&before, was), (&now, is)] {
            if let Some(pod) = pod {
                touched.workload(side, key, &pod.meta);
            }
        }
    });
    let (was, is) = (&before.world.services, &now.world.services);
    each_change(was, is, &mut |key, was, is| {
        for (side, service) in [(&before, was), (&now, is)] {
            if let Some(service) = service {
                touched.service(side, key, &service.meta);
            }
        }
    });
    match touched.is_whole() {
        true => Parts::All,
        false => Parts::Named(touched.names),
    }
}

/// Is called with the key of a changed object, and with the object before and now.
type OnChange<'a, K, T> = dyn FnMut(&K, Option<&T>, Option<&T>) + 'a;

/// Calls `on` with each object that is not the same as before. Most are the same: these cost one comparison of addresses.
fn each_change<K: Ord, T>(
    before: &BTreeMap<K, Arc<T>>,
    now: &BTreeMap<K, Arc<T>>,
    on: &mut OnChange<'_, K, T>,
) {
    let (mut before, mut now) = (before.iter().peekable(), now.iter().peekable());
    loop {
        match (before.peek(), now.peek()) {
            (None, None) => return,
            (Some((_, was)), Some((_, is))) if Arc::ptr_eq(was, is) => {
                before.next();
                now.next();
            }
            (was, is) => {
                let (key_before, key_now) = (was.map(|(key, _)| *key), is.map(|(key, _)| *key));
                let is_gone = key_now.is_none_or(|now| key_before.is_some_and(|was| was < now));
                let is_new = key_before.is_none_or(|was| key_now.is_some_and(|now| now < was));
                let was = (!is_new).then(|| before.next()).flatten();
                let is = (!is_gone).then(|| now.next()).flatten();
                if let Some((key, _)) = was.or(is) {
                    on(key, was.map(|(_, o)| &**o), is.map(|(_, o)| &**o));
                }
            }
        }
    }
}

#[derive(Default)]
struct Touched {
    names: BTreeSet<String>,
    is_all: bool,
    changes: usize,
}

/// One of the two worlds.
struct Side<'a> {
    world: &'a World,
    /// The part of each Instance and Job, by namespace and uid. It is made only if an object's labels do not say enough.
    owners: OnceCell<BTreeMap<(&'a str, &'a str), &'a str>>,
    /// The part of each Configuration, by the key of its Service.
    services: OnceCell<BTreeMap<ObjectKey, &'a str>>,
}

impl<'a> Side<'a> {
    fn new(world: &'a World) -> Self {
        Self {
            world,
            owners: OnceCell::new(),
            services: OnceCell::new(),
        }
    }

    /// Returns the Configuration of the Instance or Job with this uid.
    fn of_owner(&self, namespace: &str, uid: &str) -> Option<&'a str> {
        let owners = self.owners.get_or_init(|| {
            let mut owners = BTreeMap::new();
            for (key, instance) in &self.world.instances {
                let uid = instance.metadata.uid.as_deref().unwrap_or_default();
                let name = instance.spec.configuration_name.as_str();
                owners.insert((key.namespace.as_str(), uid), name);
            }
            for (key, job) in &self.world.jobs {
                let namespace = key.namespace.as_str();
                let owner = job.meta.owner.as_deref();
                let of = owner.and_then(|uid| owners.get(&(namespace, uid)).copied());
                if let Some(of) = of {
                    owners.insert((namespace, job.meta.uid.as_str()), of);
                }
            }
            owners
        });
        owners.get(&(namespace, uid)).copied()
    }

    fn of_service(&self, key: &ObjectKey) -> Option<&'a str> {
        let services = self.services.get_or_init(|| {
            let mut services = BTreeMap::new();
            for key in self.world.configurations.keys() {
                services.insert(service_key(key), key.name.as_str());
            }
            services
        });
        services.get(key).copied()
    }

    fn instance(&self, namespace: &str, name: &str) -> Option<&'a Instance> {
        let key = InstanceKey::new(namespace, name);
        self.world.instances.get(&key).map(AsRef::as_ref)
    }
}

impl Touched {
    fn is_whole(&self) -> bool {
        self.is_all || self.changes > CHANGES_MAX
    }

    fn part(&mut self, configuration: &str) {
        self.changes += 1;
        if !self.is_all && !self.names.contains(configuration) {
            self.names.insert(part_of(configuration).into_owned());
        }
    }

    /// An agent that begins or ends, or makes its object anew, says something of its node.
    fn reports(&mut self, before: Option<&NodeDevices>, now: Option<&NodeDevices>) {
        let (Some(before), Some(now)) = (before, now) else {
            self.is_all = true;
            return;
        };
        self.is_all |= before.metadata.uid != now.metadata.uid;
        self.is_all |= before.spec.left_out != now.spec.left_out;
        let [was, is] = [before, now].map(views);
        for name in was.keys().chain(is.keys()) {
            if was.get(name) != is.get(name) {
                self.part(name);
            }
        }
    }

    fn unreadable(&mut self, before: &World, now: &World) {
        let (was, is) = (&before.unreadable, &now.unreadable);
        for key in was.keys().chain(is.keys()) {
            if was.get(key) != is.get(key) {
                self.part(&key.name);
            }
        }
    }

    fn instance(&mut self, key: &InstanceKey, before: Option<&Instance>, now: Option<&Instance>) {
        for instance in [before, now].into_iter().flatten() {
            self.part(&instance.spec.configuration_name);
        }
        // Its name is free or taken now, for a device of the Configuration that the name begins with.
        let named_after = key.name.configuration();
        if let Some(of) = named_after.filter(|_| before.is_none() || now.is_none()) {
            self.part(&of);
        }
    }

    /// Touches the parts that a Pod or a Job belongs to: by its labels, which users may change, and by its owner.
    fn workload(&mut self, side: &Side<'_>, key: &ObjectKey, meta: &Meta) {
        if self.is_whole() {
            return;
        }
        let label = meta.labels.get(names::CONFIGURATION_LABEL);
        let of = label.map(String::as_str);
        let label = meta.labels.get(names::INSTANCE_LABEL);
        let named = label.and_then(|label| side.instance(&key.namespace, label));
        let of_named = named.map(|instance| instance.spec.configuration_name.as_str());
        for of in of.into_iter().chain(of_named) {
            self.part(of);
        }
        let uid = named.and_then(|instance| instance.metadata.uid.as_ref());
        if uid.is_some() && uid == meta.owner.as_ref() {
            return;
        }
        let owner = meta.owner.as_deref();
        if let Some(of) = owner.and_then(|uid| side.of_owner(&key.namespace, uid)) {
            self.part(of);
        }
        // Labels are cut as names are.
        self.is_all |= named.is_none() && label.is_some_and(|label| label.len() >= NAME_LIMIT);
        let is_brokers = ["-pod", "-job"].iter().any(|end| key.name.ends_with(end));
        if is_brokers || key.name.len() >= NAME_LIMIT {
            // It has a name that a broker of another Instance may have.
            let name = label.map(|label| label.replace('.', "-"));
            self.is_all |= !name.is_some_and(|name| key.name.contains(&name));
        }
    }

    /// Touches the parts whose Services have this name.
    fn service(&mut self, side: &Side<'_>, key: &ObjectKey, meta: &Meta) {
        if self.is_whole() {
            return;
        }
        let names_it =
            |label: &&String| service_key(&ObjectKey::new(&key.namespace, label.as_str())) == *key;
        let of_instance = meta.labels.get(names::INSTANCE_LABEL).filter(names_it);
        let of_configuration = meta.labels.get(names::CONFIGURATION_LABEL).filter(names_it);
        let plain = key.name.strip_suffix("-svc");
        let names = [plain, of_instance.map(String::as_str)];
        let instances = (names.into_iter().flatten())
            .filter_map(|name| side.instance(&key.namespace, name))
            .map(|instance| instance.spec.configuration_name.as_str());
        let named = of_configuration.map(String::as_str);
        for of in instances.chain(side.of_service(key)).chain(named) {
            self.part(of);
        }
        self.is_all |= of_instance.or(of_configuration).is_none() || key.name.len() >= NAME_LIMIT;
        self.changes += 1;
    }
}

/// Returns the reports of a node by the name of the Configuration.
fn views(object: &NodeDevices) -> BTreeMap<&str, Vec<&ConfigurationView>> {
    let mut views: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    for view in &object.spec.configurations {
        views.entry(&view.name).or_default().push(view);
    }
    views
}

#[cfg(test)]
mod tests;
