//! Keeps the cluster as it was seen last, and knows which objects belong to a part of it.
//!
//! A part is what belongs to the Configurations of one name, in all namespaces: of one name only one Configuration works.
//! Each object is noted under its part as it arrives, from a watch or as the answer to a write, and says which parts are
//! to be planned again. Nodes and NodeDevices belong to each part, but a part shows only the reports about its own
//! Configurations. The part without a name has nodes alone.
use super::{
    held_before::HeldBefore,
    index::{Index, Tag, part_of},
    news::KINDS,
    shown::{Origin, Shown, Turned, Versioned},
    world::{BrokerJob, BrokerPod, NodeState, OwnedService, OwnedSlice, Scope, World},
};
pub(crate) use super::{index::Touched, news::News};
use crate::{
    api::{configuration::Configuration, instance::Instance, node_devices::NodeDevices},
    cluster::{changes::Change, watch::Objects},
    model::{
        division::Division,
        instance_name::{InstanceKey, InstanceName},
        names::{Key, ObjectKey},
        typed_names::{ConfigurationKey, ConfigurationName, NodeName},
    },
};
use petiole_base::collect::CollectMap as _;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};
use tokio::time::Instant;

/// The part of what concerns the nodes alone.
pub(crate) const NODES: &str = "";

/// Everything the controller knows of the cluster.
#[derive(Debug, Default)]
pub(crate) struct Cluster {
    /// No part outlives its plan, so that it is never copied to be changed.
    whole: Arc<World>,
    index: Index,
    configurations: Shown<ConfigurationName>,
    instances: Shown<InstanceName>,
    pods: Shown<String>,
    jobs: Shown<String>,
    services: Shown<String>,
    slices: Shown<String>,
    /// The kinds that were listed.
    listed: BTreeSet<&'static str>,
    /// The number of lists of Configurations.
    lists: usize,
}

impl Cluster {
    /// Returns one whose Instances may have so many bytes in memory.
    pub(crate) fn with_room(bytes: usize) -> Self {
        let mut cluster = Self::default();
        cluster.index.instance_bytes = Division::new(bytes);
        cluster
    }

    /// Returns whether the objects of all kinds are known.
    pub(crate) fn is_listed(&self) -> bool {
        self.listed.len() == KINDS
    }

    pub(crate) fn whole(&self) -> &World {
        &self.whole
    }

    /// Returns the names of all parts. Nodes may report on names that nothing else has: of those there is nothing to plan.
    pub(crate) fn names(&self) -> BTreeSet<String> {
        let index = &self.index;
        let configured = index.configurations.parts();
        let unreadable = self.whole.unreadable.keys();
        let unreadable = unreadable.map(|key| part_of(&key.name).into_owned());
        (configured.chain(index.instances.parts()).cloned())
            .chain(index.pods.parts().chain(index.jobs.parts()).cloned())
            .chain(unreadable)
            .chain([NODES.to_owned()])
            .collect()
    }

    /// Returns the world with this part alone. A plan of it is what the plan of the whole world says of it.
    pub(crate) fn part(&self, name: &str) -> World {
        let (whole, index) = (&self.whole, &self.index);
        let of_part = Tag::Part(name.to_owned());
        let instances = only(&whole.instances, index.instances.with(&of_part));
        let uids = (instances.values()).filter_map(|instance| instance.metadata.uid.clone());
        let mut owned: Vec<Tag> = uids.map(Tag::Owner).collect();
        owned.push(of_part.clone());
        let jobs = owned.iter().flat_map(|tag| index.jobs.with(tag));
        let jobs = only(&whole.jobs, jobs);
        // The Pods of a Job are owned by it.
        owned.extend(jobs.values().map(|job| Tag::Owner(job.meta.uid.clone())));
        let named = instances.keys().map(|key| part_of(&key.name).into_owned());
        owned.extend(named.map(Tag::Instance));
        let unreadable = whole.unreadable.iter();
        let configurations = only(&whole.configurations, index.configurations.with(&of_part));
        let room = |of: &ConfigurationKey| (of.clone(), index.instance_bytes.room(of));
        World {
            room: configurations.keys().map(room).collect_map(),
            configurations,
            unreadable: unreadable
                .filter(|(key, _)| part_of(&key.name) == name)
                .map(|(key, error)| (key.clone(), error.clone()))
                .collect_map(),
            pods: only(
                &whole.pods,
                owned.iter().flat_map(|tag| index.pods.with(tag)),
            ),
            instances,
            jobs,
            nodes: whole.nodes.clone(),
            node_devices: whole.node_devices.clone(),
            held_before: whole.held_before.clone(),
            services: BTreeMap::new(),
            slices: only(&whole.slices, index.slices.with(&of_part)),
            scope: Some(Scope {
                name: name.to_owned(),
                views: index.views.with(&of_part).cloned().collect(),
                whole: whole.clone(),
            }),
        }
    }

    /// Takes over what a watch shows. Returns the parts that are another than before.
    pub(crate) fn see(&mut self, news: News) -> Touched {
        self.listed.insert(news.kind());
        if let News::Listed(kind, namespace) = &news {
            self.listed_anew(kind, namespace.as_deref());
        }
        self.take_over(news, Origin::Watch)
    }

    /// Takes over the object that the API server has returned for a write, unless the watch has shown a newer one.
    pub(crate) fn answered(&mut self, news: News) -> Touched {
        self.take_over(news, Origin::Answer)
    }

    /// Follows a list of the objects of a kind. Of the others none is written, and Configurations come as a set.
    fn listed_anew(&mut self, kind: &str, namespace: Option<&str>) {
        match kind {
            "Instances" => self.instances.listed(namespace),
            "Pods" => self.pods.listed(namespace),
            "Jobs" => self.jobs.listed(namespace),
            "Services" => self.services.listed(namespace),
            "Slices" => self.slices.listed(namespace),
            _ => {}
        }
    }

    /// Takes over all Configurations.
    pub(crate) fn list_configurations(
        &mut self,
        listed: &Objects<Configuration, ConfigurationName>,
    ) -> Touched {
        let known = &self.whole.configurations;
        let gone = known
            .keys()
            .filter(|key| !listed.objects.contains_key(*key));
        let change = |key: &ConfigurationKey, object: Option<Arc<Configuration>>| {
            // What is not there any more ended before the newest version.
            let newest = listed.newest.get(&key.namespace).copied();
            let version = object.as_ref().map(|object| object.version());
            Change {
                key: key.clone(),
                version: version.or(newest).unwrap_or(0),
                object,
            }
        };
        let mut changes: Vec<_> = gone.map(|key| change(key, None)).collect();
        let is_known = |key: &ConfigurationKey, object| {
            (known.get(key)).is_some_and(|known| Arc::ptr_eq(known, object))
        };
        let new = (listed.objects.iter()).filter(|(key, object)| !is_known(key, object));
        changes.extend(new.map(|(key, object)| change(key, Some(object.clone()))));
        let mut touched = self.see(News::Configurations(changes));
        if std::mem::replace(&mut self.lists, listed.lists) != listed.lists {
            self.configurations.listed(None);
        }
        let unreadable = unreadable(listed);
        let before = &self.whole.unreadable;
        for key in before.keys().chain(unreadable.keys()) {
            if before.get(key) != unreadable.get(key) {
                touched.part(&key.name);
            }
        }
        Arc::make_mut(&mut self.whole).unreadable = unreadable;
        touched
    }

    /// Takes an Instance that was deleted for one that is being deleted, until its watch says so or it is gone.
    pub(crate) fn instance_deleted(&mut self, key: &InstanceKey, uid: &str) {
        let instances = &mut Arc::make_mut(&mut self.whole).instances;
        let is_it = |instance: &&mut Arc<Instance>| instance.metadata.uid.as_deref() == Some(uid);
        if let Some(instance) = instances.get_mut(key).filter(is_it) {
            self.instances.deleted(instance);
        }
    }

    /// The same of a Pod or a Job.
    pub(crate) fn deleted(&mut self, key: &ObjectKey, uid: &str) {
        let world = Arc::make_mut(&mut self.whole);
        if let Some(pod) = world.pods.get_mut(key).filter(|pod| pod.meta.uid == uid) {
            self.pods.deleted(pod);
        }
        if let Some(job) = world.jobs.get_mut(key).filter(|job| job.meta.uid == uid) {
            self.jobs.deleted(job);
        }
    }

    /// Removes the objects that were answered and are not in a list since.
    pub(crate) fn expire(&mut self, now: Instant) -> Touched {
        let news = [
            News::Instances(self.instances.overdue(now)),
            News::Pods(self.pods.overdue(now)),
            News::Jobs(self.jobs.overdue(now)),
            News::Services(self.services.overdue(now)),
            News::Slices(self.slices.overdue(now)),
            News::Configurations(self.configurations.overdue(now)),
        ];
        HeldBefore::expire(&mut Arc::make_mut(&mut self.whole).held_before, now);
        let mut touched = Touched::default();
        for news in news {
            touched
                .parts
                .extend(self.take_over(news, Origin::Watch).parts);
        }
        touched
    }

    /// Returns when an object that was answered and is not in a list must have been shown.
    pub(crate) fn expires_at(&self) -> Option<Instant> {
        let all = [
            self.instances.first_due(),
            self.pods.first_due(),
            self.jobs.first_due(),
            self.services.first_due(),
            self.slices.first_due(),
            self.configurations.first_due(),
        ];
        all.into_iter().flatten().min()
    }

    fn take_over(&mut self, news: News, origin: Origin) -> Touched {
        let world = Arc::make_mut(&mut self.whole);
        let (index, mut touched) = (&mut self.index, Touched::default());
        match news {
            News::Configurations(changes) => {
                let on = |key: &ConfigurationKey, turned: Turned<&Configuration>| {
                    index.configuration(key, turned, &mut touched);
                };
                let (shown, objects) = (&mut self.configurations, &mut world.configurations);
                each(shown, objects, changes, origin, on);
            }
            News::Instances(changes) => {
                let held = &mut world.held_before;
                let on = |key: &InstanceKey, turned: Turned<&Instance>| {
                    if let [Some(was), None] = turned {
                        HeldBefore::deleted(held, key, was);
                    }
                    index.instance(key, turned, &mut touched);
                };
                let (shown, objects) = (&mut self.instances, &mut world.instances);
                each(shown, objects, changes, origin, on);
            }
            News::Nodes(changes) => see_nodes(world, changes, &mut touched),
            News::NodeDevices(changes) => see_reports(world, changes, index, &mut touched),
            News::Pods(changes) => {
                let on = |key: &ObjectKey, turned: Turned<&BrokerPod>| {
                    let metas = turned.map(|pod| pod.map(|pod| &pod.meta));
                    index.pods.retag(key, metas);
                    index.touch(key, metas, &world.instances, &mut touched);
                };
                each(&mut self.pods, &mut world.pods, changes, origin, on);
            }
            News::Jobs(changes) => {
                let on = |key: &ObjectKey, turned: Turned<&BrokerJob>| {
                    let metas = turned.map(|job| job.map(|job| &job.meta));
                    index.jobs.retag(key, metas);
                    index.job(metas);
                    index.touch(key, metas, &world.instances, &mut touched);
                };
                each(&mut self.jobs, &mut world.jobs, changes, origin, on);
            }
            News::Services(changes) => {
                let on = |key: &ObjectKey, turned: Turned<&OwnedService>| {
                    let metas = turned.map(|service| service.map(|service| &service.meta));
                    index.touch(key, metas, &world.instances, &mut touched);
                };
                each(&mut self.services, &mut world.services, changes, origin, on);
            }
            News::Slices(changes) => {
                let on = |key: &ObjectKey, turned: Turned<&OwnedSlice>| {
                    let metas = turned.map(|slice| slice.map(|slice| &slice.meta));
                    index.slices.retag(key, metas);
                    index.touch(key, metas, &world.instances, &mut touched);
                };
                each(&mut self.slices, &mut world.slices, changes, origin, on);
            }
            News::Listed(..) => {}
        }
        touched
    }
}

/// Takes over changes of objects that the controller writes, and calls `on` with each object as it was and as it is.
fn each<T: Versioned, Name: Ord + Clone>(
    shown: &mut Shown<Name>,
    objects: &mut BTreeMap<Key<Name>, Arc<T>>,
    changes: Vec<Change<T, Name>>,
    origin: Origin,
    mut on: impl FnMut(&Key<Name>, Turned<&T>),
) {
    for change in changes {
        let key = change.key.clone();
        if let Some([was, is]) = shown.take(objects, change, origin) {
            on(&key, [was.as_deref(), is.as_deref()]);
        }
    }
}

fn see_nodes(world: &mut World, changes: Vec<Change<NodeState>>, touched: &mut Touched) {
    let nodes = Arc::make_mut(&mut world.nodes);
    for Change { key, object, .. } in changes {
        // Most changes of a Node are heartbeats.
        touched.is_all |= set(nodes, key.name.into(), object.clone()) != object;
    }
}

fn see_reports(
    world: &mut World,
    changes: Vec<Change<NodeDevices>>,
    index: &mut Index,
    touched: &mut Touched,
) {
    let objects = Arc::make_mut(&mut world.node_devices);
    for Change { key, object, .. } in changes {
        let node: NodeName = key.name.into();
        let before = set(objects, node.clone(), object.clone());
        index.reports(&node, [before.as_deref(), object.as_deref()], touched);
    }
    (touched.parts).retain(|part| part == NODES || index.has_objects(part));
}

fn set<T>(
    objects: &mut BTreeMap<NodeName, Arc<T>>,
    node: NodeName,
    object: Option<Arc<T>>,
) -> Option<Arc<T>> {
    match object {
        Some(object) => objects.insert(node, object),
        None => objects.remove(&node),
    }
}

fn only<'k, K: Clone + Ord + 'k, T>(
    objects: &BTreeMap<K, Arc<T>>,
    keys: impl Iterator<Item = &'k K>,
) -> BTreeMap<K, Arc<T>> {
    let known = keys.filter_map(|key| Some((key.clone(), objects.get(key)?.clone())));
    known.collect()
}

/// Returns the Configurations that are there and not known, with the reasons.
fn unreadable(
    configurations: &Objects<Configuration, ConfigurationName>,
) -> BTreeMap<ConfigurationKey, String> {
    let left_out = configurations.left_out.iter().map(|key| {
        let why = "all Configurations together are too large for the controller, and those of this namespace are the largest part; delete some";
        (key.clone(), why.to_owned())
    });
    let unreadable = configurations.unreadable.clone().into_iter();
    unreadable.chain(left_out).collect_map()
}

#[cfg(test)]
mod tests;
