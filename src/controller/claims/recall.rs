//! Reads what replicas before this one have offered to the scheduler.
use super::classes;
use crate::{
    backoff::Backoff,
    cluster::{code, is_not_found, list_selected},
    controller::offered::Recalled,
    model::{dra::DRIVER, status_code::is_busy},
};
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ListParams},
};
use petiole_base::collect::CollectMap as _;
use std::time::Duration;
use tokio::time::sleep;
use tracing::warn;

const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(30);
/// An API server that begins refuses once what it allows a second later.
const REFUSALS: u32 = 5;

/// Reads it, as often as the API server is away or busy. What it refuses several times is not known: those who write the objects say why.
pub(super) async fn recall(client: &Client) -> Recalled {
    let mut backoff = Backoff::new(FIRST_RETRY, LAST_RETRY);
    let mut refusals = 0;
    loop {
        match read(client).await {
            Ok(recalled) => return recalled,
            Err(error) => {
                warn!(%error, "what is offered to the scheduler cannot be read");
                refusals += u32::from(code(&error).is_some_and(|code| !is_busy(code)));
                if refusals >= REFUSALS || is_not_found(&error) {
                    return Recalled::default();
                }
                sleep(backoff.next_wait()).await;
            }
        }
    }
}

async fn read(client: &Client) -> kube::Result<Recalled> {
    let of_driver = ListParams::default().fields(&format!("spec.driver={DRIVER}"));
    let slices = ApiResource::erase::<ResourceSlice>(&());
    let slices = list_selected(&Api::all_with(client.clone(), &slices), of_driver).await?;
    let classes = classes::api(client.clone());
    Ok(recalled(
        &slices,
        list_selected(&classes, classes::ours()).await?,
    ))
}

fn recalled(slices: &[DynamicObject], classes: Vec<DynamicObject>) -> Recalled {
    let devices = slices.iter().flat_map(|slice| {
        let spec = &slice.data["spec"];
        let devices = spec["devices"].as_array().into_iter().flatten();
        let shared = devices.filter(|device| device["allowMultipleAllocations"] == true);
        shared.filter_map(|device| {
            let names = [&spec["pool"]["name"], &device["name"]];
            let [pool, device] = names.map(|name| name.as_str().map(str::to_owned));
            pool.zip(device)
        })
    });
    let resources = classes.into_iter().filter_map(|class| {
        let resource = classes::resource_of(&class)?.parse().ok()?;
        Some((class.metadata.name?, resource))
    });
    Recalled {
        shared: devices.collect(),
        resources: resources.collect_map(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::fixtures::{Fake, refusal};
    use serde_json::json;

    #[tokio::test(start_paused = true)]
    async fn the_shared_devices_and_the_resources_of_classes_are_read_when_the_server_answers() {
        let answers = std::sync::atomic::AtomicUsize::new(0);
        let fake = Fake::new(move |request| {
            let is_away = answers.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0;
            let items = if is_away {
                return refusal(503);
            } else if request.contains("resourceslices") {
                let device = |name: &str, shared: bool| json!({"name": name, "allowMultipleAllocations": shared});
                let devices = [device("a", true), device("b", false)];
                json!([{"metadata": {"name": "s"}, "spec": {
                    "driver": DRIVER, "pool": {"name": "lab/cam", "generation": 1, "resourceSliceCount": 1}, "devices": devices,
                }}])
            } else {
                json!([
                    {"metadata": {"name": "akri.lab.cam"}, "spec": {"extendedResourceName": "akri.sh/cam"}},
                    {"metadata": {"name": "akri.lab.tv"}, "spec": {}},
                ])
            };
            (200, json!({"metadata": {}, "items": items}))
        });
        let expected = Recalled {
            shared: [("lab/cam".to_owned(), "a".to_owned())].into(),
            resources: [("akri.lab.cam".to_owned(), "akri.sh/cam".parse().unwrap())].into(),
        };
        assert_eq!(recall(&fake.shared.client).await, expected);
        let asked = fake.asked();
        assert!(
            asked[1].contains("fieldSelector=spec.driver%3Dakri.sh"),
            "{asked:?}"
        );
        for (code, tries) in [(403, 5), (404, 1)] {
            let refused = Fake::new(move |_| refusal(code));
            assert_eq!(recall(&refused.shared.client).await, Recalled::default());
            assert_eq!(refused.asked().len(), tries, "{code}");
        }
    }
}
