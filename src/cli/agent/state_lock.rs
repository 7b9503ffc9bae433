//! Locks the folder of an agent's state.
use crate::files;
use std::{fs::File, io, mem, path::Path, time::Duration};
use tokio::time::{Instant, sleep};
use tracing::warn;

/// The time that an agent before this one has to end.
const LOCK_WAIT: Duration = Duration::from_secs(15);
/// The interval of the looks whether it has.
const LOCK_LOOK: Duration = Duration::from_millis(250);

/// Locks the folder of the state: two agents would overwrite each other's files. An agent that ends may have it for a while
/// yet, such as that of a Pod that was deleted by force.
pub(super) async fn taken(state: &Path) -> io::Result<Option<File>> {
    let until = Instant::now() + LOCK_WAIT;
    let mut is_reported = false;
    loop {
        match files::lock(state) {
            Err(e) if Instant::now() < until => {
                if !mem::replace(&mut is_reported, true) {
                    warn!("{e}; it is waited for up to {LOCK_WAIT:?}");
                }
                sleep(LOCK_LOOK).await;
            }
            outcome => return outcome,
        }
    }
}
