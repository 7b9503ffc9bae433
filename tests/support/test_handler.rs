//! Implements a discovery handler whose devices a test adds and removes.
use petiole::{
    discovery::{DetailsError, Discovery, DiscoveryError, DiscoveryHandler, Properties, Task},
    model::device::{Device, DeviceSet, Scope},
};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::sync::watch;

/// The devices that discoveries see, by their details. It outlives the agent, as real devices do.
#[derive(Clone, Default)]
pub struct Devices {
    sources: Arc<Mutex<BTreeMap<String, watch::Sender<Option<DeviceSet>>>>>,
    /// The number of discoveries that were started, by their details.
    runs: Arc<Mutex<BTreeMap<String, Arc<AtomicUsize>>>>,
    /// True while discoveries that block their thread do so.
    is_blocked: Arc<(Mutex<bool>, Condvar)>,
}

impl Devices {
    fn source(&self, details: &str) -> watch::Sender<Option<DeviceSet>> {
        let mut sources = self.sources.lock().unwrap();
        sources.entry(details.to_owned()).or_default().clone()
    }

    fn count(&self, details: &str) -> Arc<AtomicUsize> {
        let mut runs = self.runs.lock().unwrap();
        runs.entry(details.to_owned()).or_default().clone()
    }

    pub fn runs(&self, details: &str) -> usize {
        self.count(details).load(Ordering::SeqCst)
    }

    /// Sets the devices that the discovery with these details sees from now on, and completes its first look.
    pub fn see(&self, details: &str, devices: impl IntoIterator<Item = Device>) {
        let set = DeviceSet::complete(devices);
        self.source(details).send_replace(Some(set));
    }

    /// Makes discoveries with details that begin with `block` keep their thread busy until the returned value is dropped.
    pub fn block(&self) -> Blocked {
        *self.is_blocked.0.lock().unwrap() = true;
        Blocked(self.is_blocked.clone())
    }

    /// Makes discoveries with these details that start from now on publish nothing.
    pub fn silence(&self, details: &str) {
        self.source(details).send_replace(None);
    }
}

/// Blocks the threads of discoveries.
pub struct Blocked(Arc<(Mutex<bool>, Condvar)>);

impl Drop for Blocked {
    fn drop(&mut self) {
        *self.0.0.lock().unwrap() = false;
        self.0.1.notify_all();
    }
}

/// The handler with the name `test`. Details that begin with `panic`, `fail`, `hang` or `block` make a discovery do
/// that.
pub struct TestHandler(pub Devices);

impl DiscoveryHandler for TestHandler {
    fn name(&self) -> &'static str {
        "test"
    }

    fn prepare(&self, details: &str, _: &Properties) -> Result<Discovery, DetailsError> {
        if details.starts_with("refused") {
            return Err(DetailsError(format!("{details:?} is no test")));
        }
        let discovery = TestDiscovery {
            details: details.to_owned(),
            source: self.0.source(details),
            runs: self.0.count(details),
            is_blocked: self.0.is_blocked.clone(),
        };
        let scope = if details.ends_with("local") {
            Scope::Node
        } else {
            Scope::Shared
        };
        Ok(Discovery::new(scope, |task| discovery.follow(task)))
    }
}

struct TestDiscovery {
    details: String,
    source: watch::Sender<Option<DeviceSet>>,
    runs: Arc<AtomicUsize>,
    is_blocked: Arc<(Mutex<bool>, Condvar)>,
}

impl TestDiscovery {
    async fn follow(self, task: Task) -> Result<(), DiscoveryError> {
        self.runs.fetch_add(1, Ordering::SeqCst);
        match self.details.split('-').next() {
            Some("panic") => panic!("the handler of {} panics", self.details),
            Some("fail") => {
                return Err(DiscoveryError(format!("{} fails", self.details)));
            }
            Some("hang") => std::future::pending().await,
            Some("block") => {
                let (is_blocked, changed) = &*self.is_blocked;
                let blocked = is_blocked.lock().unwrap();
                drop(
                    changed
                        .wait_while(blocked, |is_blocked| *is_blocked)
                        .unwrap(),
                );
            }
            _ => {}
        }
        let mut source = self.source.subscribe();
        source.mark_changed();
        while source.changed().await.is_ok() {
            if let Some(set) = source.borrow_and_update().clone() {
                task.found.send_replace(set);
            }
        }
        Ok(())
    }
}

/// Returns a device with an address, by which it is reached, and a number of pages, which does not affect that.
pub fn device(id: &str) -> Device {
    with(Device::new(id), &[("ADDRESS", "10.0.0.1"), ("PAGES", "1")])
}

/// Returns `device` with other values. It is reached by `ADDRESS`.
pub fn with(mut device: Device, properties: &[(&str, &str)]) -> Device {
    device.connection.insert("ADDRESS".to_owned());
    for (key, value) in properties {
        device
            .properties
            .insert((*key).to_owned(), (*value).to_owned());
    }
    device
}
