//! Watches the Secrets and ConfigMaps to which the Configurations of this node refer.
use crate::{
    cluster::property_sources::{PropertySources, Watched},
    model::property_source::{Contents, Wanted},
    publish,
};
use std::{collections::BTreeSet, convert::Infallible, sync::Arc};
use tokio::sync::{mpsc, watch};
use tokio_util::task::JoinMap;
use tracing::warn;

/// Publishes the contents of all `wanted` objects to `contents` at each change.
pub(super) async fn run(
    sources: PropertySources,
    mut wanted: watch::Receiver<Wanted>,
    contents: watch::Sender<Arc<Contents>>,
) -> anyhow::Result<Infallible> {
    let mut watches: JoinMap<Watched, ()> = JoinMap::new();
    let mut now: BTreeSet<Watched> = BTreeSet::new();
    let (sender, mut read) = mpsc::channel(1);
    loop {
        let before = now;
        now = wanted.borrow_and_update().clone().into_iter().collect();
        let mut known = Contents::clone(&contents.borrow());
        for watched in before.difference(&now) {
            watches.abort(watched);
            // With other keys it is read anew.
            known.remove(&watched.0);
        }
        publish::if_changed(&contents, Arc::new(known));
        for watched in &now {
            if !watches.contains_key(watched) {
                let watch = sources.clone().watch(watched.clone(), sender.clone());
                watches.spawn(watched.clone(), watch);
            }
        }
        tokio::select! {
            changed = wanted.changed() => changed?,
            Some((watched, content)) = read.recv() => {
                // It may be the last word of a watch that has ended.
                if now.contains(&watched) {
                    let mut known = Contents::clone(&contents.borrow());
                    let content = content.after(known.get(&watched.0));
                    known.insert(watched.0, content);
                    publish::if_changed(&contents, Arc::new(known));
                }
            }
            Some((watched, ended)) = watches.join_next() => {
                // Only a panic ends a watch that is wanted, and it starts anew.
                if let Err(e) = ended && e.is_panic() {
                    warn!(source = %watched.0, "the watch ended: {e}");
                }
            }
        }
    }
}
