//! The publisher, in simulated time.
use crate::api::Api;
use k8s_openapi::api::resource::v1::{Device, DeviceTaint};
use petiole_dra::slices::{Pool, PoolState, Publisher, Reach, Scope};
use serde_json::{Value, json};
use std::{collections::BTreeMap, time::Duration};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

struct Publishing {
    api: Api,
    pools: watch::Sender<Vec<Pool>>,
    states: watch::Receiver<BTreeMap<String, PoolState>>,
    _task: JoinSet<()>,
}

fn device(name: &str) -> Device {
    Device {
        name: name.to_owned(),
        ..Device::default()
    }
}

fn pool(devices: impl IntoIterator<Item = Device>) -> Vec<Pool> {
    vec![Pool {
        name: "edge".to_owned(),
        reach: Reach::AllNodes,
        devices: devices.into_iter().collect(),
    }]
}

fn start(api: Api, scope: Scope, first: Vec<Pool>) -> Publishing {
    let (pools, wanted) = watch::channel(first);
    let publisher = Publisher::new(api.client(), "d.example".to_owned(), scope, wanted);
    let states = publisher.states();
    let mut task = JoinSet::new();
    task.spawn(publisher.run());
    Publishing {
        api,
        pools,
        states,
        _task: task,
    }
}

fn start_on_node(api: Api, first: Vec<Pool>) -> Publishing {
    start(api, Scope::Node("edge".to_owned()), first)
}

impl Publishing {
    /// Waits until the slices are as `check` wants them.
    async fn until(&self, check: impl Fn(&[Value]) -> bool) {
        let checked = async {
            while !check(&self.api.slices()) {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(Duration::from_secs(120), checked).await.unwrap();
    }

    async fn until_state(&mut self, state: PoolState) {
        let seen = self
            .states
            .wait_for(|states| states.get("edge") == Some(&state));
        timeout(Duration::from_secs(120), seen)
            .await
            .unwrap()
            .unwrap();
    }

    /// Checks that nothing is written for a minute.
    async fn is_at_rest(&self) {
        self.api.writes();
        sleep(Duration::from_secs(60)).await;
        assert_eq!(self.api.writes(), [""; 0]);
    }
}

fn names(slices: &[Value]) -> Vec<&str> {
    let devices = slices
        .iter()
        .flat_map(|slice| slice["spec"]["devices"].as_array().unwrap());
    devices
        .map(|device| device["name"].as_str().unwrap())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn what_a_kubelet_wiped_is_there_again_within_a_second() {
    let mut publishing = start_on_node(Api::new(), pool([device("x")]));
    publishing.until_state(PoolState::Published).await;
    let slices = publishing.api.slices();
    assert_eq!(
        slices[0]["metadata"]["ownerReferences"][0]["uid"],
        "node-uid"
    );
    assert_eq!(slices[0]["kind"], "ResourceSlice");
    publishing.is_at_rest().await;
    let wiped = Instant::now();
    publishing.api.wipe();
    publishing.until(|slices| names(slices) == ["x"]).await;
    assert!(
        wiped.elapsed() <= Duration::from_secs(1),
        "{:?}",
        wiped.elapsed()
    );
    publishing.is_at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_device_that_flaps_is_a_write_a_second() {
    let publishing = start_on_node(Api::new(), pool([device("x"), device("y")]));
    publishing.until(|slices| slices.len() == 1).await;
    publishing.api.writes();
    let tainted = Device {
        taints: Some(vec![DeviceTaint {
            key: "d.example/off".to_owned(),
            effect: "NoSchedule".to_owned(),
            ..DeviceTaint::default()
        }]),
        ..device("x")
    };
    for n in 0..100 {
        // Not in step with the rounds.
        let x = if n / 3 % 2 == 0 {
            tainted.clone()
        } else {
            device("x")
        };
        publishing.pools.send_replace(pool([x, device("y")]));
        sleep(Duration::from_millis(100)).await;
    }
    let writes = publishing.api.writes();
    assert!((1..=11).contains(&writes.len()), "{writes:?}");
    assert!(
        writes.iter().all(|write| write == "PUT 00000"),
        "{writes:?}"
    );
    publishing
        .until(|slices| slices[0]["spec"]["devices"][0]["taints"].is_null())
        .await;
    publishing.is_at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn fields_that_the_server_does_not_know_are_reported_and_written_once() {
    let api = Api::new();
    api.does_not_know("allowMultipleAllocations");
    let shared = Device {
        allow_multiple_allocations: Some(true),
        ..device("y")
    };
    let mut publishing = start_on_node(api, pool([device("x"), shared]));
    publishing
        .until_state(PoolState::Trimmed("y".to_owned()))
        .await;
    publishing.is_at_rest().await;
    publishing.pools.send_replace(pool([device("x")]));
    publishing.until_state(PoolState::Published).await;
    publishing.is_at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn what_the_server_refuses_is_reported_and_tried_again_ever_more_slowly() {
    let api = Api::new();
    api.refuse(Some("spec.devices: too many"));
    let mut publishing = start_on_node(api, pool([device("x")]));
    let is_failed = |states: &BTreeMap<String, PoolState>| {
        let state = states.get("edge");
        matches!(state, Some(PoolState::Failed(why)) if why.contains("spec.devices: too many"))
    };
    publishing.states.wait_for(is_failed).await.unwrap();
    sleep(Duration::from_secs(120)).await;
    let tries = publishing.api.writes().len();
    assert!((5..12).contains(&tries), "{tries}");
    publishing.api.refuse(None);
    publishing.until_state(PoolState::Published).await;
}

#[tokio::test(start_paused = true)]
async fn another_writer_is_corrected_after_ten_seconds() {
    let publishing = start_on_node(Api::new(), pool([device("x")]));
    publishing.until(|slices| slices.len() == 1).await;
    publishing.is_at_rest().await;
    let mut slice = publishing.api.slices().remove(0);
    slice["spec"]["devices"][0]["name"] = "theirs".into();
    let begin = Instant::now();
    publishing.api.put_slice(slice);
    publishing.until(|slices| names(slices) == ["x"]).await;
    assert!(
        begin.elapsed() >= Duration::from_secs(10),
        "{:?}",
        begin.elapsed()
    );
    publishing.is_at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn another_writer_who_never_rests_is_corrected_too() {
    let publishing = start_on_node(Api::new(), pool([device("x")]));
    publishing.until(|slices| slices.len() == 1).await;
    publishing.is_at_rest().await;
    for n in 0..10 {
        let mut slice = publishing.api.slices().remove(0);
        slice["spec"]["devices"][0]["name"] = format!("theirs-{n}").into();
        publishing.api.put_slice(slice);
        sleep(Duration::from_secs(3)).await;
    }
    assert_eq!(publishing.api.writes(), ["PUT 00000"; 2]);
}

#[tokio::test(start_paused = true)]
async fn a_shared_publisher_deletes_old_pools_and_leaves_the_slices_of_nodes() {
    let api = Api::new();
    let slice = |name: &str, pool: &str, node: Value| {
        json!({"metadata": {"name": name, "uid": "u"}, "spec": {"driver": "d.example", "nodeName": node,
            "devices": [{"name": pool}], "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1}}})
    };
    api.put_slice(slice("of-node", "edge", "edge".into()));
    api.put_slice(slice("of-gone", "gone", Value::Null));
    let publishing = start(api, Scope::Shared, pool([device("x")]));
    publishing
        .until(|slices| names(slices) == ["x", "edge"])
        .await;
    assert_eq!(publishing.api.slices()[0]["spec"]["allNodes"], true);
    assert_eq!(publishing.api.writes(), ["POST 00000", "DELETE of-go"]);
    publishing.is_at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn devices_that_come_one_after_another_are_written_together_and_the_first_at_once() {
    let some = |n: usize| pool((0..n).map(|n| device(&format!("d{n}"))));
    let publishing = start_on_node(Api::new(), some(1));
    publishing.until(|slices| names(slices).len() == 1).await;
    for n in (50..=1000).step_by(50) {
        sleep(Duration::from_millis(400)).await;
        publishing.pools.send_replace(some(n));
    }
    let last = Instant::now();
    publishing.until(|slices| names(slices).len() == 1000).await;
    assert!(last.elapsed() < Duration::from_secs(1));
    // One, and all.
    assert_eq!(publishing.api.writes().len(), 1 + 16);
    // More that come without end wait for ten seconds.
    let begun = Instant::now();
    let mut n = 1025;
    while publishing.api.slices().len() == 16 {
        publishing.pools.send_replace(some(n));
        sleep(Duration::from_millis(100)).await;
        n += 1;
    }
    let waited = begun.elapsed().as_secs();
    assert!((9..=11).contains(&waited), "{waited} s");
}

#[tokio::test(start_paused = true)]
async fn a_thousand_devices_are_sixteen_writes() {
    let devices = (0..1000).map(|n| device(&format!("d{n}")));
    let publishing = start_on_node(Api::new(), pool(devices));
    publishing.until(|slices| names(slices).len() == 1000).await;
    assert_eq!(publishing.api.writes().len(), 16);
    publishing.is_at_rest().await;
}
