//! Watches the objects that the controller reads. Each kind has a task, which reduces its objects and sends their changes to
//! the loop.
use super::{
    parts::News,
    shared::Settings,
    world::{broker_job, broker_pod, configuration, node_state, owned_service, owned_slice},
};
use crate::{
    api::{configuration::Configuration, instance::Instance, names, node_devices::NodeDevices},
    cluster::{
        changes::{Change, Listed, follow},
        watch::{self, Bounded, Read, Selection, Set, apis},
        without_fields,
    },
    model::{budget::Room, limits, typed_names::ConfigurationName},
    supervisor::Supervisor,
};
use kube::{Api, Client, Resource, runtime::watcher};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use tokio::sync::{mpsc, watch as channel};

/// The room for Configurations. Their broker specs take up to sixteen times their bytes once they are parsed.
const ROOM: Room = Room {
    count: usize::MAX,
    bytes: limits::CONFIGURATIONS_BYTES_MAX,
};
/// The batches of changes that wait for the loop. The watches wait while there are so many.
pub(super) const BATCHES: usize = 16;

/// The ends of all watches that the loop reads.
pub(super) struct Watches {
    /// Configurations are bounded together, so that one more may take the place of another: the whole set is read.
    pub(super) configurations: channel::Receiver<Set<Configuration, ConfigurationName>>,
    pub(super) others: mpsc::Receiver<News>,
}

impl Watches {
    /// Starts a task for each kind.
    pub(super) fn spawn(tasks: &mut Supervisor, client: &Client, settings: &Settings) -> Self {
        let (sender, others) = mpsc::channel(BATCHES);
        let ours = || watcher::Config::default().labels(names::CONFIGURATION_LABEL);
        let services = format!("{}={}", names::CONTROLLER_LABEL, names::GROUP);
        let services = watcher::Config::default().labels(&services);
        let all = watcher::Config::default;
        let namespaces = &*settings.watch_namespaces;
        let mut start = Start { tasks, sender };
        let instances = Selection::new("instances", all());
        start.kind(
            apis(client, namespaces),
            instances,
            without_fields::<Instance>,
        );
        let nodes = Selection::new("nodes", all());
        start.kind(vec![Api::all(client.clone())], nodes, node_state);
        let reports = Selection::new("nodedevices", all());
        let reduce = without_fields::<NodeDevices>;
        start.kind(vec![Api::all(client.clone())], reports, reduce);
        let pods = Selection::new("pods", ours());
        start.kind(apis(client, namespaces), pods, broker_pod);
        let jobs = Selection::new("jobs", ours());
        start.kind(apis(client, namespaces), jobs, broker_job);
        let services = Selection::new("services", services);
        start.kind(apis(client, namespaces), services, owned_service);
        start.slices(client, settings);
        let (set, configurations) = channel::channel(None);
        let selection = Selection::new("configurations", all()).within(ROOM);
        let (apis, variables) = (apis(client, namespaces), settings.variables.clone());
        let reduce = move |Bounded { object, bytes }: Bounded<Configuration, false>| {
            (configuration(object, &variables), bytes)
        };
        (start.tasks).spawn("configurations", |stop| {
            watch::run_within(apis, selection, reduce, set, stop)
        });
        Self {
            configurations,
            others,
        }
    }
}

struct Start<'a> {
    tasks: &'a mut Supervisor,
    sender: mpsc::Sender<News>,
}

impl Start<'_> {
    /// The controller may see EndpointSlices only where devices may have names.
    fn slices(&mut self, client: &Client, settings: &Settings) {
        if settings.device_networks.is_empty() {
            let none = self.sender.try_send(News::Slices(vec![]));
            return none.expect("it is the first one");
        }
        let ours = format!("{}={}", names::MANAGED_BY_LABEL, names::CONTROLLER_MANAGER);
        let ours = Selection::new("endpointslices", watcher::Config::default().labels(&ours));
        let apis = apis(client, &settings.watch_namespaces);
        self.kind(apis, ours, owned_slice);
    }

    fn kind<K, T, Name>(
        &mut self,
        apis: Vec<Api<Read<K>>>,
        selection: Selection,
        reduce: impl Fn(K) -> T + Send + Sync + 'static,
    ) where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
        T: Send + Sync + 'static,
        Name: From<String> + Clone + Ord + Send + Sync + 'static,
        News: From<Vec<Change<T, Name>>> + From<Listed<T>>,
    {
        let sender = self.sender.clone();
        (self.tasks).spawn(selection.what, |stop| {
            follow(apis, selection, reduce, sender, stop)
        });
    }
}
