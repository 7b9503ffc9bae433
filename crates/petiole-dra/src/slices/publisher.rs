//! Keeps the slices of the API server equal to the pools of a driver.
use super::{
    plan::{self, Source, Write, is_same_spec},
    pool::{Pool, PoolState, Scope},
    stored::{Change, Stored},
};
use futures::{StreamExt as _, pin_mut};
use k8s_openapi::{
    api::{core::v1::Node, resource::v1::ResourceSlice},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, PostParams, Preconditions},
    runtime::{WatchStreamExt as _, watcher},
};
use petiole_base::backoff::Backoff;
use petiole_base::collect::CollectMap as _;
use std::{collections::BTreeMap, time::Duration};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout},
};
use tracing::{debug, warn};

/// The shortest time between two rounds of writes. A slice is written once in a round at most.
const PACE: Duration = Duration::from_secs(1);
/// The wait for more changes: several nodes see that a device goes, one after another.
const SETTLES: Duration = Duration::from_millis(200);
/// The wait for more devices where a pool needs more slices, of which each has the number of all: after the last device that came, and
/// in all.
const QUIET: Duration = Duration::from_millis(500);
const GROWS_FOR: Duration = Duration::from_secs(10);
/// The time after which a change of somebody else is undone. During an update another version of the driver may publish, too: the two
/// must not write all the time.
const RESTRAINT: Duration = Duration::from_secs(10);
/// The longest wait after rounds that have failed.
const RETRY_CAP: Duration = Duration::from_secs(30);
/// The time after which a slice is sent again that the server did not store as it was sent: it may have been updated.
const TRIED_AGAIN: Duration = Duration::from_mins(10);
/// The time limit of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const HTTP_NOT_FOUND: u16 = 404;

/// A task that publishes the pools of one driver.
pub struct Publisher {
    client: Client,
    driver: String,
    scope: Scope,
    pools: watch::Receiver<Vec<Pool>>,
    states: watch::Sender<BTreeMap<String, PoolState>>,
}

/// When one of the slices is sent again that the server did not store as they were sent.
struct Again {
    at: Instant,
    /// The slices that lacked something the last time.
    lacked: usize,
}

impl Again {
    fn new() -> Self {
        Self {
            at: Instant::now() + TRIED_AGAIN,
            lacked: 0,
        }
    }

    /// Chooses a slice. Returns whether there is one. Once one lacks nothing any more, the others follow.
    fn is_due(&mut self, stored: &mut Stored) -> bool {
        let has_learned = stored.lacking() < self.lacked;
        self.lacked = stored.lacking();
        self.at = Instant::now() + if has_learned { PACE } else { TRIED_AGAIN };
        stored.try_again()
    }
}

impl Publisher {
    /// Returns a publisher of the newest value of `pools`. Slices of other pools in its scope are deleted, so the first value must be
    /// complete. The client needs `get`, `list`, `watch`, `create`, `update` and `delete` of ResourceSlices, and `get` of its Node.
    pub fn new(
        client: Client,
        driver: String,
        scope: Scope,
        pools: watch::Receiver<Vec<Pool>>,
    ) -> Self {
        Self {
            client,
            driver,
            scope,
            pools,
            states: watch::Sender::default(),
        }
    }

    /// Returns what came of each pool, by its name.
    pub fn states(&self) -> watch::Receiver<BTreeMap<String, PoolState>> {
        self.states.subscribe()
    }

    /// Publishes until nobody can send pools any more, or the future is dropped. The slices stay. What the API server refuses is a
    /// [`PoolState::Failed`], and is tried again.
    pub async fn run(mut self) {
        let source = Source {
            driver: self.driver.clone(),
            owner: self.owner().await,
        };
        let slices: Api<ResourceSlice> = Api::all(self.client.clone());
        let config = watcher::Config::default().fields(&self.selector());
        let events = watcher(slices.clone(), config).default_backoff();
        pin_mut!(events);
        let is_ours = |slice: &ResourceSlice| {
            // Servers have no selector for slices without a node.
            source.owner.is_some() || slice.spec.node_name.is_none()
        };
        let mut stored = Stored::default();
        let mut backoff = Backoff::new(PACE, RETRY_CAP);
        let mut last_round = None;
        let mut due = Instant::now();
        let (mut restraint, mut changed_at) = (None, None);
        let mut is_pending = true;
        let mut again = Again::new();
        loop {
            tokio::select! {
                biased; // what is due waits for no news
                () = sleep_until(again.at), if stored.is_complete => is_pending |= again.is_due(&mut stored),
                () = sleep_until(due), if is_pending && stored.is_complete => {
                    let pools = self.pools.borrow_and_update().clone();
                    is_pending = !self.round(&source, &slices, &pools, &mut stored).await;
                    let now = Instant::now();
                    last_round = Some(now);
                    (restraint, changed_at) = (None, None);
                    due = now + if is_pending { backoff.next_wait() } else { PACE };
                    if !is_pending {
                        backoff.reset();
                    }
                }
                Some(event) = events.next() => match event {
                    Ok(event) => {
                        if stored.apply(event, is_ours) == Change::Foreign {
                            // It begins with the first change: one who writes all the time must be corrected, too.
                            due = due.max(*restraint.get_or_insert_with(|| Instant::now() + RESTRAINT));
                        }
                        is_pending = true;
                    }
                    Err(error) => warn!(%error, "cannot watch ResourceSlices; trying again"),
                },
                changed = self.pools.changed() => match changed {
                    Ok(()) => {
                        let now = Instant::now();
                        let since = *changed_at.get_or_insert(now);
                        let settled = if plan::grows(&self.pools.borrow_and_update(), &stored) { (now + QUIET).min(since + GROWS_FOR) } else { since + SETTLES };
                        due = last_round.map_or(due, |last| due.min(last + PACE)).max(settled);
                        is_pending = true;
                    }
                    Err(_) => return,
                },
            }
        }
    }

    /// Writes what differs, and returns whether nothing is left to do.
    async fn round(
        &self,
        source: &Source,
        slices: &Api<ResourceSlice>,
        pools: &[Pool],
        stored: &mut Stored,
    ) -> bool {
        let mut failures: BTreeMap<String, String> = BTreeMap::new();
        for write in plan::plan(source, pools, stored) {
            let pool = write.slice().spec.pool.name.clone();
            // The writes of a pool are in an order.
            if failures.contains_key(&pool) {
                continue;
            }
            if let Err(error) = apply(slices, write, stored).await {
                warn!(pool, error, "cannot write a ResourceSlice; trying again");
                failures.insert(pool, error);
            }
        }
        let is_done = failures.is_empty();
        let trimmed = |pool: &Pool| {
            let names = stored.slices.iter();
            let mut names = names.filter(|(_, slice)| slice.spec.pool.name == pool.name);
            names.find_map(|(name, _)| stored.trimmed_device(name).map(str::to_owned))
        };
        let states = pools.iter().map(|pool| {
            let state = match failures.remove(&pool.name) {
                Some(error) => PoolState::Failed(error),
                None => trimmed(pool).map_or(PoolState::Published, PoolState::Trimmed),
            };
            (pool.name.clone(), state)
        });
        let states = states.collect_map();
        self.states.send_if_modified(|known| {
            let is_new = *known != states;
            *known = states;
            is_new
        });
        is_done
    }

    /// Returns the Node that owns the slices. Its UID is read until the API server answers.
    async fn owner(&self) -> Option<OwnerReference> {
        let Scope::Node(name) = &self.scope else {
            return None;
        };
        let nodes: Api<Node> = Api::all(self.client.clone());
        let mut backoff = Backoff::new(PACE, RETRY_CAP);
        loop {
            match answered(nodes.get_metadata(name)).await {
                Ok(node) => {
                    return Some(OwnerReference {
                        api_version: "v1".to_owned(),
                        kind: "Node".to_owned(),
                        name: name.clone(),
                        uid: node.metadata.uid.unwrap_or_default(),
                        controller: Some(true),
                        block_owner_deletion: None,
                    });
                }
                Err(Refused { message, .. }) => {
                    warn!(
                        node = name,
                        error = message,
                        "cannot read the Node that owns the ResourceSlices; trying again"
                    );
                }
            }
            tokio::time::sleep(backoff.next_wait()).await;
        }
    }

    fn selector(&self) -> String {
        match &self.scope {
            Scope::Node(node) => format!("spec.driver={},spec.nodeName={node}", self.driver),
            Scope::Shared => format!("spec.driver={}", self.driver),
        }
    }
}

/// The answer of the API server to a request that it did not do.
struct Refused {
    code: Option<u16>,
    message: String,
}

async fn apply(
    slices: &Api<ResourceSlice>,
    write: Write,
    stored: &mut Stored,
) -> Result<(), String> {
    let name = write.slice().name_any();
    debug!(
        slice = name,
        pool = write.slice().spec.pool.name,
        "writing a ResourceSlice"
    );
    let post = PostParams::default();
    let (sent, answer) = match write {
        Write::Delete(slice) => return delete(slices, slice, stored).await,
        Write::Create(slice) => {
            let answer = answered(slices.create(&post, &slice)).await;
            (slice, answer)
        }
        Write::Update(slice) => {
            let answer = answered(slices.replace(&name, &post, &slice)).await;
            (slice, answer)
        }
    };
    match answer {
        Ok(slice) if is_same_spec(&slice.spec, &sent.spec) => stored.put(slice),
        Ok(slice) => {
            warn!(
                slice = name,
                "the API server stored a ResourceSlice without some of its fields"
            );
            stored.put_trimmed(sent.spec, slice);
        }
        Err(Refused { message, .. }) => return Err(format!("{name}: {message}")),
    }
    Ok(())
}

/// Deletes this version of a slice. One that is gone is no error.
async fn delete(
    slices: &Api<ResourceSlice>,
    slice: ResourceSlice,
    stored: &mut Stored,
) -> Result<(), String> {
    let name = slice.name_any();
    let parameters = DeleteParams {
        preconditions: Some(Preconditions {
            resource_version: slice.metadata.resource_version,
            uid: slice.metadata.uid,
        }),
        ..DeleteParams::default()
    };
    match answered(slices.delete(&name, &parameters)).await {
        Err(Refused { code, message }) if code != Some(HTTP_NOT_FOUND) => {
            Err(format!("{name}: {message}"))
        }
        Ok(_) | Err(_) => {
            stored.slices.remove(&name);
            Ok(())
        }
    }
}

async fn answered<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, Refused> {
    let refused = |code, message| Refused { code, message };
    match timeout(REQUEST_TIMEOUT, request).await {
        Err(_) => Err(refused(
            None,
            format!("no answer within {REQUEST_TIMEOUT:?}"),
        )),
        Ok(Err(kube::Error::Api(s))) => Err(refused(Some(s.code), s.message.clone())),
        Ok(Err(error)) => Err(refused(None, error.to_string())),
        Ok(Ok(answer)) => Ok(answer),
    }
}
