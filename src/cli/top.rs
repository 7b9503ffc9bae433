//! Defines the flags of `petiole top`.
use super::{signals::until_signal, source::SourceFlags};
use anyhow::bail;
use clap::Args;
use petiole_people::live::terminal;
use std::io::{IsTerminal as _, stdout};

/// Shows the devices live: where they are, who uses their slots, whether they are there, and what changes.
#[derive(Debug, Args)]
pub struct Flags {
    #[command(flatten)]
    source: SourceFlags,
}

pub(super) async fn run(flags: Flags) -> anyhow::Result<()> {
    if !stdout().is_terminal() {
        bail!(
            "`petiole top` draws on a terminal, and stdout is none: `petiole devices --watch` prints lines, and `petiole get instances` on a machine without a cluster"
        );
    }
    let source = flags.source.source().await?;
    until_signal(|stop| Box::pin(terminal::run(source, stop))).await
}
