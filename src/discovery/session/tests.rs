//! Discoveries as the agent sees them, with time paused.
use super::*;
use crate::{
    discovery::interface::{DetailsError, DiscoveryHandler, Properties},
    model::device::{Device, Scope},
};

/// Sees one device, whose port is another every four seconds.
struct Moves;

const PERIOD: Duration = Duration::from_secs(4);
const LAST_PORT: u32 = 22;

impl DiscoveryHandler for Moves {
    fn name(&self) -> &'static str {
        "moves"
    }

    fn prepare(&self, _: &str, _: &Properties) -> Result<Discovery, DetailsError> {
        Ok(Discovery::new(Scope::Shared, async |task: Task| {
            for port in 0..=LAST_PORT {
                task.found
                    .send_replace(DeviceSet::complete([at_port(port)]));
                sleep(PERIOD).await;
            }
            std::future::pending().await
        }))
    }
}

fn at_port(port: u32) -> Device {
    let mut device = Device::new("a");
    device
        .properties
        .insert("PORT".to_owned(), port.to_string());
    device.connection.insert("PORT".to_owned());
    device
}

#[tokio::test(start_paused = true)]
async fn a_device_that_moves_every_four_seconds_is_not_followed_and_its_last_place_is_believed_soon()
 {
    let key = ConfigurationKey::new("default", "cam");
    let spec = SessionSpec {
        handler: "moves".to_owned(),
        details: String::new(),
        ..SessionSpec::default()
    };
    let desired = watch::Sender::new(BTreeMap::from([(key.clone(), spec)]));
    let seen = watch::Sender::<Arc<Discoveries>>::default();
    let mut sightings = seen.subscribe();
    let (began, stop) = (Instant::now(), CancellationToken::new());
    let handlers = Arc::new(Handlers::new(vec![Box::new(Moves)]));
    let test = async {
        let mut ports = vec![];
        while ports.last() != Some(&LAST_PORT.to_string()) {
            sightings.changed().await.unwrap();
            let now = Arc::clone(&*sightings.borrow_and_update());
            let Some(device) = now.get(&key).and_then(|s| s.set.devices.values().next()) else {
                continue;
            };
            ports.push(device.properties["PORT"].clone());
        }
        assert!(ports.len() <= 6, "{ports:?}");
        let last_change = PERIOD * LAST_PORT;
        let took = began.elapsed() - last_change;
        assert!(took <= Duration::from_secs(10), "{took:?}");
        stop.cancel();
    };
    let sessions = run(handlers, desired.subscribe(), seen.clone(), stop.clone());
    let (ended, ()) = tokio::join!(sessions, test);
    ended.unwrap();
}
