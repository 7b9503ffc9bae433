//! Decides which discoveries to start and stop. Pure.
use crate::model::{hidden::Hidden, start_stop::StartStop, typed_names::ConfigurationKey};
use std::collections::BTreeMap;

/// The inputs of a discovery. Another specification makes another discovery.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionSpec {
    pub handler: String,
    pub details: String,
    /// The `discoveryProperties` that have a value. Some are of Secrets.
    pub properties: Hidden<BTreeMap<String, String>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    Stop(ConfigurationKey),
    Start(ConfigurationKey, SessionSpec),
}

/// Returns the discoveries to stop and to start. A changed specification is a stop and a start. Stops come first.
pub(super) fn plan(
    desired: &BTreeMap<ConfigurationKey, SessionSpec>,
    running: &BTreeMap<ConfigurationKey, SessionSpec>,
) -> Vec<Action> {
    let StartStop { stop, start } = StartStop::new(desired, running);
    let stops = stop.into_iter().map(|key| Action::Stop(key.clone()));
    let starts = start.into_iter();
    let starts = starts.map(|(key, spec)| Action::Start(key.clone(), spec.clone()));
    stops.chain(starts).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::btree_map, prelude::*};

    fn world() -> impl Strategy<Value = BTreeMap<ConfigurationKey, SessionSpec>> {
        btree_map("[a-c]", "[x-z]", 0..4).prop_map(|entries| {
            let spec = |details| SessionSpec {
                handler: "h".to_owned(),
                details,
                ..SessionSpec::default()
            };
            (entries.into_iter())
                .map(|(name, details)| (ConfigurationKey::new("default", name), spec(details)))
                .collect()
        })
    }

    proptest! {
        #[test]
        fn executing_the_plan_leaves_nothing_to_do(desired in world(), running in world()) {
            let mut after = running.clone();
            for action in plan(&desired, &running) {
                match action {
                    Action::Stop(key) => prop_assert!(after.remove(&key).is_some()),
                    Action::Start(key, spec) => prop_assert!(after.insert(key, spec).is_none()),
                }
            }
            prop_assert_eq!(plan(&desired, &after), vec![]);
        }
    }
}
