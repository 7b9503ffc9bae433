//! Logs the result of each write, and carries out several writes concurrently.
use crate::{
    cluster::{self, SIDE_BY_SIDE},
    model::names::ObjectKey,
};
use futures::{StreamExt as _, stream};
use std::future::Future;
use tracing::{debug, warn};

/// Logs the result of a write, and returns whether it needs no other try. `what` completes the sentence "cannot …". An object
/// that is gone needs no other try; one that has changed is planned again with a newer world.
pub(super) fn is_done(
    object: &ObjectKey,
    what: &'static str,
    result: Result<(), kube::Error>,
) -> bool {
    match result {
        Ok(()) => {
            debug!(%object, "done: {what}");
            true
        }
        Err(e) if cluster::is_not_found(&e) => {
            debug!(%object, "nothing to do, the object is gone: {what}");
            true
        }
        Err(e) if cluster::is_conflict(&e) || cluster::is_unprocessable(&e) => {
            debug!(%object, "the object has changed, planned again: {what}: {e}");
            false
        }
        Err(e) => {
            warn!(%object, "cannot {what}; tried again: {e}");
            false
        }
    }
}

/// Carries out the writes, and returns whether all are done.
pub(super) async fn all_done<F>(writes: impl IntoIterator<Item = F>) -> bool
where
    F: Future<Output = bool>,
{
    stream::iter(writes)
        .buffer_unordered(SIDE_BY_SIDE)
        .fold(true, |all, one| async move { all && one })
        .await
}
