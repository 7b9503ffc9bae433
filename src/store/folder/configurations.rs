//! Publishes the Configurations in the manifests, at each change of their folder.
use super::{
    disk::manifest_names,
    inner::Inner,
    plan::{File, take_stock},
};
use crate::{
    api::{configuration::Problem, reason::Reason},
    files,
    store::manifest::{self, Unreadable},
};
use anyhow::Context as _;
use std::{io, sync::Arc};

/// The largest manifest of a Configuration, in bytes. A Configuration has less than a tenth of it. Beyond it: it is
/// not used (`Unreadable`).
const FILE_SIZE_MAX: u64 = 4 << 20;

impl Inner {
    /// Reads the whole folder and publishes changes, even if the report cannot be written.
    pub(super) fn read_configurations(&self) -> anyhow::Result<()> {
        let files = self.read_files()?;
        let mut written = self.lock();
        let stock = take_stock(files, &mut written.known, self.started.elapsed());
        self.configurations.send_if_modified(|current| {
            let now = stock.configurations;
            let is_changed = current.objects != now.objects
                || current.hidden != now.hidden
                || current.is_complete != now.is_complete
                || current.deleted != now.deleted;
            *current = Arc::new(now);
            is_changed
        });
        written.unreadable = stock.problems;
        Ok(self.write_reports(&mut written)?)
    }

    fn read_files(&self) -> anyhow::Result<Vec<File>> {
        let folder = &self.settings.configurations;
        let names =
            manifest_names(folder).with_context(|| format!("cannot list {}", folder.display()))?;
        let mut files = vec![];
        for name in names {
            let (configurations, unreadable) =
                match files::read_text(&folder.join(&name), FILE_SIZE_MAX) {
                    Ok(text) => manifest::read_each(&text),
                    Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                    Err(e) => {
                        let problem =
                            Problem::new(Reason::Unreadable, format!("it cannot be read: {e}"));
                        (vec![], vec![Unreadable { key: None, problem }])
                    }
                };
            files.push(File {
                name,
                configurations,
                unreadable,
            });
        }
        Ok(files)
    }
}
