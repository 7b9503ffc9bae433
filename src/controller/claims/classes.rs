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
        let wait = match reconcile(&api, &now.classes).await {
            Ok(outcome) => {
                let is_done = outcome.is_empty();
                publish::if_changed(refused, outcome);
                if is_done {
                    backoff.reset();
                    LOOK_AGAIN
                } else {
                    backoff.next_wait()
                }
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

/// Writes and deletes what is not as it should be. One that is refused holds up no other.
async fn reconcile(
    api: &Api<DynamicObject>,
    wanted: &BTreeMap<String, Class>,
) -> kube::Result<Refused> {
    let ours = ListParams::default().labels(&format!("{CLASS_LABEL}={CLASS_MANAGER}"));
    let there: BTreeMap<String, DynamicObject> = (api.list(&ours).await?.items.into_iter())
        .filter_map(|class| Some((class.metadata.name.clone()?, class)))
        .collect_map();
    let is_left = |name: &str| name.starts_with(CLASS_PREFIX) && !wanted.contains_key(name);
    for (name, class) in there.iter().filter(|(name, _)| is_left(name)) {
        let uid = class.metadata.uid.clone();
        match api.delete(name, &deletion_of(uid, None)).await {
            Err(e) if !is_not_found(&e) => warn!("DeviceClass {name} cannot be deleted: {e}"),
            Ok(_) | Err(_) => info!(
                class = name,
                "no Configuration has this DeviceClass any more: deleted"
            ),
        }
    }
    let mut refused = Refused::new();
    for (name, class) in wanted {
        let there = there.get(name);
        if there.is_none_or(|there| there.data["spec"] != class.spec()) {
            match write(api, name, class, there.is_some()).await {
                Ok(()) => info!(class = name, "wrote a DeviceClass"),
                Err(e) => drop(refused.insert(class.of.clone(), format!("{e:#}"))),
            }
        }
    }
    Ok(refused)
}

/// Makes a class, or makes ours as it should be. One that somebody else has made is left alone.
async fn write(
    api: &Api<DynamicObject>,
    name: &str,
    class: &Class,
    is_ours: bool,
) -> anyhow::Result<()> {
    ensure!(
        is_ours || api.get_opt(name).await?.is_none(),
        "DeviceClass {name} exists without the label {CLASS_LABEL}={CLASS_MANAGER}, and is left as it is: delete it"
    );
    let object = json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name, "labels": {CLASS_LABEL: CLASS_MANAGER}},
        "spec": class.spec(),
    });
    let ours = PatchParams::apply(NAME).force();
    api.patch(name, &ours, &Patch::Apply(object)).await?;
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
            let of = |name| (200, class(name, CLASS_MANAGER));
            match request {
                "GET /apis/resource.k8s.io/v1/deviceclasses/akri.lab.cam" => {
                    (200, class("akri.lab.cam", "somebody"))
                }
                list if list.starts_with("GET") && list.contains("labelSelector") => {
                    let items = ["akri.lab.old", "akri.lab.older", "other"];
                    let items = items.map(|name| class(name, CLASS_MANAGER));
                    (200, json!({"metadata": {}, "items": items}))
                }
                get if get.starts_with("GET") => refusal(404),
                "DELETE /apis/resource.k8s.io/v1/deviceclasses/akri.lab.old?" => refusal(403),
                _ => of("akri.lab.x"),
            }
        });
        let kind = dra_kind("DeviceClass", "deviceclasses");
        let api = Api::all_with(fake.shared.client.clone(), &kind);
        let wanted = ["cam", "usb"].map(|name| ConfigurationKey::new("lab", name));
        let wanted = wanted.map(|of| (dra::class_name(&of), Class { of, resource: None }));
        let refused = reconcile(&api, &wanted.into()).await.unwrap();
        let [(of, why)]: [_; 1] = refused.into_iter().collect::<Vec<_>>().try_into().unwrap();
        assert_eq!(of.to_string(), "lab/cam");
        assert!(
            why.contains("akri.lab.cam exists without the label"),
            "{why}"
        );
        let asked = fake.asked();
        let writes = asked.iter().filter(|request| !request.starts_with("GET"));
        let writes = writes.filter_map(|request| request.split(['?', ' ']).nth(1));
        let names: Vec<&str> = writes.filter_map(|path| path.rsplit('/').next()).collect();
        assert_eq!(names, ["akri.lab.old", "akri.lab.older", "akri.lab.usb"]);
    }
}
