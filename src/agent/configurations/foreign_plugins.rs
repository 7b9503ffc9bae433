//! The resources that other device plugins on this node have under our prefixes, as the kubelet lists them.
use super::resource;
use crate::{
    agent::{
        pod_resources,
        settings::{Clock, Settings},
        values::{IdsByResource, KubeletFolder, KubeletSocket},
    },
    backoff::Backoff,
    model::{resource_name::ResourceName, typed_names::ConfigurationName},
    store::Configurations,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::{sync::watch, time::sleep};
use tracing::{debug, warn};

/// The waits between questions to the kubelet. After a change it is asked soon, because a plugin sends its list a moment
/// after its registration. Then it is asked less and less often, because other plugins come and go at any time.
const FIRST_WAIT: Duration = Duration::from_millis(20);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// The most names of Configurations that are remembered, also of deleted ones. Beyond it: those that are there.
const OWN_NAMES_MAX: usize = 1_000;
/// The time that a kubelet has to answer the question. After that no name counts as taken: a node may have no pod
/// resources API.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) struct ForeignPlugins {
    settings: Arc<Settings>,
    clock: Clock,
    kubelet_folder: watch::Receiver<KubeletFolder>,
    /// The kubelet that answered `ids`. The answer says nothing about the next kubelet.
    asked: Option<KubeletSocket>,
    /// The names of our Configurations, also of deleted ones: their slots may be listed for a moment longer.
    own_names: BTreeSet<ConfigurationName>,
    /// The names among them of Configurations without Instances, whose slots are named after a device.
    node_only: BTreeSet<ConfigurationName>,
    /// The resources of foreign plugins with one of their ids, and the uptime when they were last listed.
    listed: BTreeMap<ResourceName, (String, Duration)>,
    /// The same without the uptimes.
    ids: BTreeMap<ResourceName, String>,
    waits: Backoff,
}

impl ForeignPlugins {
    pub(super) fn new(
        settings: Arc<Settings>,
        clock: Clock,
        kubelet_folder: watch::Receiver<KubeletFolder>,
    ) -> Self {
        Self {
            settings,
            clock,
            kubelet_folder,
            asked: None,
            own_names: BTreeSet::new(),
            node_only: BTreeSet::new(),
            listed: BTreeMap::new(),
            ids: BTreeMap::new(),
            waits: Backoff::new(FIRST_WAIT, LONGEST_WAIT),
        }
    }

    /// Records the names of our Configurations. Ids that begin with one of them are our slots.
    pub(super) fn add_own_names(&mut self, configurations: &Configurations) {
        if self.own_names.len() > OWN_NAMES_MAX {
            self.own_names.clear();
            self.node_only.clear();
        }
        for (key, configuration) in &configurations.objects {
            self.own_names.insert(key.name.clone());
            if !configuration.spec.instances {
                self.node_only.insert(key.name.clone());
            }
        }
    }

    /// Returns the resources of foreign plugins, each with one of its ids; `None` if this kubelet has not answered yet.
    pub(super) fn listed_by(
        &self,
        kubelet: Option<KubeletSocket>,
    ) -> Option<&BTreeMap<ResourceName, String>> {
        (kubelet.is_some() && self.asked == kubelet).then_some(&self.ids)
    }

    pub(super) fn ask_soon(&mut self) {
        self.waits.reset();
    }

    /// Asks the kubelet until its answer changes. Cancel safe.
    pub(super) async fn changed(&mut self, kubelet: Option<KubeletSocket>) {
        loop {
            sleep(self.waits.next_wait()).await;
            let answer = match pod_resources::healthy(&self.settings).await {
                Ok(answer) => answer,
                Err(e) => {
                    debug!("the kubelet's pod resources cannot be read: {e:#}");
                    let since = self.kubelet_folder.borrow().since;
                    let is_late = since.is_some_and(|since| since.elapsed() > ANSWER_TIMEOUT);
                    if self.asked == kubelet || !is_late {
                        continue;
                    }
                    warn!(
                        "the kubelet does not list its resources, so no resource name counts as taken: {e:#}"
                    );
                    IdsByResource::new()
                }
            };
            if self.update(kubelet, &answer, self.clock.uptime()) {
                return;
            }
        }
    }

    /// Takes over an answer of the kubelet. Returns whether it changes anything.
    fn update(
        &mut self,
        kubelet: Option<KubeletSocket>,
        answer: &IdsByResource,
        now: Duration,
    ) -> bool {
        let is_another = self.asked != kubelet;
        if is_another {
            // The plugins of the previous kubelet may be about to register with this one.
            self.listed.values_mut().for_each(|(_, last)| *last = now);
        }
        for (resource, id) in resource::foreign(answer, &self.own_names, &self.node_only) {
            self.listed.insert(resource, (id, now));
        }
        let hold = self.settings.resource_name_hold;
        self.listed
            .retain(|_, (_, last)| now.saturating_sub(*last) < hold);
        let ids = (self.listed.iter())
            .map(|(resource, (id, _))| (resource.clone(), id.clone()))
            .collect();
        let is_changed = is_another || self.ids != ids;
        (self.asked, self.ids) = (kubelet, ids);
        is_changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{api::configuration::Configuration, model::typed_names::ConfigurationKey};

    #[test]
    fn names_of_configurations_that_come_and_go_are_bounded() {
        let mut foreign = ForeignPlugins::new(
            Arc::new(Settings::for_tests("akri.sh")),
            Clock::start(),
            watch::channel(KubeletFolder::default()).1,
        );
        let spec = serde_json::json!({"discoveryHandler": {"name": "x"}, "instances": false});
        for n in 0..3 * OWN_NAMES_MAX {
            let name = format!("c{n}");
            let spec = serde_json::from_value(spec.clone()).unwrap();
            let configuration = Arc::new(Configuration::new(&name, spec));
            let key = ConfigurationKey::new("lab", name);
            foreign.add_own_names(&Configurations {
                objects: [(key.clone(), configuration)].into(),
                ..Configurations::default()
            });
            assert!(foreign.own_names.contains(&key.name) && foreign.node_only.contains(&key.name));
            assert!(foreign.own_names.len() <= OWN_NAMES_MAX + 1);
        }
    }

    #[test]
    fn a_plugin_has_its_name_for_a_while_after_it_was_listed_last() {
        let block: ResourceName = "pflex.io/block".parse().unwrap();
        let listed = |id: &str| IdsByResource::from([(block.clone(), [id.to_owned()].into())]);
        let mut foreign = ForeignPlugins::new(
            Arc::new(Settings::for_tests("pflex.io")),
            Clock::start(),
            watch::channel(KubeletFolder::default()).1,
        );
        foreign.own_names.insert("block".into());
        for (second, said, is_news, is_taken) in [
            (0, listed("block-0"), false, false), // a slot of ours
            (1, listed("pflex1"), true, true),
            (2, listed("pflex1"), false, true),
            (31, IdsByResource::new(), false, true),
            (32, IdsByResource::new(), true, false),
            (40, listed("pflex1"), true, true),
            (60, IdsByResource::new(), false, true),
            (61, listed("pflex1"), false, true), // it has restarted
            (90, IdsByResource::new(), false, true),
        ] {
            let now = Duration::from_secs(second);
            assert_eq!(foreign.update(None, &said, now), is_news, "at {second} s");
            assert_eq!(!foreign.ids.is_empty(), is_taken, "at {second} s");
        }
    }
}
