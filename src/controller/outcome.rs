//! Logs the result of each write, and carries out several writes concurrently.
use crate::{
    cluster::{self, SIDE_BY_SIDE},
    model::names::ObjectKey,
};
use futures::{StreamExt as _, stream};
use std::future::Future;
use tracing::{debug, warn};

/// Whether a write needs no other try. An object that is gone needs none; one that is no longer what was read is
/// looked at again with a newer world.
pub(super) fn is_done(
    object: &ObjectKey,
    what: &'static str,
    result: Result<(), kube::Error>,
) -> bool {
    match result {
        Ok(()) => {
            debug!(%object, "{what}");
            true
        }
        Err(e) if cluster::is_not_found(&e) => {
            debug!(%object, "not {what}: it is gone");
            true
        }
        Err(e) if cluster::is_conflict(&e) || cluster::is_unprocessable(&e) => {
            debug!(%object, "not {what}, looked at again: {e}");
            false
        }
        Err(e) => {
            warn!(%object, "not {what}, tried again: {e}");
            false
        }
    }
}

/// Whether all `writes` say that they are done.
pub(super) async fn all_done<F>(writes: impl IntoIterator<Item = F>) -> bool
where
    F: Future<Output = bool>,
{
    stream::iter(writes)
        .buffer_unordered(SIDE_BY_SIDE)
        .fold(true, |all, one| async move { all && one })
        .await
}
