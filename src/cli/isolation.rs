//! Defines the flags of an agent whose built-in handlers run as processes of their own.
use crate::discovery::{external::Isolated, handlers};
use clap::Args;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub(super) struct IsolationFlags {
    /// Built-in handlers that run as processes of their own, by `petiole handler`, instead of in the agent
    #[arg(
        long,
        env = "PETIOLE_ISOLATE_HANDLERS",
        value_name = "NAME,...",
        value_delimiter = ',',
        value_parser = handlers::ISOLATABLE
    )]
    isolate_handlers: Vec<String>,
    /// Folder with a folder for each of these processes, NAME, in which it serves; its group is the process's [default: `isolated` in --state]
    #[arg(
        long,
        env = "PETIOLE_ISOLATED_DIR",
        value_name = "DIR",
        requires = "isolate_handlers"
    )]
    isolated_dir: Option<PathBuf>,
}

impl IsolationFlags {
    pub(super) fn is_wanted(&self) -> bool {
        !self.isolate_handlers.is_empty()
    }

    /// Returns the isolated handlers of an agent with this state folder.
    pub(super) fn isolated(&self, state: &Path) -> Isolated {
        let folder = self.isolated_dir.clone();
        Isolated {
            folder: folder.unwrap_or_else(|| state.join("isolated")),
            names: self.isolate_handlers.iter().cloned().collect(),
        }
    }
}
