//! Prepares ResourceClaims, by which the scheduler gives out the devices of Configurations with `allocation: DRA`: the agent is the
//! kubelet plugin of the driver. The controller publishes the devices.
//!
//! A claim takes slots in the same table as an Allocate call does ([`super::slots`]), so a device has no two holders while its
//! Configuration moves from the one to the other. What a container gets is computed by the same function, and reaches it by a CDI
//! file of the claim, because the kubelet takes nothing else.
mod driver;
mod health;
pub(crate) mod plan;

use super::{
    kubelet_records::Prepared,
    plugins::{Allocator, Inputs},
    slots::Requests,
};
use crate::{
    backoff::Backoff,
    files,
    model::{dra, limits},
};
use driver::Prepare;
use kube::Client;
use petiole_dra::{Plugin, book::Book};
use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::{sync::watch, task::spawn_blocking, time::sleep};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// The waits between attempts to listen for the kubelet.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(60);

/// What is needed to prepare ResourceClaims.
#[derive(Clone)]
pub struct Claims {
    client: Client,
    settings: petiole_dra::Settings,
    book: Book,
    /// The folder of the CDI files.
    folder: PathBuf,
}

impl fmt::Debug for Claims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claims")
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}

impl Claims {
    /// Opens the record of prepared claims below the root folder of the kubelet. CDI files go into `folder`. The error names the path.
    pub fn open(
        client: Client,
        kubelet_root: PathBuf,
        pod_uid: Option<String>,
        folder: PathBuf,
    ) -> io::Result<Self> {
        Ok(Self {
            book: Book::of(&kubelet_root, dra::DRIVER)?,
            settings: petiole_dra::Settings {
                driver: dra::DRIVER.to_owned(),
                kubelet_root,
                pod_uid,
            },
            client,
            folder,
        })
    }

    /// Returns the claims that are prepared, and what their containers were given.
    pub(super) async fn prepared(&self) -> anyhow::Result<Prepared> {
        let (book, folder) = (self.book.clone(), self.folder.clone());
        let read = spawn_blocking(move || {
            let uids = book.entries()?.into_iter().map(|entry| entry.claim.uid);
            let uids: std::collections::BTreeSet<String> = uids.collect();
            let uses = uids.iter().filter_map(|uid| given(&folder, uid));
            let uses = uses.collect();
            io::Result::Ok(Prepared { uids, uses })
        });
        Ok(read.await??)
    }
}

/// Returns the slots that the containers of a claim were given; `None` if nothing says it, as after a start of the machine: the
/// kubelet has the claim prepared again before it starts a container.
fn given(folder: &Path, uid: &str) -> Option<crate::model::slot_table::Use> {
    let path = folder.join(dra::cdi_file_name(uid));
    let text = files::read_text(&path, limits::CDI_FILE_BYTES_MAX as u64).ok()?;
    Some(plan::use_of(uid, &text))
}

/// Serves the kubelet until `shutdown`. What it cannot do, such as making its sockets, it tries again.
pub(super) async fn run(
    claims: Claims,
    inputs: Inputs,
    requests: Requests,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let (health, reports) = watch::channel(vec![]);
    let look = health::run(
        claims.book.clone(),
        inputs.clone(),
        health,
        shutdown.clone(),
    );
    let allocator = Arc::new(Allocator::new(inputs, requests));
    let serve = async {
        let mut backoff = Backoff::new(FIRST_RETRY, LAST_RETRY);
        while !shutdown.is_cancelled() {
            let driver = Prepare {
                allocator: allocator.clone(),
                folder: claims.folder.clone(),
            };
            let plugin = Plugin::new(claims.settings.clone(), driver, claims.client.clone());
            let served = match plugin {
                Ok(plugin) => {
                    info!("ResourceClaims are prepared");
                    let plugin = plugin.with_health(reports.clone());
                    plugin.run(shutdown.clone()).await
                }
                Err(error) => Err(error),
            };
            if let Err(error) = served {
                warn!(%error, "the kubelet cannot have ResourceClaims prepared; trying again");
                shutdown
                    .run_until_cancelled(sleep(backoff.next_wait()))
                    .await;
            }
        }
    };
    let ((), looked) = tokio::join!(serve, look);
    looked
}
