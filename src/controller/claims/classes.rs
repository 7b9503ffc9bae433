//! Keeps a DeviceClass for each Configuration whose devices the scheduler gives out.
use crate::{
    backoff::Backoff,
    cluster::{code, deletion_of, is_not_found},
    controller::{
        offered::{Class, Offered},
        shared::NAME,
    },
    model::{
        dra::{CLASS_LABEL, CLASS_MANAGER, CLASS_PREFIX},
        status_code::is_busy,
        typed_names::ConfigurationKey,
    },
    publish,
};
use anyhow::ensure;
use k8s_openapi::api::resource::v1::DeviceClass;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams},
};
use petiole_base::collect::CollectMap as _;
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};
use tracing::{info, warn};

const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(60);
/// Changes within it share one look.
const TOGETHER: Duration = Duration::from_millis(100);
/// The time after which the classes are looked at though nothing has changed: somebody may have deleted one.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// Why the classes of Configurations cannot be written.
pub(super) type Refused = BTreeMap<ConfigurationKey, String>;

pub(super) fn api(client: Client) -> Api<DynamicObject> {
    Api::all_with(client, &ApiResource::erase::<DeviceClass>(&()))
}

/// Selects our classes.
pub(super) fn ours() -> ListParams {
    ListParams::default().labels(&format!("{CLASS_LABEL}={CLASS_MANAGER}"))
}

/// Keeps the classes until this replica does not act any more.
pub(super) async fn keep(
    client: Client,
    mut wanted: watch::Receiver<Option<Arc<Offered>>>,
    refused: &watch::Sender<Refused>,
) {
    let api = api(client);
    let mut backoff = Backoff::new(FIRST_RETRY, LAST_RETRY);
    loop {
        let Some(now) = wanted.borrow_and_update().clone() else {
            return;
        };
        let wait = match reconcile(&api, &now, refused).await {
            Ok(true) => {
                backoff.reset();
                LOOK_AGAIN
            }
            Ok(false) => backoff.next_wait(),
            Err(error) => {
                warn!(%error, "DeviceClasses cannot be kept; trying again");
                // One that is away or busy says nothing of them.
                if code(&error).is_some_and(|code| !is_busy(code)) {
                    let why = |class: &Class| (class.of.clone(), error.to_string());
                    publish::if_changed(refused, now.classes.values().map(why).collect_map());
                }
                backoff.next_wait()
            }
        };
        // Devices come and go without another class.
        let is_other = |next: &Option<Arc<Offered>>| {
            let of = |offered: &Offered| (offered.classes.clone(), offered.kept_classes.clone());
            next.as_ref().is_none_or(|next| of(next) != of(&now))
        };
        let changed = timeout(wait, wanted.wait_for(is_other)).await;
        match changed.map(|changed| changed.map(drop)) {
            Ok(Err(_)) => return,
            Ok(Ok(())) => sleep(TOGETHER).await,
            Err(_) => {}
        }
    }
}

/// Returns whether a class has all that is wanted of it, and no resource that is not. What others have added stays.
fn is_as_wanted(class: &DynamicObject, wanted: &Class) -> bool {
    let resource = wanted.resource.as_deref();
    has(&class.data["spec"], &wanted.spec()) && resource_of(class) == resource
}

fn has(there: &Value, wanted: &Value) -> bool {
    match (there, wanted) {
        (Value::Object(there), Value::Object(wanted)) => (wanted.iter())
            .all(|(field, wanted)| there.get(field).is_some_and(|there| has(there, wanted))),
        (there, wanted) => there == wanted,
    }
}

/// Writes and deletes what is not as it should be. One that is refused holds up no other, but one that takes its resource. Returns whether
/// none was.
async fn reconcile(
    api: &Api<DynamicObject>,
    offered: &Offered,
    refused: &watch::Sender<Refused>,
) -> kube::Result<bool> {
    let there = api.list(&ours()).await?.items.into_iter();
    let mut look = ClassLook {
        api,
        there: there
            .filter_map(|class| Some((class.metadata.name.clone()?, class)))
            .collect_map(),
        refused: Refused::new(),
        is_done: true,
    };
    look.delete_left(offered).await;
    let wanted = &offered.classes;
    for (name, class) in releases(&look.there, wanted) {
        look.put(&name, &class).await;
    }
    for (name, class) in wanted {
        let there = look.there.get(name);
        if there.is_some_and(|there| is_as_wanted(there, class)) {
            continue;
        }
        match holder(&look.there, name, class) {
            None => look.put(name, class).await,
            Some(other) => {
                let why = format!("its resource is still that of DeviceClass {other}");
                if there.is_none() {
                    look.put(name, &class.without_resource()).await;
                }
                look.refused.entry(class.of.clone()).or_insert(why);
            }
        }
    }
    let is_done = look.is_done && look.refused.is_empty();
    publish::if_changed(refused, look.refused);
    Ok(is_done)
}

/// One look at the classes.
struct ClassLook<'a> {
    api: &'a Api<DynamicObject>,
    /// Our classes, as they are by now.
    there: BTreeMap<String, DynamicObject>,
    refused: Refused,
    is_done: bool,
}

impl ClassLook<'_> {
    /// Deletes the classes that no Configuration has any more.
    async fn delete_left(&mut self, offered: &Offered) {
        let is_left = |name: &&String| {
            let is_kept = offered.kept_classes.contains(*name);
            name.starts_with(CLASS_PREFIX) && !offered.classes.contains_key(*name) && !is_kept
        };
        let left: Vec<String> = self.there.keys().filter(is_left).cloned().collect();
        for name in left {
            let uid = self.there[&name].metadata.uid.clone();
            match self.api.delete(&name, &deletion_of(uid, None)).await {
                Err(e) if !is_not_found(&e) => {
                    warn!("DeviceClass {name} cannot be deleted, tried again until it can: {e}");
                    self.is_done = false;
                }
                Ok(_) | Err(_) => {
                    info!(
                        class = name,
                        "no Configuration has this DeviceClass any more: deleted"
                    );
                    self.there.remove(&name);
                }
            }
        }
    }

    async fn put(&mut self, name: &str, class: &Class) {
        match write(self.api, name, class, self.there.contains_key(name)).await {
            Ok(kept) => {
                info!(class = name, "wrote a DeviceClass");
                self.there.insert(name.to_owned(), kept);
            }
            Err(e) => drop(self.refused.insert(class.of.clone(), format!("{e:#}"))),
        }
    }
}

/// Returns the classes that have another resource than they should have, without it. The scheduler forgets a resource with the class that
/// had it, also where another has taken it meanwhile: so one lets go before the other takes.
fn releases(
    there: &BTreeMap<String, DynamicObject>,
    wanted: &BTreeMap<String, Class>,
) -> Vec<(String, Class)> {
    let released = wanted.iter().filter(|(name, class)| {
        let has = there.get(*name).and_then(resource_of);
        has.is_some_and(|has| class.resource.as_deref() != Some(has))
    });
    released
        .map(|(name, class)| (name.clone(), class.without_resource()))
        .collect()
}

/// Returns another class that has the resource of this one.
fn holder<'a>(
    there: &'a BTreeMap<String, DynamicObject>,
    name: &str,
    class: &Class,
) -> Option<&'a String> {
    let resource = class.resource.as_deref()?;
    let mut others = there.iter().filter(|(other, _)| **other != name);
    let (other, _) = others.find(|(_, its)| resource_of(its) == Some(resource))?;
    Some(other)
}

pub(super) fn resource_of(class: &DynamicObject) -> Option<&str> {
    class.data["spec"]["extendedResourceName"].as_str()
}

/// Makes a class, or makes ours as it should be, also one that has lost its label. One that somebody else has made is left alone.
async fn write(
    api: &Api<DynamicObject>,
    name: &str,
    class: &Class,
    has_label: bool,
) -> anyhow::Result<DynamicObject> {
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
    let kept = api.patch(name, &params, &Patch::Apply(object)).await?;
    ensure!(
        is_as_wanted(&kept, class),
        "the API server keeps a part of DeviceClass {name} only, because its version is too old for it, or somebody has given it another resource: spec {}",
        kept.data["spec"]
    );
    Ok(kept)
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

    /// A server with a class of somebody else, one of ours that has lost its label, and some that nobody wants. It keeps what is written
    /// of one only.
    fn server() -> Fake {
        Fake::new(|request| {
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
                    let items = ["akri.lab.old", "akri.lab.older", "akri.lab.unread", "other"];
                    let items = items.map(|name| class(name, CLASS_MANAGER));
                    (200, json!({"metadata": {}, "items": items}))
                }
                get if get.starts_with("GET") => refusal(404),
                "DELETE /apis/resource.k8s.io/v1/deviceclasses/akri.lab.old?" => refusal(403),
                "DELETE /apis/resource.k8s.io/v1/deviceclasses/akri.lab.older?" => {
                    (200, class("akri.lab.older", CLASS_MANAGER))
                }
                patch => {
                    let (_, name) = patch.split_once("akri.lab.").unwrap();
                    let (name, _) = name.split_once('?').unwrap();
                    let of = ConfigurationKey::new("lab", name.to_owned());
                    let mut kept = class(&dra::class_name(&of), CLASS_MANAGER);
                    if name == "usb" {
                        kept["spec"] = Class { of, resource: None }.spec();
                        kept["spec"]["config"] = json!(["of an administrator"]);
                    }
                    (200, kept)
                }
            }
        })
    }

    #[tokio::test]
    async fn a_class_of_somebody_else_is_left_alone_and_holds_up_no_other() {
        let fake = server();
        let api = api(fake.shared.client.clone());
        let wanted = ["cam", "own", "usb"].map(|name| ConfigurationKey::new("lab", name));
        let wanted = wanted.map(|of| (dra::class_name(&of), Class { of, resource: None }));
        let refused = watch::Sender::default();
        let offered = Offered {
            classes: wanted.into(),
            kept_classes: ["akri.lab.unread".to_owned()].into(),
            ..Offered::default()
        };
        let is_done = reconcile(&api, &offered, &refused).await.unwrap();
        assert!(!is_done);
        let refused = refused.borrow();
        let refused: Vec<_> = (refused.iter())
            .map(|(of, why)| (of.to_string(), why.as_str()))
            .collect();
        let [(cam, left), (own, kept)] = refused.as_slice() else {
            panic!("{refused:?}");
        };
        assert_eq!((cam.as_str(), own.as_str()), ("lab/cam", "lab/own"));
        assert!(
            left.contains("akri.lab.cam exists without the label"),
            "{left}"
        );
        assert!(
            kept.contains("keeps a part of DeviceClass akri.lab.own"),
            "{kept}"
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

    #[tokio::test]
    async fn a_class_lets_go_of_its_resource_before_another_takes_it() {
        let is_refused = watch::Sender::new(true);
        let refusing = is_refused.subscribe();
        let of = |name: &str| ConfigurationKey::new("lab", name.to_owned());
        let stored = move |name: &str, resource: Option<&str>| {
            let mut stored = class(&dra::class_name(&of(name)), CLASS_MANAGER);
            let resource = resource.map(|resource| resource.parse().unwrap());
            let of = of(name);
            stored["spec"] = Class { of, resource }.spec();
            stored
        };
        let fake = Fake::new(move |request| match request {
            list if list.starts_with("GET") => {
                let items = [stored("a", None), stored("z", Some("akri.sh/cam"))];
                (200, json!({"metadata": {}, "items": items}))
            }
            patch if patch.contains("akri.lab.z") && *refusing.borrow() => refusal(403),
            patch if patch.contains("akri.lab.z") => (200, stored("z", None)),
            _ => (200, stored("a", Some("akri.sh/cam"))),
        });
        let api = api(fake.shared.client.clone());
        let wanted = [("a", Some("akri.sh/cam")), ("z", None)];
        let wanted = wanted.map(|(name, resource)| {
            let resource = resource.map(|resource| resource.parse().unwrap());
            let of = ConfigurationKey::new("lab", name.to_owned());
            (dra::class_name(&of), Class { of, resource })
        });
        let offered = Offered {
            classes: wanted.into(),
            ..Offered::default()
        };
        let refused = watch::Sender::default();
        assert!(!reconcile(&api, &offered, &refused).await.unwrap());
        let taker = ConfigurationKey::new("lab", "a".to_owned());
        let why = "its resource is still that of DeviceClass akri.lab.z";
        assert_eq!(refused.borrow()[&taker], why);
        is_refused.send_replace(false);
        assert!(reconcile(&api, &offered, &refused).await.unwrap());
        let asked = fake.asked();
        let writes = asked.iter().filter(|request| request.starts_with("PATCH"));
        let writes: Vec<bool> = writes.map(|write| write.contains("akri.lab.z")).collect();
        assert_eq!(writes, [true, true, true, false]);
    }

    #[test]
    fn a_class_loses_a_resource_that_it_is_not_to_have_and_keeps_what_others_have_added() {
        let of = ConfigurationKey::new("lab", "cam");
        let with = |resource: Option<&str>| Class {
            of: of.clone(),
            resource: resource.map(|resource| resource.parse().unwrap()),
        };
        let (named, unnamed) = (with(Some("akri.sh/cam")), with(None));
        let stored = |of: &Class| {
            let mut stored = class("akri.lab.cam", CLASS_MANAGER);
            stored["spec"] = of.spec();
            stored["spec"]["config"] = json!(["of an administrator"]);
            serde_json::from_value::<DynamicObject>(stored).unwrap()
        };
        assert!(is_as_wanted(&stored(&named), &named));
        assert!(is_as_wanted(&stored(&unnamed), &unnamed));
        assert!(!is_as_wanted(&stored(&unnamed), &named));
        assert!(!is_as_wanted(&stored(&named), &unnamed));
    }
}
