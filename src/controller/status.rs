//! Writes the status of Configurations, and what Instances say of their brokers, which `kubectl get` and `kubectl describe`
//! show.
mod instances;
mod learned;
pub(crate) mod plan;
mod verdict;

use super::{
    brokers::report::Reports,
    news::answered,
    nodes::seen,
    outcome::{Note, Problems, Written, tried},
    queue::Waits,
    shared::Shared,
    world::{World, configuration},
};
use crate::{
    api::{
        configuration::{Configuration, Problem},
        instance::Instance,
        names,
        reason::Reason,
    },
    cluster::{events::about, patched_by, without_fields},
    model::typed_names::{ConfigurationKey, ConfigurationName},
};
use k8s_openapi::{
    api::core::v1::ObjectReference,
    jiff::{SignedDuration, Timestamp},
};
use kube::{Api, api::Patch};
use plan::{Action, Object, StatusInputs, plan};
use std::collections::BTreeMap;
use tracing::warn;

/// Remembers of statuses what the next look needs.
#[derive(Default)]
pub(crate) struct Statuses {
    /// The Configurations that cannot be read and what is wrong, as it was reported.
    unreadable: BTreeMap<ConfigurationKey, String>,
    learns_until: Option<Timestamp>,
}

/// The time that a replica which begins to lead has to try everything.
const LEARNS_FOR: SignedDuration = SignedDuration::from_secs(15);

impl Statuses {
    /// Begins anew: this replica leads from now on.
    pub(crate) fn lead(&mut self, now: Timestamp) {
        self.learns_until = Some(now + LEARNS_FOR);
    }

    /// Returns the writes of a part, of these brokers and with these problems.
    pub(crate) fn plan(
        &mut self,
        world: &World,
        brokers: &Reports,
        problems: &Problems,
        now: Timestamp,
    ) -> (Vec<Action>, Waits) {
        self.learns_until = self.learns_until.filter(|until| now < *until);
        let seen = StatusInputs {
            world,
            brokers,
            problems,
            learns_until: self.learns_until,
        };
        let planned = plan(seen, now);
        (planned.actions, planned.waits)
    }

    /// A status cannot be trusted to an object that is not what its kind should be: the log and an Event name it, once.
    pub(crate) fn report_unreadable(&mut self, world: &World, notes: &mut Vec<Note>) {
        for (key, error) in &world.unreadable {
            if self.unreadable.get(key) == Some(error) {
                continue;
            }
            warn!(configuration = %key, "cannot be read and is left as it is: {error}");
            let object = ObjectReference {
                api_version: Some(names::API_VERSION.to_owned()),
                kind: Some("Configuration".to_owned()),
                name: Some(key.name.to_string()),
                namespace: Some(key.namespace.clone()),
                ..ObjectReference::default()
            };
            let text = format!("this Configuration cannot be read: {error}; correct it");
            notes.push(Note::warning(object, Reason::Unreadable.as_str(), text));
        }
        self.unreadable.retain(|key, _| !world.includes(&key.name));
        self.unreadable.extend(world.unreadable.clone());
    }
}

/// Returns the notes of the problems that a status has said now.
pub(crate) fn notes<'a>(world: &World, action: &'a Action) -> impl Iterator<Item = Note> + 'a {
    let configuration = match &action.object {
        Object::Configuration(key) => world.configurations.get(key),
        Object::Instance(_) => None,
    };
    let about = configuration.map(|configuration| about(&**configuration));
    let troubles = action.troubles.iter();
    troubles.filter_map(move |Problem { reason, message }| {
        let about = about.clone()?;
        warn!(configuration = about.name, reason, "{message}");
        Some(Note::warning(about, reason, message))
    })
}

/// Writes a status.
pub(super) async fn act(shared: &Shared, action: &Action) -> Written {
    let params = patched_by(names::CONTROLLER_MANAGER);
    let patch = Patch::Json::<()>(action.patch.clone());
    let client = shared.client.clone();
    let (key, result) = match &action.object {
        Object::Configuration(key) => {
            let api: Api<Configuration> = Api::namespaced(client, &key.namespace);
            let written = api.patch_status(&key.name, &params, &patch).await;
            let variables = &shared.settings.variables;
            let reduce = |object| configuration(without_fields(object), variables);
            let written =
                written.map(|of| Written::with::<_, ConfigurationName>(answered(of, reduce)));
            (key.untyped(), written)
        }
        Object::Instance(key) => {
            let api: Api<Instance> = Api::namespaced(client, &key.namespace);
            let written = api.patch_status(&key.name, &params, &patch).await;
            let written = written.map(|instance| Written::with(seen(instance)));
            (key.untyped(), written)
        }
    };
    result.unwrap_or_else(|e| Written::new(tried(&key, "write the status", Err(e))))
}
