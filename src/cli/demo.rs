//! Flags.
use clap::Args;

#[derive(Debug, Args)]
pub struct Flags {}

pub(super) async fn run(_flags: Flags) -> anyhow::Result<()> {
    anyhow::bail!("not built yet")
}
