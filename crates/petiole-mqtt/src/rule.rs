//! Says which messages tell of devices. Pure.
use crate::{availability::said, facts::Facts, homeassistant, sparkplug, topic::Pattern};

/// Which messages tell of devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    /// Each topic of a pattern is a device.
    Topics(Topics),
    /// Home Assistant's discovery messages below a prefix.
    HomeAssistant {
        /// The first levels of their topics.
        prefix: String,
    },
    /// Edge nodes of Sparkplug B, and their devices.
    Sparkplug {
        /// The group, or all.
        group: Option<String>,
    },
}

/// Topics that are devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topics {
    /// The pattern of the topics.
    pub pattern: Pattern,
    /// The payload of a device that is there. Without it, every other payload than `offline` is.
    pub online: Option<String>,
    /// The payload of a device that is not there.
    pub offline: String,
}

impl Rule {
    pub(crate) fn filters(&self) -> Vec<String> {
        match self {
            Self::Topics(topics) => vec![topics.pattern.filter()],
            Self::HomeAssistant { prefix } => homeassistant::filters(prefix),
            Self::Sparkplug { group } => sparkplug::filters(group.as_deref()),
        }
    }
}

impl Topics {
    /// Returns the facts of a device that is there, an error for one that is not, and nothing for another topic or word.
    pub(crate) fn says(&self, topic: &str, payload: &[u8]) -> Option<Result<Facts, ()>> {
        let name = self.pattern.name(topic)?;
        let said = said(payload);
        let is_there = match &self.online {
            _ if payload.is_empty() || *said == *self.offline => false,
            Some(online) if *said != **online => return None,
            _ => true,
        };
        Some(if is_there {
            let mut facts = Facts::default();
            facts.add("NAME", Some(name));
            Ok(facts)
        } else {
            Err(())
        })
    }
}
