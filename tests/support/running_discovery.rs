//! Runs one handler for a test: details in, sets out, conditions awaited with a timeout.
use petiole::{
    discovery::{DiscoveryError, Properties, Task, handlers::builtin},
    model::device::{Device, DeviceSet},
};
use std::time::Duration;
use tokio::{sync::watch, task::JoinSet, time::timeout};

/// A time limit that only ends a failing test. It is long, because the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(30);

pub struct RunningDiscovery {
    pub found: watch::Receiver<DeviceSet>,
    run: JoinSet<Result<(), DiscoveryError>>,
}

impl RunningDiscovery {
    /// Runs the zeroconf handler on `lo` only.
    pub fn zeroconf(details: &str) -> Self {
        Self::start(
            "zeroconf",
            &format!("{details}\ninterfaces: {{allow: [lo]}}"),
        )
    }

    pub fn start(handler: &str, details: &str) -> Self {
        Self::start_with(handler, details, &Properties::new())
    }

    /// Runs a handler with `discoveryProperties`.
    pub fn start_with(handler: &str, details: &str, properties: &Properties) -> Self {
        let handlers = builtin();
        let handler = handlers.iter().find(|h| h.name() == handler).unwrap();
        let discovery = handler.prepare(details, properties).unwrap();
        let (task, found) = Task::alone();
        let mut run = JoinSet::new();
        run.spawn(discovery.run(task));
        Self { found, run }
    }

    /// Waits for a set that satisfies `condition`. It fails with the last set.
    pub async fn until(
        &mut self,
        what: &str,
        condition: impl FnMut(&DeviceSet) -> bool,
    ) -> DeviceSet {
        let seen = timeout(PATIENCE, self.found.wait_for(condition));
        if let Ok(set) = seen.await {
            return set.expect("the discovery runs").clone();
        }
        panic!("never {what}: {:#?}", *self.found.borrow())
    }

    pub async fn device(&mut self, fullname: &str) -> Device {
        let set = self
            .until(fullname, |set| find(set, fullname).is_some())
            .await;
        find(&set, fullname).unwrap().clone()
    }

    pub async fn gone(&mut self, fullname: &str) {
        self.until("gone", |set| find(set, fullname).is_none())
            .await;
    }

    pub async fn ended(&mut self) -> Result<(), DiscoveryError> {
        timeout(PATIENCE, self.run.join_next())
            .await
            .expect("ends")
            .unwrap()
            .unwrap()
    }

    /// Ends the discovery, which has not ended by itself.
    pub async fn stop(mut self) {
        assert!(self.run.try_join_next().is_none());
        self.run.shutdown().await;
    }
}

pub fn find<'a>(set: &'a DeviceSet, fullname: &str) -> Option<&'a Device> {
    set.devices
        .values()
        .find(|d| d.id.as_str() == fullname)
        .map(|device| &**device)
}

/// Returns a property of a zeroconf device, by the last part of its name.
pub fn property<'a>(device: &'a Device, key: &str) -> Option<&'a str> {
    let name = format!("AKRI_ZEROCONF_DEVICE_{key}");
    device.properties.get(&name).map(String::as_str)
}

/// Returns a service type that no other test, and no other run of this one, uses.
pub fn service_type(test: &str) -> String {
    format!("_p{}{test}._tcp", std::process::id())
}
