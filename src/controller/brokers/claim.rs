//! Makes the ResourceClaimTemplate by which a broker has its device, before the broker.
use super::action::Action;
use crate::{
    cluster::post,
    controller::{
        outcome::Outcome,
        shared::{NAME, Shared},
    },
};
use k8s_openapi::{
    api::resource::v1::ResourceClaimTemplate, apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{Api, ResourceExt as _, core::PartialObjectMeta};
use serde_json::Value;

/// A template as far as it is read: its metadata says whose it is.
type Template = PartialObjectMeta<ResourceClaimTemplate>;

/// Makes the template that a new broker needs. Another's object of its name stays as it is: the Instance would own it otherwise, and
/// it would be deleted with the Instance.
pub(super) async fn offer(shared: &Shared, action: &Action) -> Result<(), Outcome> {
    let (Action::CreatePod {
        broker,
        claim: Some(claim),
        ..
    }
    | Action::CreateJob {
        broker,
        claim: Some(claim),
        ..
    }) = action
    else {
        return Ok(());
    };
    let client = shared.client.clone();
    let api: Api<ResourceClaimTemplate> = Api::namespaced(client, &broker.key.namespace);
    let uri = format!("{}?fieldManager={NAME}", api.resource_url());
    let created: kube::Result<Template> = post(&shared.client, uri, claim).await;
    match created.map_err(|e| Outcome::of(&e)) {
        Err(Outcome::Conflict) => {}
        created => return created.map(drop),
    }
    let name = claim["metadata"]["name"].as_str().unwrap_or_default();
    match api.get_metadata(name).await {
        Ok(there) => may_be_used(&there, &claim["metadata"]["ownerReferences"][0]),
        Err(e) => Err(Outcome::of(&e)),
    }
}

/// Returns whether a template that is there already is that of the brokers of this owner.
fn may_be_used(there: &Template, owner: &Value) -> Result<(), Outcome> {
    let owners = there.owner_references();
    if owners.iter().any(|known| owner["uid"] == *known.uid) {
        return Ok(());
    }
    // The Instance before this one has left it, and it is about to be deleted.
    let is_left =
        |known: &OwnerReference| owner["kind"] == *known.kind && owner["name"] == *known.name;
    if owners.iter().any(is_left) {
        return Err(Outcome::Conflict);
    }
    Err(Outcome::Refused {
        code: 409,
        message: format!(
            "the ResourceClaimTemplate {} is there already and is not of this Instance: delete or rename it",
            there.name_any()
        ),
    })
}
