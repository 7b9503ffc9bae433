//! Whether to register or to deregister the plugin of a socket. Pure.
use super::Wanted;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Deregister,
    Register(Wanted),
}

/// Nothing is done at a socket while something is under way there. A plugin that asks again is registered again
/// without being deregistered: its devices must not be unhealthy for that.
pub(super) fn plan(
    desired: Option<&Wanted>,
    actual: Option<&Wanted>,
    is_busy: bool,
) -> Option<Operation> {
    match desired {
        _ if is_busy || desired == actual => None,
        Some(wanted) => Some(Operation::Register(wanted.clone())),
        None => Some(Operation::Deregister),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubelet::plugin_manager::PluginInfo;
    use proptest::{option, prelude::*};
    use std::path::PathBuf;

    fn wanted() -> impl Strategy<Value = Option<Wanted>> {
        option::of(0..3_u64).prop_map(|asked| {
            asked.map(|asked| Wanted {
                plugin: PluginInfo {
                    name: "akri.sh/a".to_owned(),
                    endpoint: PathBuf::from("a"),
                    versions: vec![],
                },
                asked,
            })
        })
    }

    proptest! {
        #[test]
        fn executing_the_plan_leaves_nothing_to_do(desired in wanted(), actual in wanted()) {
            let after = match plan(desired.as_ref(), actual.as_ref(), false) {
                None => actual,
                Some(Operation::Deregister) => None,
                Some(Operation::Register(wanted)) => Some(wanted),
            };
            prop_assert_eq!(&after, &desired);
            prop_assert_eq!(plan(desired.as_ref(), after.as_ref(), false), None);
        }

        #[test]
        fn a_busy_socket_is_left_alone(desired in wanted(), actual in wanted()) {
            prop_assert_eq!(plan(desired.as_ref(), actual.as_ref(), true), None);
        }
    }
}
