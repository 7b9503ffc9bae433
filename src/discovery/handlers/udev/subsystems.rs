//! The subsystems of the kernel whose devices Configurations may offer. Pure.
use super::super::allow_list::{AllowList, Entry};
use std::{convert::Infallible, str::FromStr};

/// The subsystem of `/dev/vfio/vfio` and of the groups beside it.
const VFIO: &str = "vfio";

/// The subsystems that are allowed. The author of a Configuration chooses device nodes of the machine with them.
pub type Subsystems = AllowList<Subsystem>;

/// An entry of the allow list.
pub type AllowedSubsystem = Entry<Subsystem>;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subsystem(String);

impl FromStr for Subsystem {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.trim().to_owned()))
    }
}

impl Subsystems {
    pub(super) fn allow(&self, subsystem: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(entries) => entries.iter().any(|entry| entry.0 == subsystem),
        }
    }

    /// Returns an error with the reason if no device may be offered at all.
    pub(super) fn check_any(&self) -> Result<(), String> {
        match self {
            Self::Only(entries) if entries.is_empty() => Err(format!(
                "no device of udev is allowed on this node. {}",
                self.remedy()
            )),
            Self::All | Self::Only(_) => Ok(()),
        }
    }

    /// Returns an error if the device nodes of VFIO, which are of a subsystem of their own, may not be offered.
    pub(super) fn check_vfio(&self) -> Result<(), String> {
        if self.allow(VFIO) {
            Ok(())
        } else {
            Err(format!(
                "the discoveryProperty `vfioPassthrough` gives containers devices of the subsystem `{VFIO}`, which is not allowed on this node. {}",
                self.remedy()
            ))
        }
    }

    /// Returns the advice in messages about devices that are left out.
    pub(super) fn remedy(&self) -> &'static str {
        "The administrator of the agents allows subsystems with --udev-subsystems (the chart's udev.enabled and udev.subsystems)"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(texts: &[&str]) -> Subsystems {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn only_subsystems_of_the_list_are_allowed() {
        let some = list(&["tty", "video4linux"]);
        assert!(some.allow("tty") && !some.allow("block"));
        assert_eq!(some.check_any(), Ok(()));
        assert!(list(&["tty", "*"]).allow("block"));
        let none = list(&[]);
        assert!(!none.allow("tty"));
        assert!(none.check_any().unwrap_err().contains("--udev-subsystems"));
    }
}
