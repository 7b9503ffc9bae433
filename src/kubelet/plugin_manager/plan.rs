//! Which plugins to register and to deregister. Pure.
use super::Wanted;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Deregister(PathBuf),
    Register(Wanted),
}

/// Nothing is done at a socket while something is under way there. A plugin that asks again is registered again
/// without being deregistered: its devices must not be unhealthy for that.
pub(super) fn plan(
    desired: &BTreeMap<PathBuf, Wanted>,
    actual: &BTreeMap<PathBuf, Wanted>,
    is_busy: impl Fn(&Path) -> bool,
) -> Vec<Operation> {
    let gone = actual
        .keys()
        .filter(|socket| !desired.contains_key(*socket) && !is_busy(socket));
    let due = (desired.iter())
        .filter(|(socket, wanted)| actual.get(*socket) != Some(wanted) && !is_busy(socket));
    gone.map(|socket| Operation::Deregister(socket.clone()))
        .chain(due.map(|(_, wanted)| Operation::Register(wanted.clone())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubelet::plugin_manager::PluginInfo;
    use proptest::{collection::btree_map, prelude::*};

    fn world() -> impl Strategy<Value = BTreeMap<PathBuf, Wanted>> {
        btree_map("[a-c]", 0..3_u64, 0..4).prop_map(|sockets| {
            let wanted = |socket: &str, asked| Wanted {
                plugin: PluginInfo {
                    name: format!("akri.sh/{socket}"),
                    endpoint: PathBuf::from(socket),
                    versions: vec![],
                },
                asked,
            };
            sockets
                .iter()
                .map(|(socket, asked)| (PathBuf::from(socket), wanted(socket, *asked)))
                .collect()
        })
    }

    proptest! {
        #[test]
        fn executing_the_plan_leaves_nothing_to_do(desired in world(), actual in world()) {
            let mut after = actual.clone();
            for operation in plan(&desired, &actual, |_| false) {
                match operation {
                    Operation::Deregister(socket) => drop(after.remove(&socket)),
                    Operation::Register(wanted) => drop(after.insert(wanted.plugin.endpoint.clone(), wanted)),
                }
            }
            prop_assert_eq!(plan(&desired, &after, |_| false), vec![]);
        }

        #[test]
        fn a_busy_socket_is_left_alone(desired in world(), actual in world()) {
            prop_assert_eq!(plan(&desired, &actual, |_| true), vec![]);
        }
    }
}
