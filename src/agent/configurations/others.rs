//! What other device plugins on this node have under our prefixes, by what the kubelet says.
use super::resource;
use crate::{
    agent::{
        Node,
        kubelet_folder::KubeletSocket,
        pod_resources::{self, Ids},
    },
    backoff::Backoff,
    model::names::ObjectKey,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use tokio::time::sleep;
use tracing::{debug, warn};

/// After a change the kubelet is asked soon and then less and less often: a plugin's list comes a moment after its
/// registration, and another plugin may come or go at any time.
const FIRST_ASKED: Duration = Duration::from_millis(20);
const LAST_ASKED: Duration = Duration::from_secs(5);
/// How long a kubelet that is there may leave the question unanswered. After it nobody else has a name: a node may be
/// without the pod resources API.
const ANSWERS_WITHIN: Duration = Duration::from_secs(30);

pub(super) struct Others {
    /// A plugin that restarts, with its kubelet or alone, has its name for so long.
    keeps: Duration,
    /// The kubelet whose answer `ids` is; it says nothing about the next one.
    asked: Option<KubeletSocket>,
    /// The names of our Configurations, those of earlier ones too: their slots may be listed for a moment longer.
    ours: BTreeSet<String>,
    /// The resources of others with one of their ids, and the uptime when it was last listed.
    seen: BTreeMap<String, (String, Duration)>,
    /// The same without the uptimes.
    ids: BTreeMap<String, String>,
    pace: Backoff,
}

impl Others {
    pub(super) fn new(keeps: Duration) -> Self {
        Self {
            keeps,
            asked: None,
            ours: BTreeSet::new(),
            seen: BTreeMap::new(),
            ids: BTreeMap::new(),
            pace: Backoff::new(FIRST_ASKED, LAST_ASKED),
        }
    }

    /// Notes the names of our Configurations: ids that begin with one are our slots.
    pub(super) fn ours<'a>(&mut self, configurations: impl Iterator<Item = &'a ObjectKey>) {
        for key in configurations {
            if !self.ours.contains(&key.name) {
                self.ours.insert(key.name.clone());
            }
        }
    }

    /// An id of each resource that another plugin has; `None` where this kubelet was not asked, or has not answered.
    pub(super) fn of(&self, kubelet: Option<KubeletSocket>) -> Option<&BTreeMap<String, String>> {
        (kubelet.is_some() && self.asked == kubelet).then_some(&self.ids)
    }

    pub(super) fn ask_soon(&mut self) {
        self.pace.reset();
    }

    /// Asks until something is different. Cancel safe.
    pub(super) async fn changed(&mut self, node: &Node, kubelet: Option<KubeletSocket>) {
        loop {
            sleep(self.pace.next_wait()).await;
            let said = match pod_resources::healthy(node).await {
                Ok(said) => said,
                Err(e) => {
                    debug!("the kubelet's pod resources cannot be read: {e:#}");
                    let since = node.kubelet_folder.borrow().since;
                    let is_late = since.is_some_and(|since| since.elapsed() > ANSWERS_WITHIN);
                    if self.asked == kubelet || !is_late {
                        continue;
                    }
                    warn!("the kubelet does not say which resources it has, none is taken: {e:#}");
                    Ids::new()
                }
            };
            if self.hear(kubelet, &said, node.uptime()) {
                return;
            }
        }
    }

    /// Whether it says something new.
    fn hear(&mut self, kubelet: Option<KubeletSocket>, said: &Ids, now: Duration) -> bool {
        let is_another = self.asked != kubelet;
        if is_another {
            // The plugins of the kubelet before may be about to register with this one.
            self.seen.values_mut().for_each(|(_, last)| *last = now);
        }
        for (resource, id) in resource::of_others(said, &self.ours) {
            self.seen.insert(resource, (id, now));
        }
        let keeps = self.keeps;
        self.seen
            .retain(|_, (_, last)| now.saturating_sub(*last) < keeps);
        let ids = (self.seen.iter())
            .map(|(resource, (id, _))| (resource.clone(), id.clone()))
            .collect();
        let is_news = is_another || self.ids != ids;
        (self.asked, self.ids) = (kubelet, ids);
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_has_its_name_for_a_while_after_it_was_listed_last() {
        let listed = |id: &str| Ids::from([("pflex.io/block".to_owned(), [id.to_owned()].into())]);
        let mut others = Others::new(Duration::from_secs(30));
        others.ours([ObjectKey::new("default", "block")].iter());
        for (second, said, is_news, is_taken) in [
            (0, listed("block-0"), false, false), // a slot of ours
            (1, listed("pflex1"), true, true),
            (2, listed("pflex1"), false, true),
            (31, Ids::new(), false, true),
            (32, Ids::new(), true, false),
            (40, listed("pflex1"), true, true),
            (60, Ids::new(), false, true),
            (61, listed("pflex1"), false, true), // it has restarted
            (90, Ids::new(), false, true),
        ] {
            let now = Duration::from_secs(second);
            assert_eq!(others.hear(None, &said, now), is_news, "at {second} s");
            assert_eq!(!others.ids.is_empty(), is_taken, "at {second} s");
        }
    }
}
