//! Holds the Instances from one watch of this bench, so that conditions on them are awaited without requests.
use futures::StreamExt as _;
use kube::{
    Api, Client,
    runtime::{
        WatchStreamExt as _, reflector,
        watcher::{self, watcher},
    },
};
use petiole::api::instance::Instance;
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, timeout},
};

/// The time after which a condition has failed.
const LONGEST: Duration = Duration::from_secs(300);

pub(super) struct Watched {
    instances: reflector::Store<Instance>,
    changes: watch::Receiver<u64>,
    _task: JoinSet<()>,
}

impl Watched {
    pub(super) fn begin(client: &Client) -> Self {
        let (instances, writer) = reflector::store();
        let (changed, changes) = watch::channel(0);
        let api: Api<Instance> = Api::all(client.clone());
        let events = watcher(api, watcher::Config::default()).default_backoff();
        let slim = |instance: &mut Instance| instance.metadata.managed_fields = None;
        let events = events.modify(slim).reflect(writer);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut events = std::pin::pin!(events);
            while events.next().await.is_some() {
                changed.send_modify(|count| *count += 1);
            }
        });
        Self {
            instances,
            changes,
            _task: task,
        }
    }

    pub(super) fn of(&self, configuration: &str) -> Vec<Arc<Instance>> {
        let all = self.instances.state().into_iter();
        all.filter(|instance| instance.spec.configuration_name.starts_with(configuration))
            .collect()
    }

    /// Waits until `holds` is true for the Instances whose Configuration's name begins with `configuration`. Returns
    /// the time that this took.
    pub(super) async fn until(
        &mut self,
        configuration: &str,
        holds: impl Fn(&[Arc<Instance>]) -> bool,
    ) -> Duration {
        let began = Instant::now();
        let wait = async {
            loop {
                self.changes.mark_unchanged();
                if holds(&self.of(configuration)) {
                    return;
                }
                self.changes.changed().await.unwrap();
            }
        };
        if timeout(LONGEST, wait).await.is_err() {
            let first = self.of(configuration).into_iter().next();
            panic!("not within {LONGEST:?}: {configuration}; its first Instance: {first:?}");
        }
        began.elapsed()
    }
}

/// Returns whether there are `count` Instances, each of which `nodes` nodes offer, all of them healthy.
pub(super) fn are_offered(instances: &[Arc<Instance>], count: usize, nodes: usize) -> bool {
    instances.len() == count
        && instances.iter().all(|instance| {
            let status = instance.status.as_ref();
            instance.spec.nodes.len() == nodes && status.is_none_or(|s| s.nodes.is_empty())
        })
}

/// Returns whether each Instance says that no node sees its device.
pub(super) fn are_unhealthy(instances: &[Arc<Instance>]) -> bool {
    instances.iter().all(|instance| {
        let said = instance.status.as_ref().map_or(0, |s| s.nodes.len());
        said == instance.spec.nodes.len() && said > 0
    })
}
