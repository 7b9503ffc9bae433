//! Makes the ResourceClaimTemplate by which a broker has its device, before the broker.
use super::action::Action;
use crate::{
    cluster::dra_kind,
    controller::shared::{NAME, Shared},
};
use kube::{
    Api,
    api::{DynamicObject, Patch, PatchParams},
};

/// Makes the template that a new broker needs.
pub(super) async fn offer(shared: &Shared, action: &Action) -> kube::Result<()> {
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
    let kind = dra_kind("ResourceClaimTemplate", "resourceclaimtemplates");
    let client = shared.client.clone();
    let api: Api<DynamicObject> = Api::namespaced_with(client, &broker.key.namespace, &kind);
    let name = claim["metadata"]["name"].as_str().unwrap_or_default();
    let ours = PatchParams::apply(NAME).force();
    api.patch(name, &ours, &Patch::Apply(claim)).await?;
    Ok(())
}
