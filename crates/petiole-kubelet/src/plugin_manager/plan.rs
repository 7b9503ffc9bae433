//! Decides which registrations to start and to end, from the desired and the registered plugins. Pure.
use petiole_base::backoff::doubled;
use std::{path::PathBuf, time::Duration};

/// The key of a registration: a socket in `plugins_registry`, or a socket and a resource from a call of the
/// Registration service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) socket: PathBuf,
    /// The resource of a call; one socket may serve several resources.
    pub(crate) resource: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// A call of the Registration service. A socket that registers again is refused while its plugin is connected.
    Service,
    /// A socket in `plugins_registry`. A socket that was created again is another plugin.
    Folder,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Desired {
    pub(crate) generation: u64,
    pub(crate) source: Source,
}

/// The reasons to delay an operation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Hold {
    /// Another operation runs for this registration.
    pub(crate) is_busy: bool,
    /// The uptime before which no attempt starts, if the last one failed.
    pub(crate) not_before: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Unregister,
    Register { generation: u64 },
}

/// The waits of the Go kubelet after a failed registration.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(122);

/// Returns the wait after a failed registration; `last` is the wait after the failure before it.
pub(crate) fn next_wait(last: Option<Duration>) -> Duration {
    doubled(last, FIRST_WAIT, LONGEST_WAIT)
}

/// Returns the operations in the order of execution.
pub(crate) fn plan(
    desired: Option<Desired>,
    registered: Option<u64>,
    hold: Hold,
    now: Duration,
) -> Vec<Operation> {
    if hold.is_busy {
        return vec![];
    }
    let mut operations = Vec::new();
    let is_other = |d: Desired| registered != Some(d.generation);
    let unregister = match desired {
        None => true,
        Some(desired) => desired.source == Source::Folder && is_other(desired),
    };
    if unregister && registered.is_some() {
        operations.push(Operation::Unregister);
    }
    if let Some(desired) = desired.filter(|desired| is_other(*desired))
        && hold.not_before.is_none_or(|at| now >= at)
    {
        operations.push(Operation::Register {
            generation: desired.generation,
        });
    }
    operations
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Duration = Duration::from_secs(10);

    fn desired(generation: u64, source: Source) -> Option<Desired> {
        Some(Desired { generation, source })
    }

    #[test]
    fn operations_by_what_is_desired_and_what_is_registered() {
        use Operation::{Register, Unregister};
        let free = Hold::default();
        let cases = [
            (None, None, vec![]),
            (None, Some(1), vec![Unregister]),
            (desired(1, Source::Folder), Some(1), vec![]),
            (desired(1, Source::Service), Some(1), vec![]),
            (
                desired(1, Source::Folder),
                None,
                vec![Register { generation: 1 }],
            ),
            (
                desired(2, Source::Folder),
                Some(1),
                vec![Unregister, Register { generation: 2 }],
            ),
            (
                desired(2, Source::Service),
                Some(1),
                vec![Register { generation: 2 }],
            ),
        ];
        for (desired, registered, want) in cases {
            assert_eq!(plan(desired, registered, free, NOW), want);
        }
    }

    #[test]
    fn a_failed_registration_waits_and_a_busy_one_is_left_alone() {
        let wants = desired(1, Source::Folder);
        let later = Hold {
            not_before: Some(NOW + Duration::from_millis(1)),
            ..Hold::default()
        };
        assert_eq!(plan(wants, None, later, NOW), vec![]);
        let busy = Hold {
            is_busy: true,
            ..Hold::default()
        };
        assert_eq!(plan(None, Some(1), busy, NOW), vec![]);
    }

    #[test]
    fn waits_double_from_half_a_second_to_two_minutes_and_two_seconds() {
        let mut waits = vec![];
        for _ in 0..10 {
            waits.push(next_wait(waits.last().copied()));
        }
        let seconds = waits.iter().map(Duration::as_secs_f64);
        let want = [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 122.0, 122.0];
        assert_eq!(seconds.collect::<Vec<_>>(), want);
    }

    proptest! {
        #[test]
        fn executing_the_plan_leaves_nothing_to_do(
            wants in prop::option::of((0..3u64, any::<bool>())),
            mut registered in prop::option::of(0..3u64),
        ) {
            let desired = wants.map(|(generation, folder)| Desired {
                generation,
                source: if folder { Source::Folder } else { Source::Service },
            });
            for operation in plan(desired, registered, Hold::default(), NOW) {
                registered = match operation {
                    Operation::Unregister => None,
                    Operation::Register { generation } => Some(generation),
                };
            }
            prop_assert_eq!(plan(desired, registered, Hold::default(), NOW), vec![]);
        }
    }
}
