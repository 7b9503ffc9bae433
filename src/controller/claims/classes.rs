//! Keeps a DeviceClass for each Configuration whose devices the scheduler gives out.
use crate::{
    backoff::Backoff,
    cluster::{dra_kind, is_not_found},
    controller::{
        offered::{Class, Offered},
        shared::NAME,
    },
    model::dra::{CLASS_LABEL, CLASS_MANAGER},
};
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams},
};
use petiole_base::collect::CollectMap as _;
use serde_json::json;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};
use tracing::{info, warn};

const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(60);
/// The time after which the classes are looked at though nothing has changed: somebody may have deleted one.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// Keeps the classes until this replica does not act any more.
pub(super) async fn keep(client: Client, mut wanted: watch::Receiver<Option<Arc<Offered>>>) {
    let kind = dra_kind("DeviceClass", "deviceclasses");
    let api: Api<DynamicObject> = Api::all_with(client, &kind);
    let mut backoff = Backoff::new(FIRST_RETRY, LAST_RETRY);
    loop {
        let Some(now) = wanted.borrow_and_update().clone() else {
            return;
        };
        let wait = match reconcile(&api, &now.classes).await {
            Ok(()) => {
                backoff.reset();
                LOOK_AGAIN
            }
            Err(error) => {
                warn!(%error, "DeviceClasses cannot be kept; trying again");
                backoff.next_wait()
            }
        };
        match timeout(wait, wanted.changed()).await {
            Ok(Err(_)) => return,
            // Those that follow each other share one look.
            Ok(Ok(())) => sleep(Duration::from_millis(100)).await,
            Err(_) => {}
        }
    }
}

async fn reconcile(api: &Api<DynamicObject>, wanted: &BTreeMap<String, Class>) -> kube::Result<()> {
    let ours = ListParams::default().labels(&format!("{CLASS_LABEL}={CLASS_MANAGER}"));
    let there: BTreeMap<String, DynamicObject> = (api.list(&ours).await?.items.into_iter())
        .filter_map(|class| Some((class.metadata.name.clone()?, class)))
        .collect_map();
    for name in there.keys().filter(|name| !wanted.contains_key(*name)) {
        match api.delete(name, &DeleteParams::default()).await {
            Err(e) if !is_not_found(&e) => return Err(e),
            Ok(_) | Err(_) => info!(
                class = name,
                "no Configuration has this DeviceClass any more: deleted"
            ),
        }
    }
    for (name, class) in wanted {
        let spec = class.spec();
        if there
            .get(name)
            .is_some_and(|there| there.data["spec"] == spec)
        {
            continue;
        }
        let object = json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": name, "labels": {CLASS_LABEL: CLASS_MANAGER}},
            "spec": spec,
        });
        let ours = PatchParams::apply(NAME).force();
        api.patch(name, &ours, &Patch::Apply(object)).await?;
        info!(class = name, "wrote a DeviceClass");
    }
    Ok(())
}
