//! Makes the ResourceClaimTemplate by which a broker has its device, before the broker.
use super::action::Action;
use crate::controller::shared::{NAME, Shared};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams},
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
    let kind = GroupVersionKind::gvk("resource.k8s.io", "v1", "ResourceClaimTemplate");
    let kind = ApiResource::from_gvk_with_plural(&kind, "resourceclaimtemplates");
    let client = shared.client.clone();
    let api: Api<DynamicObject> = Api::namespaced_with(client, &broker.key.namespace, &kind);
    let name = claim["metadata"]["name"].as_str().unwrap_or_default();
    let ours = PatchParams::apply(NAME).force();
    api.patch(name, &ours, &Patch::Apply(claim)).await?;
    Ok(())
}
