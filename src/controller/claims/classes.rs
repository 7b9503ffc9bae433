//! Keeps a DeviceClass for each Configuration whose devices the scheduler gives out.
use crate::{
    backoff::Backoff,
    cluster::{deletion_of, dra_kind, is_not_found},
    controller::{
        offered::{Class, Offered},
        shared::NAME,
    },
    model::{
        dra::{CLASS_LABEL, CLASS_MANAGER, CLASS_PREFIX},
        typed_names::ConfigurationKey,
    },
    publish,
};
use anyhow::ensure;
use kube::{
    Api, Client,
    api::{DynamicObject, ListParams, Patch, PatchParams},
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

/// Why the classes of Configurations cannot be written.
pub(super) type Refused = BTreeMap<ConfigurationKey, String>;

/// Keeps the classes until this replica does not act any more.
pub(super) async fn keep(
    client: Client,
    mut wanted: watch::Receiver<Option<Arc<Offered>>>,
    refused: &watch::Sender<Refused>,
) {
    let kind = dra_kind("DeviceClass", "deviceclasses");
    let api: Api<DynamicObject> = Api::all_with(client, &kind);
    let mut backoff = Backoff::new(FIRST_RETRY, LAST_RETRY);
    loop {
        let Some(now) = wanted.borrow_and_update().clone() else {
            return;
        };
        let wait = match reconcile(&api, &now.classes, refused).await {
            Ok(true) => {
                backoff.reset();
                LOOK_AGAIN
            }
            Ok(false) => backoff.next_wait(),
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

/// Writes and deletes what is not as it should be. One that is refused holds up no other. Returns whether none was.
async fn reconcile(
    api: &Api<DynamicObject>,
    wanted: &BTreeMap<String, Class>,
    refused: &watch::Sender<Refused>,
) -> kube::Result<bool> {
    let ours = ListParams::default().labels(&format!("{CLASS_LABEL}={CLASS_MANAGER}"));
    let there: BTreeMap<String, DynamicObject> = (api.list(&ours).await?.items.into_iter())
        .filter_map(|class| Some((class.metadata.name.clone()?, class)))
        .collect_map();
    let mut is_done = true;
    let is_left = |name: &str| name.starts_with(CLASS_PREFIX) && !wanted.contains_key(name);
    for (name, class) in there.iter().filter(|(name, _)| is_left(name)) {
        let uid = class.metadata.uid.clone();
        match api.delete(name, &deletion_of(uid, None)).await {
            Err(e) if !is_not_found(&e) => {
                warn!("DeviceClass {name} cannot be deleted, tried again until it can: {e}");
                is_done = false;
            }
            Ok(_) | Err(_) => info!(
                class = name,
                "no Configuration has this DeviceClass any more: deleted"
            ),
        }
    }
    let mut reasons = Refused::new();
    for (name, class) in wanted {
        let there = there.get(name);
        if there.is_none_or(|there| there.data["spec"] != class.spec()) {
            match write(api, name, class, there.is_some()).await {
                Ok(()) => info!(class = name, "wrote a DeviceClass"),
                Err(e) => drop(reasons.insert(class.of.clone(), format!("{e:#}"))),
            }
        }
    }
    is_done &= reasons.is_empty();
    publish::if_changed(refused, reasons);
    Ok(is_done)
}

/// Makes a class, or makes ours as it should be, also one that has lost its label. One that somebody else has made is left alone.
async fn write(
    api: &Api<DynamicObject>,
    name: &str,
    class: &Class,
    has_label: bool,
) -> anyhow::Result<()> {
    let found = if has_label {
        None
    } else {
        api.get_opt(name).await?
    };
    let is_ours = |found: &DynamicObject| {
        let mut managers = found.metadata.managed_fields.iter().flatten();
        managers.any(|of| of.manager.as_deref() == Some(NAME))
    };
    ensure!(
        found.as_ref().is_none_or(is_ours),
        "DeviceClass {name} exists without the label {CLASS_LABEL}={CLASS_MANAGER}, and is left as it is: delete it"
    );
    let object = json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name, "labels": {CLASS_LABEL: CLASS_MANAGER}},
        "spec": class.spec(),
    });
    let params = PatchParams {
        // Not of one that somebody else has made since.
        force: has_label || found.is_some(),
        ..PatchParams::apply(NAME)
    };
    api.patch(name, &params, &Patch::Apply(object)).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        controller::fixtures::{Fake, refusal},
        model::dra,
    };

    fn class(name: &str, label: &str) -> serde_json::Value {
        let metadata = json!({"name": name, "uid": "u", "labels": {CLASS_LABEL: label}});
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": metadata, "spec": {}})
    }

    #[tokio::test]
    async fn a_class_of_somebody_else_is_left_alone_and_holds_up_no_other() {
        let fake = Fake::new(|request| {
            let without_label = |name, manager| {
                let mut class = class(name, "somebody");
                class["metadata"]["managedFields"] = json!([{"manager": manager}]);
                (200, class)
            };
            match request {
                "GET /apis/resource.k8s.io/v1/deviceclasses/akri.lab.cam" => {
                    without_label("akri.lab.cam", "kubectl")
                }
                "GET /apis/resource.k8s.io/v1/deviceclasses/akri.lab.own" => {
                    without_label("akri.lab.own", NAME)
                }
                list if list.starts_with("GET") && list.contains("labelSelector") => {
                    let items = ["akri.lab.old", "akri.lab.older", "other"];
                    let items = items.map(|name| class(name, CLASS_MANAGER));
                    (200, json!({"metadata": {}, "items": items}))
                }
                get if get.starts_with("GET") => refusal(404),
                "DELETE /apis/resource.k8s.io/v1/deviceclasses/akri.lab.old?" => refusal(403),
                _ => (200, class("akri.lab.x", CLASS_MANAGER)),
            }
        });
        let kind = dra_kind("DeviceClass", "deviceclasses");
        let api = Api::all_with(fake.shared.client.clone(), &kind);
        let wanted = ["cam", "own", "usb"].map(|name| ConfigurationKey::new("lab", name));
        let wanted = wanted.map(|of| (dra::class_name(&of), Class { of, resource: None }));
        let refused = watch::Sender::default();
        let is_done = reconcile(&api, &wanted.into(), &refused).await.unwrap();
        assert!(!is_done);
        let refused = refused.borrow();
        let (of, why) = refused.iter().next().unwrap();
        assert_eq!(refused.len(), 1);
        assert_eq!(of.to_string(), "lab/cam");
        assert!(
            why.contains("akri.lab.cam exists without the label"),
            "{why}"
        );
        let asked = fake.asked();
        let writes = asked.iter().filter(|request| !request.starts_with("GET"));
        let writes = writes.filter_map(|request| request.rsplit_once('/'));
        let writes: Vec<&str> = writes.map(|(_, write)| write).collect();
        assert_eq!(
            writes,
            [
                "akri.lab.old?",
                "akri.lab.older?",
                "akri.lab.own?&force=true&fieldManager=petiole-controller",
                "akri.lab.usb?&fieldManager=petiole-controller",
            ]
        );
    }
}
