//! Holds waits that several tasks of the kubelet share.
use std::time::Duration;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Runs a server until `shutdown`, then for at most `last_requests` longer. Connections that stay open do not delay the
/// end.
pub(super) async fn serve_until<E>(
    server: impl Future<Output = Result<(), E>>,
    shutdown: CancellationToken,
    last_requests: Duration,
) -> anyhow::Result<()>
where
    E: Into<anyhow::Error>,
{
    tokio::select! {
        served = server => served.map_err(Into::into),
        () = async { shutdown.cancelled().await; sleep(last_requests).await } => Ok(()),
    }
}
