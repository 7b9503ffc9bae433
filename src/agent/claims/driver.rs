//! Prepares and unprepares one claim for the kubelet.
use super::plan;
use crate::{
    agent::plugins::Allocator,
    files,
    model::{claim_file, dra, limits},
};
use petiole_dra::{
    Driver, Failure,
    book::HeldDevice,
    claim::{Claim, ClaimKey},
};
use std::{fs, path::PathBuf, sync::Arc};
use tokio::task::spawn_blocking;

/// Anybody may read the files: container runtimes do.
const MODE: u32 = 0o644;

/// The driver of this node.
pub(super) struct Prepare {
    pub(super) allocator: Arc<Allocator>,
    /// The folder of the CDI files.
    pub(super) folder: PathBuf,
}

impl Driver for Prepare {
    async fn prepare(&self, claim: &Claim) -> Result<Vec<Vec<String>>, Failure> {
        let instances = self.allocator.instances();
        let requests = plan::requests(claim, &instances)?;
        let uid = &claim.key.uid;
        let edits = self.allocator.allocate_claim(uid, &requests).await;
        let edits = edits.map_err(|status| status.message().to_owned())?;
        let text = claim_file::text(uid, &edits);
        if text.len() > limits::CDI_FILE_BYTES_MAX {
            let (bytes, most) = (text.len(), limits::CDI_FILE_BYTES_MAX);
            return Err(format!(
                "the CDI file of the claim would have {bytes} bytes, and {most} are the most: ask for fewer devices"
            )
            .into());
        }
        let path = self.folder.join(dra::cdi_file_name(uid));
        let written = spawn_blocking(move || {
            let folder = path.parent().unwrap_or(&path);
            fs::create_dir_all(folder).map_err(|e| files::at(folder, &e))?;
            files::write_atomically(&path, text.as_bytes(), MODE)
        });
        written.await??;
        Ok(plan::cdi_devices(claim, &edits))
    }

    async fn unprepare(&self, claim: &ClaimKey, _: &[HeldDevice]) -> Result<(), Failure> {
        let path = self.folder.join(dra::cdi_file_name(&claim.uid));
        spawn_blocking(move || files::remove(&path)).await??;
        self.allocator.release_claim(&claim.uid).await;
        Ok(())
    }
}
