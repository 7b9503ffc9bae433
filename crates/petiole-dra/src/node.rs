//! Serves Prepare and Unprepare: reads each claim, records its devices, and calls the driver.
use crate::{
    book::{Book, Entry},
    claim::{self, Claim, ClaimKey, ResourceClaimPart},
    driver::{Driver, Failure},
    proto::dra::{
        Claim as SentClaim, Device, NodePrepareResourceResponse, NodePrepareResourcesRequest,
        NodePrepareResourcesResponse, NodeUnprepareResourceResponse, NodeUnprepareResourcesRequest,
        NodeUnprepareResourcesResponse, dra_plugin_server::DraPlugin,
    },
    turns::{Turn, Turns},
};
use futures::{FutureExt as _, StreamExt as _, stream};
use kube::{Api, Client};
use petiole_base::collect::CollectMap as _;
use std::{collections::BTreeMap, io, panic::AssertUnwindSafe, sync::Arc, time::Duration};
use tokio::{task::spawn_blocking, time::timeout};
use tonic::{Request, Response, Status};
use tracing::{info, warn};

/// The most claims of one call. A Pod has fewer. Beyond it: the call is refused, and the Pod does not start.
const CLAIMS_OF_CALL_MAX: usize = 1024;
/// The number of claims of one call that are worked on at once.
const SIDE_BY_SIDE: usize = 16;
/// The time limit for a read of a claim. The kubelet waits 45 s for all claims of a Pod.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// The server of one driver.
pub(crate) struct Node<D> {
    pub(crate) driver: D,
    pub(crate) name: String,
    pub(crate) client: Client,
    pub(crate) book: Book,
    pub(crate) turns: Turns,
}

impl<D: Driver> Node<D> {
    async fn prepare(&self, key: ClaimKey) -> Result<Vec<Device>, Failure> {
        let key = &key;
        key.check()?;
        let turn = self.turns.of(&key.uid).await;
        let claim = self.read(key).await?;
        let entry = Entry::of(&claim);
        if let Some(before) = on_disk(&self.book, &turn, Book::entry).await?
            && before.devices != entry.devices
        {
            // It was allocated anew, and the kubelet has not unprepared it in between.
            self.driver.unprepare(key, &before.devices).await?;
        }
        on_disk(&self.book, &turn, move |book, _| book.hold(&entry)).await?;
        let ids = self.driver.prepare(&claim).await?;
        info!(claim = %key, uid = key.uid, devices = ids.len(), "prepared a claim");
        answer(claim, ids)
    }

    async fn unprepare(&self, key: ClaimKey) -> Result<(), Failure> {
        let key = &key;
        key.check()?;
        let turn = self.turns.of(&key.uid).await;
        let entry = on_disk(&self.book, &turn, Book::entry).await?;
        let devices = entry.map(|entry| entry.devices).unwrap_or_default();
        self.driver.unprepare(key, &devices).await?;
        on_disk(&self.book, &turn, Book::release).await?;
        info!(claim = %key, uid = key.uid, "unprepared a claim");
        Ok(())
    }

    /// Reads the claim from the API server: the kubelet sends its name only.
    async fn read(&self, key: &ClaimKey) -> Result<Claim, Failure> {
        let claims: Api<ResourceClaimPart> = Api::namespaced(self.client.clone(), &key.namespace);
        let cannot = |e: String| format!("cannot read ResourceClaim {key}: {e}");
        let found = timeout(READ_TIMEOUT, claims.get(&key.name)).await;
        let found = found.map_err(|_| cannot(format!("no answer within {READ_TIMEOUT:?}")))?;
        let found = found.map_err(|e| cannot(said(&e)))?;
        Ok(claim::checked(found, key, &self.name)?)
    }
}

/// Runs an access to the book, which may wait for the disk and for another process. It goes on when the kubelet gives up the call; until
/// it has ended, no other call has the claim.
async fn on_disk<T: Send + 'static>(
    book: &Book,
    turn: &Arc<Turn>,
    access: impl FnOnce(&Book, &str) -> io::Result<T> + Send + 'static,
) -> Result<T, Failure> {
    let (book, turn) = (book.clone(), Arc::clone(turn));
    Ok(spawn_blocking(move || access(&book, &turn.uid)).await??)
}

/// Returns what the server said of a request, or why there is no answer, without the repetitions of the library.
fn said(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error {
        return status.message.clone();
    }
    error.to_string()
}

/// Returns the devices for the kubelet.
fn answer(claim: Claim, ids: Vec<Vec<String>>) -> Result<Vec<Device>, Failure> {
    if ids.len() != claim.devices.len() {
        let (has, got) = (claim.devices.len(), ids.len());
        return Err(format!("the claim has {has} devices, and the driver prepared {got}: this is a fault of the driver").into());
    }
    let devices = claim.devices.into_iter().zip(ids);
    let answers = devices.map(|(device, cdi_device_ids)| Device {
        request_names: vec![claim::base_request(&device).to_owned()],
        pool_name: device.pool,
        device_name: device.device,
        cdi_device_ids,
        share_id: device.share_id,
    });
    Ok(answers.collect())
}

/// Works on the claims of a call, several at once, and returns what came of each by its UID.
async fn each<T, F>(
    claims: Vec<SentClaim>,
    what: &str,
    work: impl Fn(ClaimKey) -> F,
) -> Result<BTreeMap<String, Result<T, String>>, Status>
where
    F: Future<Output = Result<T, Failure>>,
{
    if claims.len() > CLAIMS_OF_CALL_MAX {
        let message = format!("{} claims, {CLAIMS_OF_CALL_MAX} at most", claims.len());
        return Err(Status::invalid_argument(message));
    }
    let keyed = claims.into_iter().map(|sent| {
        let (uid, namespace, name) = (sent.uid, sent.namespace, sent.name);
        (
            uid.clone(),
            ClaimKey {
                uid,
                namespace,
                name,
            },
        )
    });
    let keys: BTreeMap<String, ClaimKey> = keyed.collect_map();
    let outcomes = keys.into_iter().map(|(uid, key)| {
        let claim = key.to_string();
        AssertUnwindSafe(work(key))
            .catch_unwind()
            .map(move |outcome| {
                let outcome = outcome.unwrap_or_else(|_| Err("the driver panicked".into()));
                if let Err(error) = &outcome {
                    warn!(claim, uid, %error, "cannot {what} a claim; the kubelet tries again");
                }
                (uid, outcome.map_err(|e| e.to_string()))
            })
    });
    let outcomes = stream::iter(outcomes);
    Ok(outcomes.buffer_unordered(SIDE_BY_SIDE).collect().await)
}

#[tonic::async_trait]
impl<D: Driver> DraPlugin for Node<D> {
    async fn node_prepare_resources(
        &self,
        request: Request<NodePrepareResourcesRequest>,
    ) -> Result<Response<NodePrepareResourcesResponse>, Status> {
        let claims = request.into_inner().claims;
        let outcomes = each(claims, "prepare", |key| self.prepare(key)).await?;
        let of = |outcome| match outcome {
            Ok(devices) => NodePrepareResourceResponse {
                devices,
                error: String::new(),
            },
            Err(error) => NodePrepareResourceResponse {
                devices: vec![],
                error,
            },
        };
        let claims = outcomes
            .into_iter()
            .map(|(uid, o)| (uid, of(o)))
            .collect_map();
        Ok(Response::new(NodePrepareResourcesResponse { claims }))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<NodeUnprepareResourcesRequest>,
    ) -> Result<Response<NodeUnprepareResourcesResponse>, Status> {
        let claims = request.into_inner().claims;
        let outcomes = each(claims, "unprepare", |key| self.unprepare(key)).await?;
        let of = |outcome: Result<(), String>| NodeUnprepareResourceResponse {
            error: outcome.err().unwrap_or_default(),
        };
        let claims = outcomes
            .into_iter()
            .map(|(uid, o)| (uid, of(o)))
            .collect_map();
        Ok(Response::new(NodeUnprepareResourcesResponse { claims }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::poll;
    use std::{pin::pin, sync::mpsc};

    #[tokio::test]
    async fn a_claim_is_taken_until_the_disk_has_done_what_a_call_that_was_given_up_wanted() {
        let dir = tempfile::tempdir().unwrap();
        let book = Book::open(dir.path().to_owned()).unwrap();
        let turns = Turns::new();
        let turn = turns.of("a").await;
        let (disk, waiting) = mpsc::channel::<()>();
        {
            let access = on_disk(&book, &turn, move |_, _| Ok(waiting.recv().ok()));
            assert!(poll!(pin!(access)).is_pending());
        }
        drop(turn);
        let mut next = pin!(turns.of("a"));
        assert!(poll!(&mut next).is_pending());
        drop(disk);
        timeout(READ_TIMEOUT, next).await.unwrap();
    }
}
