//! Decides which Pods to stop and to start, and which devices a container takes over from another one of its Pod. Pure.
use super::manifest::{PodKey, StaticPod, is_sidecar};
use crate::device_manager::plan::Reuse;
use k8s_openapi::api::core::v1::Container;
use std::collections::BTreeMap;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Running {
    pub(crate) uid: String,
    /// The Pod is stopping, and has not ended yet.
    pub(crate) is_stopping: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    Stop(PodKey),
    Start(PodKey),
}

/// Returns the Pods to stop and to start. A Pod whose manifest has changed starts after the old Pod is gone.
pub(crate) fn plan(
    desired: &BTreeMap<PodKey, String>,
    running: &BTreeMap<PodKey, Running>,
) -> Vec<Action> {
    let superfluous = running
        .iter()
        .filter(|(key, running)| !running.is_stopping && desired.get(*key) != Some(&running.uid));
    let missing = desired.keys().filter(|key| !running.contains_key(*key));
    superfluous
        .map(|(key, _)| Action::Stop(key.clone()))
        .chain(missing.map(|key| Action::Start(key.clone())))
        .collect()
}

/// Returns the devices that a container may take over: those of earlier init containers, unless a sidecar or main
/// container has taken them over.
pub(crate) fn reuse(pod: &StaticPod, container: &Container) -> Reuse {
    let holder = |container: &Container| pod.holder(container);
    let init = || pod.spec.init_containers.iter().flatten();
    let earlier = init().take_while(|init| init.name != container.name);
    let sidecars = init().filter(|init| is_sidecar(init));
    Reuse {
        from: earlier
            .filter(|init| !is_sidecar(init))
            .map(holder)
            .collect(),
        kept_by: sidecars.chain(&pod.spec.containers).map(holder).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(name: &str) -> PodKey {
        PodKey {
            namespace: "default".to_owned(),
            name: name.to_owned(),
        }
    }

    fn world() -> impl Strategy<Value = BTreeMap<String, String>> {
        prop::collection::btree_map("[a-d]", "[12]", 0..4)
    }

    proptest! {
        #[test]
        fn executing_plans_until_the_old_are_gone_leaves_nothing_to_do(desired in world(), running in world()) {
            let desired: BTreeMap<_, _> = desired.iter().map(|(name, uid)| (key(name), uid.clone())).collect();
            let mut running: BTreeMap<_, _> = running
                .iter()
                .map(|(name, uid)| (key(name), Running { uid: uid.clone(), is_stopping: false }))
                .collect();
            for _ in 0..2 {
                for action in plan(&desired, &running) {
                    match action {
                        Action::Stop(key) => running.get_mut(&key).unwrap().is_stopping = true,
                        Action::Start(key) => {
                            let uid = desired[&key].clone();
                            let before = running.insert(key, Running { uid, is_stopping: false });
                            prop_assert_eq!(before, None);
                        }
                    }
                }
                prop_assert_eq!(plan(&desired, &running), vec![]);
                running.retain(|_, running| !running.is_stopping);
            }
            let left: BTreeMap<_, _> = running.into_iter().map(|(key, r)| (key, r.uid)).collect();
            prop_assert_eq!(left, desired);
        }
    }
}
