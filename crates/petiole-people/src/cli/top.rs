//! Runs `petiole top`.
use super::source::SourceFlags;
use crate::live::terminal;
use anyhow::bail;
use clap::Args;
use petiole_cli::signals::until_signal;
use std::io::{IsTerminal as _, stdout};

/// Shows the devices live: where they are, who uses their slots, whether they are there, and what changes.
#[derive(Debug, Args)]
pub struct Flags<S: SourceFlags> {
    #[command(flatten)]
    source: S,
}

pub(crate) async fn run(flags: Flags<impl SourceFlags>) -> anyhow::Result<()> {
    if !stdout().is_terminal() {
        bail!(
            "`petiole top` draws on a terminal, and stdout is none: `petiole devices --watch` prints lines, and `petiole get instances` on a machine without a cluster"
        );
    }
    let source = flags.source.source().await?;
    until_signal(|stop| Box::pin(terminal::run(source, stop))).await
}
