//! Lists of the devices of a Configuration, for one program that uses all of them: over HTTP, and in a ConfigMap where the
//! Configuration asks for one.
//!
//! The controller creates, patches and deletes ConfigMaps where the chart allows it. It may not get them: a patch tests whose
//! the ConfigMap is.
mod access;
pub(crate) mod format;
pub(crate) mod plan;
pub(crate) mod serve;

use super::{
    outcome::{Outcome, Problems, Written, tried},
    pod_state::one_line,
    queue::Waits,
    shared::Shared,
    world::World,
};
use crate::{
    api::{configuration::Problem, names, reason::Reason},
    cluster::{created_by, deletion_of, is_not_found, is_unprocessable, patched_by},
    model::{
        names::{ObjectKey, digest_32},
        patch::{add, test},
    },
    token_bucket::TokenBucket,
};
use format::Text;
use json_patch::PatchOperation;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, api::Patch};
use petiole_base::collect::CollectMap as _;
use plan::{Action, Kept, KeptList, LOOKED_EVERY, Owner, plan};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;
use tracing::warn;

/// The key of the list in a ConfigMap.
const FILE: &str = "devices.json";

/// The most bytes of all lists that are written in a burst. etcd keeps what was written in five minutes, until it compacts.
/// Beyond it: 1 MiB a second, and the other writes wait.
const WRITTEN_MAX: usize = 16 * 1024 * 1024;
const WRITTEN_PER_SECOND: u32 = 1024 * 1024;
/// The time for which writes must be refused until the Configuration says so: the ConfigMap of an earlier Configuration of its
/// name may be about to go.
const REFUSED_FOR: Duration = Duration::from_secs(10);

/// Remembers of ConfigMaps what the next look needs.
pub(crate) struct Lists {
    kept: Kept,
    /// The bytes that may be written. Its times are those since `began`.
    bytes: TokenBucket,
    began: Instant,
    /// The bytes that were written beyond those: several turns begin before the answers of the first are known.
    owed: usize,
}

impl Lists {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            kept: Kept::new(),
            bytes: TokenBucket::new(WRITTEN_MAX, WRITTEN_PER_SECOND, Duration::ZERO),
            began: now,
            owed: 0,
        }
    }

    /// Returns the bytes that may be written now, once what is owed is paid.
    fn free(&mut self, now: Instant) -> usize {
        let now = now - self.began;
        let paid = self.owed.min(self.bytes.available(now));
        self.bytes.take(paid, now);
        self.owed -= paid;
        match self.owed {
            0 => self.bytes.available(now),
            _ => 0,
        }
    }

    /// Returns the actions of a part.
    pub(crate) fn plan(&mut self, world: &World, now: Instant) -> (Vec<Action>, Waits) {
        let there = &world.configurations;
        (self.kept).retain(|key, _| there.contains_key(key) || !world.includes(&key.name));
        let (mut actions, mut waits) = plan(world, &mut self.kept, now);
        let mut left = self.free(now);
        actions.retain(|action| match action {
            Action::Write(_, list) if list.text.len() > left => {
                waits.add(LOOKED_EVERY);
                false
            }
            Action::Write(_, list) => {
                left -= list.text.len();
                true
            }
            Action::Delete(_) => true,
        });
        (actions, waits)
    }

    /// Takes in the result of an action.
    pub(crate) fn settle(&mut self, action: &Action, written: &Written, now: Instant) {
        let is_done = written.outcome == Outcome::Done;
        if let Action::Write(_, list) = action {
            self.owed += list.text.len();
        }
        match action {
            Action::Write(owner, list) if is_done || written.problem.is_some() => {
                let digest = is_done.then(|| digest_32(&list.text));
                let before = self.kept.get(&owner.key);
                let before = before.filter(|kept| kept.uid == owner.uid && kept.digest.is_empty());
                let at = before.filter(|_| !is_done).map_or(now, |kept| kept.at);
                let is_shown = is_done || now - at >= REFUSED_FOR;
                let kept = KeptList {
                    uid: owner.uid.clone(),
                    digest: digest.unwrap_or_default(),
                    at,
                    looked: now,
                    problem: written.problem.clone().filter(|_| is_shown),
                };
                self.kept.insert(owner.key.clone(), kept);
            }
            Action::Delete(owner) if is_done || written.outcome == Outcome::Gone => {
                self.kept.remove(&owner.key);
            }
            Action::Write(..) | Action::Delete(_) => {}
        }
    }

    /// Returns the problem of each Configuration of a part that asks for a list.
    pub(crate) fn problems(&self, world: &World) -> Problems {
        let there = &world.configurations;
        let asks = |key| there.get(key).is_some_and(|c| c.spec.device_list);
        let kept = self.kept.iter().filter(|(key, _)| asks(*key));
        kept.filter_map(|(key, kept)| Some((key.clone(), kept.problem.clone()?)))
            .collect_map()
    }
}

/// Returns the ConfigMap of an action, and what is done to it.
pub(crate) fn step(action: &Action) -> (ObjectKey, &'static str) {
    let what = match action {
        Action::Write(..) => "write",
        Action::Delete(_) => "delete",
    };
    (action.owner().config_map(), what)
}

/// Carries out an action.
pub(super) async fn act(shared: &Shared, action: &Action) -> Written {
    let key = action.owner().config_map();
    let api: Api<ConfigMap> = Api::namespaced(shared.client.clone(), &key.namespace);
    match action {
        Action::Write(owner, list) => match write(&api, owner, list).await {
            Ok(_) if list.left_out == 0 => Written::new(Outcome::Done),
            Ok(_) => Written::new(Outcome::Done).with_problem(too_large(&key, list)),
            Err(e) => refused(&key, e),
        },
        Action::Delete(owner) => match delete(&api, owner).await {
            // It is another one's.
            Err(e) if is_unprocessable(&e) => Written::new(Outcome::Gone),
            Err(kube::Error::Api(status)) if status.code == 403 => {
                warn!(object = %key, "the ConfigMap stays, delete it yourself: {}", status.message);
                Written::new(Outcome::Gone)
            }
            deleted => Written::new(tried(&key, "delete the ConfigMap", deleted)),
        },
    }
}

async fn write(api: &Api<ConfigMap>, owner: &Owner, list: &Text) -> kube::Result<ConfigMap> {
    let data = json!({ (FILE): list.text });
    match patch(api, owner, vec![add(&["data"], data.clone())]).await {
        Err(e) if is_not_found(&e) => {
            let params = created_by(names::CONTROLLER_MANAGER);
            let config_map = serde_json::from_value(manifest(owner, data));
            let config_map = config_map.map_err(kube::Error::SerdeError)?;
            api.create(&params, &config_map).await
        }
        patched => patched,
    }
}

async fn delete(api: &Api<ConfigMap>, owner: &Owner) -> kube::Result<()> {
    let ours = patch(api, owner, vec![]).await?;
    let this = deletion_of(ours.metadata.uid, None);
    let key = owner.config_map();
    api.delete(&key.name, &this).await.map(|_| ())
}

/// Changes the ConfigMap if this Configuration is its first owner, as the ConfigMap that was created for it has it.
async fn patch(
    api: &Api<ConfigMap>,
    owner: &Owner,
    changes: Vec<PatchOperation>,
) -> kube::Result<ConfigMap> {
    let owned = test(
        &["metadata", "ownerReferences", "0", "uid"],
        owner.uid.as_str().into(),
    );
    let operations = std::iter::once(owned).chain(changes).collect();
    let params = patched_by(names::CONTROLLER_MANAGER);
    let patch = Patch::Json::<()>(json_patch::Patch(operations));
    api.patch(&owner.config_map().name, &params, &patch).await
}

fn manifest(owner: &Owner, data: Value) -> Value {
    let key = owner.config_map();
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "labels": { (names::CONTROLLER_LABEL): names::GROUP },
            "ownerReferences": [{
                "apiVersion": names::API_VERSION,
                "kind": "Configuration",
                "name": owner.key.name.as_str(),
                "uid": owner.uid,
                "controller": true,
            }],
        },
        "data": data,
    })
}

fn too_large(key: &ObjectKey, list: &Text) -> Problem {
    let note = format!(
        "ConfigMap {} lacks {} devices, the largest ones: all of them are too large for a ConfigMap; let the handler find \
         fewer, or read the list over HTTP",
        key.name, list.left_out
    );
    Problem::new(Reason::DeviceListTooLarge, note)
}

fn refused(key: &ObjectKey, e: kube::Error) -> Written {
    let why = if is_unprocessable(&e) {
        "exists and is not of this Configuration, or is immutable: it is left as it is; delete or rename it, or set \
         spec.deviceList to false"
            .to_owned()
    } else if let kube::Error::Api(status) = &e
        && matches!(status.code, 400 | 403 | 413)
    {
        let message = &status.message;
        format!(
            "is refused: {message}; have that allowed (rights come with the chart's deviceLists.configMaps), or set \
             spec.deviceList to false"
        )
    } else {
        return Written::new(tried(key, "write the ConfigMap", Err(e)));
    };
    let note = one_line(&format!("ConfigMap {} {why}", key.name));
    Written::failed(&note).with_problem(Problem::new(Reason::DeviceListRefused, note))
}

#[cfg(test)]
mod tests;
