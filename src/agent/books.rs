//! The kubelet's two books of which container has which device: what its pod resources API lists, and the file it
//! keeps for its own next life.
//!
//! The list has no ordinary init containers. The file has them, and may be behind: the kubelet drops ended Pods from its
//! memory at every list (podresources/server_v1.go: `List`), but writes the file only when a plugin sends its devices, a
//! container is given one, or a resource goes (devicemanager/manager.go: `writeCheckpoint`). So where the two differ, one
//! of our plugins sends its list once more, unchanged: what stands in the file after that is held.
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub(crate) mod plan;

use super::{Node, pod_resources};
use crate::{
    model::{
        checkpoint::{self, FILE},
        slot_table::Held,
    },
    telemetry::metrics,
};
use plan::At;
pub(crate) use plan::{Books, Checkpoint, Confirmed, Unreadable};
use std::{
    fs::{self, File},
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::{
    task::spawn_blocking,
    time::{sleep, timeout},
};

/// Five hundred Pods with 24 KiB of environment each; a kubelet's file has a few KiB.
const SIZE_LIMIT: u64 = 16 * 1024 * 1024;
/// The kubelet writes at once; ours gathers for 250 ms.
const WRITTEN_WITHIN: Duration = Duration::from_secs(1);
/// How long a fresh checkpoint is believed while no Pod goes, in times between two looks: an init container's entry
/// stays as long as its Pod lives.
const CONFIRMED_FOR: u32 = 6;
const BETWEEN_STATS: Duration = Duration::from_millis(20);

/// Tells one version of the file from the next: each is a file of its own, renamed into place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Version {
    inode: u64,
    modified: (i64, i64),
    size: u64,
}

/// Looks at both books, or returns `None` where they cannot be trusted yet: for a while after its start a kubelet lists
/// nothing, while containers run, and so it does as long as it cannot reach the API server. A list with the agent's own
/// Pod is whole. An agent that is no Pod trusts the checkpoint, which the kubelet takes over at its start and shortens
/// only when it knows its Pods; where there is none it waits. `held` are the slots of this node.
pub(super) async fn look(
    node: &Node,
    held: &[Held],
    confirmed: &mut Option<Confirmed>,
) -> anyhow::Result<Option<Books>> {
    let begun = node.uptime();
    let books = read(node).await?;
    let is_trusted = match &node.own_pod {
        Some(own) => books.are_whole(own),
        // One that cannot be read lets nothing be released.
        None => books.checkpoint != Checkpoint::Missing || has_settled(node),
    };
    if !is_trusted {
        return Ok(None);
    }
    Ok(Some(freshened(node, books, (held, begun), confirmed).await))
}

fn has_settled(node: &Node) -> bool {
    let folder = node.kubelet_folder.borrow().clone();
    let by_clock = (folder.kubelet).and_then(|kubelet| kubelet.created.elapsed().ok());
    let known = folder.since.map(|since| since.elapsed());
    // The smaller: a clock that was set just now says anything.
    let age = by_clock.zip(known).map(|(a, b)| a.min(b));
    age.is_some_and(|age| age >= node.kubelet_settles)
}

/// Looks at both books as they are, trusted or not.
pub(super) async fn read(node: &Node) -> anyhow::Result<Books> {
    // The list first: what the kubelet has given since is in the file too.
    let list = pod_resources::held(node).await?;
    let checkpoint = read_checkpoint(node).await;
    Ok(Books { list, checkpoint })
}

/// The same, with a checkpoint that is not behind the list, as far as that can be had.
pub(super) async fn read_fresh(node: &Node) -> anyhow::Result<Books> {
    let begun = node.uptime();
    let books = read(node).await?;
    Ok(freshened(node, books, (&[], begun), &mut None).await)
}

/// The same books, with the checkpoint written anew where it may be behind the list.
async fn freshened(
    node: &Node,
    mut books: Books,
    (held, begun): (&[Held], Duration),
    confirmed: &mut Option<Confirmed>,
) -> Books {
    let doubts = books.doubts(held);
    let at_most = CONFIRMED_FOR * node.between_looks;
    let is_confirmed = (confirmed.as_ref())
        .is_some_and(|last| last.still_holds(&books, &doubts, At { begun, at_most }));
    let mut is_fresh = true;
    if !doubts.is_empty() && !is_confirmed && books.checkpoint != Checkpoint::Missing {
        is_fresh = is_written_anew(node).await;
        books.checkpoint = read_checkpoint(node).await;
        *confirmed = is_fresh.then(|| Confirmed::by(&books, held, begun, confirmed.as_ref()));
    }
    if let Checkpoint::Read { is_fresh: so, .. } = &mut books.checkpoint {
        *so = is_fresh;
    }
    books
}

/// Makes the kubelet write its checkpoint. Whether it did.
async fn is_written_anew(node: &Node) -> bool {
    let path = path(node);
    let before = version(&path);
    let Some(resource) = plan::resent(&node.registered.borrow()).cloned() else {
        return false;
    };
    node.resent.send_replace(resource);
    let written = async {
        while version(&path) == before {
            sleep(BETWEEN_STATS).await;
        }
    };
    timeout(WRITTEN_WITHIN, written).await.is_ok()
}

fn path(node: &Node) -> PathBuf {
    node.plugin_folder.join(FILE)
}

fn version(path: &Path) -> Option<Version> {
    let metadata = fs::metadata(path).ok()?;
    Some(Version {
        inode: metadata.ino(),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
        size: metadata.len(),
    })
}

async fn read_checkpoint(node: &Node) -> Checkpoint {
    let (path, prefixes) = (path(node), node.resource_prefixes.clone());
    let read = spawn_blocking(move || match bytes(&path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Checkpoint::Missing,
        Err(e) => unreadable(&path, &e),
        Ok(bytes) => match checkpoint::parse(&bytes) {
            Err(e) => unreadable(&path, &e),
            Ok(data) => Checkpoint::Read {
                entries: plan::entries(data, &prefixes),
                is_fresh: false,
            },
        },
    });
    let read = read
        .await
        .unwrap_or_else(|e| unreadable(Path::new(FILE), &e));
    metrics().set_checkpoint_unreadable(matches!(read, Checkpoint::Unreadable(_)));
    read
}

fn unreadable(path: &Path, error: &dyn std::fmt::Display) -> Checkpoint {
    Checkpoint::Unreadable(Unreadable(format!("{}: {error}", path.display())))
}

fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = vec![];
    File::open(path)?
        .take(SIZE_LIMIT + 1)
        .read_to_end(&mut bytes)?;
    let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    match size > SIZE_LIMIT {
        true => Err(io::Error::other(format!(
            "it has more than {SIZE_LIMIT} bytes"
        ))),
        false => Ok(bytes),
    }
}
