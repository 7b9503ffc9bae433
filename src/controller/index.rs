//! Finds the objects of each part by what the objects say of themselves, and the parts that a change touches. Pure.
use super::{
    shown::Turned,
    world::{Meta, World},
};
use crate::{
    api::{
        configuration::Configuration,
        instance::Instance,
        names,
        node_devices::{ConfigurationView, NodeDevices},
    },
    merge::kept_bytes,
    model::{
        division::Division,
        instance_name::InstanceKey,
        names::{ObjectKey, shortened},
        typed_names::{ConfigurationKey, NodeName},
    },
};
use kube::core::ObjectMeta;
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// The most bytes of a label's value.
const LABEL_LIMIT: usize = 63;
/// Returns the name of a Configuration's part: the value of the label of its objects.
pub(crate) fn part_of(configuration: &str) -> Cow<'_, str> {
    if configuration.len() <= LABEL_LIMIT {
        Cow::Borrowed(configuration)
    } else {
        Cow::Owned(shortened(configuration, LABEL_LIMIT))
    }
}

/// The parts that are to be planned again.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Touched {
    pub(crate) is_all: bool,
    pub(crate) parts: BTreeSet<String>,
}

/// A sign by which an object is found for a part.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tag {
    /// It has the name of a Configuration, or the label of one.
    Part(String),
    /// It has an owner with this uid.
    Owner(String),
    /// It has the label of an Instance.
    Instance(String),
}

/// The keys of the objects with each tag.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Tagged<K>(BTreeMap<Tag, BTreeSet<K>>);

impl<K> Default for Tagged<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord + Clone> Tagged<K> {
    fn add(&mut self, tag: Tag, key: &K) {
        self.0.entry(tag).or_default().insert(key.clone());
    }

    fn remove(&mut self, tag: &Tag, key: &K) {
        if let Some(keys) = self.0.get_mut(tag) {
            keys.remove(key);
            if keys.is_empty() {
                self.0.remove(tag);
            }
        }
    }

    /// Follows an object of a Configuration, which may own Pods, Jobs and Services. `uids` are the parts of owners.
    fn follow(
        &mut self,
        key: &K,
        turned: Turned<(&ObjectMeta, &str)>,
        uids: &mut BTreeMap<String, String>,
        touched: &mut Touched,
    ) {
        let [was, is] = turned.map(|object| {
            let (meta, of) = object?;
            Some((meta.uid.clone(), part_of(of).into_owned()))
        });
        if let Some((uid, part)) = was {
            uids.remove(&uid.unwrap_or_default());
            self.remove(&Tag::Part(part.clone()), key);
            touched.parts.insert(part);
        }
        if let Some((uid, part)) = is {
            uids.extend(uid.map(|uid| (uid, part.clone())));
            self.add(Tag::Part(part.clone()), key);
            touched.parts.insert(part);
        }
    }

    fn has(&self, tag: &Tag) -> bool {
        self.0.contains_key(tag)
    }

    pub(super) fn with(&self, tag: &Tag) -> impl Iterator<Item = &K> {
        self.0.get(tag).into_iter().flatten()
    }

    pub(super) fn parts(&self) -> impl Iterator<Item = &String> {
        self.0.keys().filter_map(|tag| match tag {
            Tag::Part(name) => Some(name),
            Tag::Owner(_) | Tag::Instance(_) => None,
        })
    }
}

/// The tags of all objects.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Index {
    pub(super) configurations: Tagged<ConfigurationKey>,
    pub(super) instances: Tagged<InstanceKey>,
    pub(super) pods: Tagged<ObjectKey>,
    pub(super) jobs: Tagged<ObjectKey>,
    pub(super) slices: Tagged<ObjectKey>,
    pub(super) views: Tagged<(NodeName, usize)>,
    /// Who has which part of the bytes that all Instances may have in memory.
    pub(super) instance_bytes: Division,
    /// The Configurations that name their Instances.
    naming: BTreeSet<ConfigurationKey>,
    /// The part of each Configuration and each Instance, by its uid.
    uids: BTreeMap<String, String>,
    /// The uid of the owner of each Job, by the uid of the Job.
    owners: BTreeMap<String, String>,
}

impl Tagged<ObjectKey> {
    pub(super) fn retag(&mut self, key: &ObjectKey, [was, is]: Turned<&Meta>) {
        for tag in was.into_iter().flat_map(tags) {
            self.remove(&tag, key);
        }
        for tag in is.into_iter().flat_map(tags) {
            self.add(tag, key);
        }
    }
}

/// Returns the tags of a Pod, a Job or an EndpointSlice. Users may change its labels.
fn tags(meta: &Meta) -> impl Iterator<Item = Tag> {
    let label = |name| meta.labels.get(name).cloned();
    let owner = meta.owner.clone();
    let part = label(names::CONFIGURATION_LABEL).map(Tag::Part);
    let instance = label(names::INSTANCE_LABEL).map(Tag::Instance);
    part.into_iter()
        .chain(owner.map(Tag::Owner))
        .chain(instance)
}

impl Touched {
    pub(super) fn part(&mut self, configuration: &str) {
        self.parts.insert(part_of(configuration).into_owned());
    }
}

impl Index {
    pub(super) fn configuration(
        &mut self,
        key: &ConfigurationKey,
        turned: Turned<&Configuration>,
        touched: &mut Touched,
    ) {
        let of = turned.map(|object| Some((&object?.metadata, key.name.as_str())));
        (self.configurations).follow(key, of, &mut self.uids, touched);
        match turned {
            [None, Some(_)] => self.instance_bytes.join(key),
            [Some(_), None] => self.instance_bytes.leave(key),
            [Some(_), Some(_)] | [None, None] => {}
        }
        let [was, is] = turned;
        if is.is_some_and(|is| is.spec.instance_name.is_some()) {
            self.naming.insert(key.clone())
        } else {
            self.naming.remove(key)
        };
        let resource = |of: Option<&Configuration>| of.map(|of| of.spec.resource_name.clone());
        if resource(was) != resource(is) {
            self.touch_naming(touched);
        }
    }

    pub(super) fn instance(
        &mut self,
        key: &InstanceKey,
        turned: Turned<&Instance>,
        touched: &mut Touched,
    ) {
        let of = turned.map(|object| {
            let object = object?;
            Some((&object.metadata, object.spec.configuration_name.as_str()))
        });
        self.instances.follow(key, of, &mut self.uids, touched);
        self.count(key, turned);
        // Its name is free or taken now, for a device of the Configuration that the name begins with.
        if let [None, Some(it)] | [Some(it), None] = turned {
            let of = key.name.configuration();
            of.into_iter().for_each(|of| touched.part(&of));
            if key.name.is_own(&it.spec.configuration_name) {
                self.touch_naming(touched);
                // A Configuration of this name does not have its resource on the nodes of the Instance.
                let part = part_of(&key.name).into_owned();
                if self.configurations.has(&Tag::Part(part.clone())) {
                    touched.parts.insert(part);
                }
            }
        }
    }

    /// Counts the bytes of an Instance.
    fn count(&mut self, key: &InstanceKey, turned: Turned<&Instance>) {
        let of = |it: &Instance| it.spec.configuration_key(&key.namespace);
        let [was, is] = turned.map(|it| it.map(|it| (of(it), kept_bytes(it))));
        if was != is {
            was.iter()
                .for_each(|(of, it)| self.instance_bytes.give_back(of, *it));
            is.iter()
                .for_each(|(of, it)| self.instance_bytes.take(of, *it));
        }
    }

    /// Another name is free or taken now, for a device of any Configuration that names its Instances.
    fn touch_naming(&self, touched: &mut Touched) {
        self.naming.iter().for_each(|of| touched.part(&of.name));
    }

    /// An agent that begins or ends, or makes its object anew, says something of its node.
    pub(super) fn reports(
        &mut self,
        node: &NodeName,
        [was, is]: Turned<&NodeDevices>,
        touched: &mut Touched,
    ) {
        let about = |object: Option<&NodeDevices>| {
            object.map(|object| (object.metadata.uid.clone(), object.spec.left_out.clone()))
        };
        touched.is_all |= about(was) != about(is);
        let [was, is] = [was, is].map(views);
        for part in was.keys().chain(is.keys()) {
            let said = |views: &Views<'_>| -> Vec<_> {
                let views = views.get(part).into_iter().flatten();
                views.map(|(_, view)| (*view).clone()).collect()
            };
            if said(&was) != said(&is) {
                touched.parts.insert(part.clone());
            }
        }
        for (part, views) in was {
            for (place, _) in views {
                let tag = Tag::Part(part.clone());
                self.views.remove(&tag, &(node.clone(), place));
            }
        }
        for (part, views) in is {
            for (place, _) in views {
                let tag = Tag::Part(part.clone());
                self.views.add(tag, &(node.clone(), place));
            }
        }
    }

    /// Returns whether a part has anything but reports.
    pub(super) fn has_objects(&self, part: &str) -> bool {
        let tag = Tag::Part(part.to_owned());
        let are_written = self.configurations.has(&tag) || self.instances.has(&tag);
        are_written || self.pods.has(&tag) || self.jobs.has(&tag)
    }

    pub(super) fn job(&mut self, [was, is]: Turned<&Meta>) {
        if let Some(was) = was {
            self.owners.remove(&was.uid);
        }
        if let Some(owner) = is.and_then(|is| Some((is.uid.clone(), is.owner.clone()?))) {
            self.owners.extend([owner]);
        }
    }

    /// Touches the parts of a Pod, a Job, a Service or an EndpointSlice: by its labels, which users may change, and by its owner.
    pub(super) fn touch(
        &self,
        key: &ObjectKey,
        metas: Turned<&Meta>,
        instances: &BTreeMap<InstanceKey, Arc<Instance>>,
        touched: &mut Touched,
    ) {
        for meta in metas.into_iter().flatten() {
            for tag in tags(meta) {
                match tag {
                    Tag::Part(part) => drop(touched.parts.insert(part)),
                    Tag::Owner(uid) => {
                        let owner = self.owners.get(&uid).unwrap_or(&uid);
                        touched.parts.extend(self.uids.get(owner).cloned());
                    }
                    Tag::Instance(name) => {
                        let key = InstanceKey::new(&key.namespace, name.as_str());
                        let instance = instances.get(&key);
                        instance
                            .into_iter()
                            .for_each(|i| touched.part(&i.spec.configuration_name));
                    }
                }
            }
        }
    }
}

type Views<'a> = BTreeMap<String, Vec<(usize, &'a ConfigurationView)>>;

/// Returns the reports of a node by part, each with its place.
fn views(object: Option<&NodeDevices>) -> Views<'_> {
    let mut views = Views::new();
    let all = object
        .into_iter()
        .flat_map(|object| &object.spec.configurations);
    for (place, view) in all.enumerate() {
        let part = part_of(&view.name).into_owned();
        views.entry(part).or_default().push((place, view));
    }
    views
}

impl World {
    /// Returns the whole world, where this is a part of it.
    pub(crate) fn whole(&self) -> &Self {
        self.scope.as_ref().map_or(self, |scope| &scope.whole)
    }

    /// Returns whether the Configurations of this name are in this part of the world.
    pub(crate) fn includes(&self, configuration: &str) -> bool {
        let scope = self.scope.as_ref();
        scope.is_none_or(|scope| scope.name == part_of(configuration))
    }

    /// Returns the reports of all nodes about Configurations.
    pub(crate) fn views(&self) -> impl Iterator<Item = (&NodeName, &ConfigurationView)> {
        let of_part = self.scope.iter().flat_map(|scope| &scope.views);
        let of_part = of_part.filter_map(|(node, place)| {
            let view = self.node_devices.get(node)?.spec.configurations.get(*place);
            Some((node, view?))
        });
        let unlimited = self.scope.is_none().then_some(&*self.node_devices);
        let all = unlimited.into_iter().flatten().flat_map(|(node, object)| {
            let views = object.spec.configurations.iter();
            views.map(move |view| (node, view))
        });
        of_part.chain(all)
    }
}
