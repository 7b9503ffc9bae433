//! Logs the result of each write, and carries out several writes concurrently.
use crate::{
    api::configuration::Problem,
    cluster::{self, SIDE_BY_SIDE},
    model::typed_names::ConfigurationKey,
};
use futures::{StreamExt as _, future::ready, stream};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
    future::Future,
};
use tracing::{debug, warn};

/// A problem that a task of the controller has with each Configuration.
pub(crate) type Problems = BTreeMap<ConfigurationKey, Problem>;

/// Logs the result of a write, and returns whether it needs no other try. `what` completes the sentence "cannot …". An object
/// that is gone needs no other try; one that has changed is planned again with a newer world.
pub(super) fn is_done(
    object: &dyn Display,
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

/// Carries out the writes, and returns the parts of those that are not done. A write returns its own part if it is not done.
pub(super) async fn failed_of<F>(writes: impl IntoIterator<Item = F>) -> BTreeSet<String>
where
    F: Future<Output = Option<String>>,
{
    let failed = stream::iter(writes).buffer_unordered(SIDE_BY_SIDE);
    failed.filter_map(ready).collect().await
}
