//! Remembers which broker specs of Configurations the API server accepts, and which ones are refused. Pure.
use crate::{controller::world::World, model::typed_names::ConfigurationKey};
use std::collections::BTreeMap;

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Specs {
    refused: BTreeMap<ConfigurationKey, Refused>,
    /// The digest of each Configuration's spec that the API server has accepted.
    accepted: BTreeMap<ConfigurationKey, String>,
}

#[derive(Debug, Clone, PartialEq)]
struct Refused {
    digest: String,
    message: String,
}

impl Specs {
    pub(super) fn observe(&mut self, world: &World) {
        let is_there = |key: &ConfigurationKey| world.configurations.contains_key(key);
        self.refused
            .retain(|configuration, _| is_there(configuration));
        self.accepted
            .retain(|configuration, _| is_there(configuration));
    }

    pub(super) fn accept(&mut self, configuration: &ConfigurationKey, digest: &str) {
        self.refused.remove(configuration);
        self.accepted
            .insert(configuration.clone(), digest.to_owned());
    }

    /// Records that no broker can be made of a spec.
    pub(crate) fn refuse(&mut self, configuration: &ConfigurationKey, digest: &str, message: &str) {
        let refused = Refused {
            digest: digest.to_owned(),
            message: message.to_owned(),
        };
        self.refused.insert(configuration.clone(), refused);
    }

    /// Returns whether the API server has accepted a broker of this spec.
    pub(crate) fn is_accepted(&self, configuration: &ConfigurationKey, digest: &str) -> bool {
        (self.accepted.get(configuration)).is_some_and(|accepted| accepted == digest)
    }

    /// Returns why the spec of this digest was refused, if it was and no broker was created since.
    pub(crate) fn refusal(&self, configuration: &ConfigurationKey, digest: &str) -> Option<&str> {
        let refused = self.refused.get(configuration)?;
        (refused.digest == digest).then_some(&refused.message)
    }
}
