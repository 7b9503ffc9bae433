//! Runs `petiole web`.
use super::source::SourceFlags;
use crate::live::web;
use anyhow::Context as _;
use clap::Args;
use petiole_cli::{signals::until_signal, table::print};
use std::net::SocketAddr;
use tokio::net::TcpListener;

/// Serves the devices as a web page that changes by itself: a list with problems first, a map, what changes, and each device.
/// The page shows what you may read, and can change nothing.
#[derive(Debug, Args)]
pub struct Flags<S: SourceFlags> {
    /// Address of the page. Everyone who can reach it can read it: others than this machine's are for networks that you trust
    #[arg(
        long,
        env = "PETIOLE_LISTEN",
        value_name = "ADDRESS",
        default_value = "127.0.0.1:8030"
    )]
    listen: SocketAddr,
    /// Names by which browsers reach the page, besides localhost and addresses. To any other name it answers nothing, so that
    /// no page of another site can read it
    #[arg(
        long,
        env = "PETIOLE_HOST",
        value_name = "NAME,...",
        value_delimiter = ','
    )]
    host: Vec<String>,
    #[command(flatten)]
    source: S,
}

pub(crate) async fn run(flags: Flags<impl SourceFlags>) -> anyhow::Result<()> {
    let source = flags.source.source().await?;
    let listener = TcpListener::bind(flags.listen).await.with_context(|| {
        format!(
            "--listen {}: cannot listen; another process may use the address",
            flags.listen
        )
    })?;
    print(&format!("http://{}/\n", listener.local_addr()?))?;
    until_signal(|stop| Box::pin(web::run(source, listener, flags.host, stop))).await
}
