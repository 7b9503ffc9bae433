//! Answers the startup probe of this agent's own container: `petiole agent --startup-probe` in it asks. An answer over the node's
//! network would be that of the other agent, whose address is the same during an update.
//!
//! The socket is an abstract one with the name of the Pod. It needs no folder, and goes with the process.
use super::readiness::Readiness;
use crate::model::names::{ObjectKey, shortened};
use anyhow::{Context as _, bail};
use std::{
    convert::Infallible,
    io::{self, Read as _},
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixListener, UnixStream},
    },
    time::Duration,
};
use tokio::{net, time::sleep};
use tracing::warn;

/// The length to which a name is cut. The kernel accepts 107 bytes.
const NAME_BYTES: usize = 100;
/// The time for an answer. The kubelet waits as long.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// The pause between attempts to listen.
const RETRY: Duration = Duration::from_secs(1);
/// The part of an answer that is read.
const ANSWER_BYTES: u64 = 4096;

fn address(pod: &ObjectKey) -> io::Result<SocketAddr> {
    let name = shortened(&format!("petiole-agent/{pod}"), NAME_BYTES);
    SocketAddr::from_abstract_name(name)
}

/// Tells all who connect what is missing.
pub(super) async fn serve(pod: ObjectKey, readiness: Readiness) -> anyhow::Result<Infallible> {
    let listener = loop {
        match listener(&pod) {
            Ok(listener) => break listener,
            // Nobody can end this process by taking its name.
            Err(e) => warn!("the startup probe is not answered: {e}"),
        }
        sleep(RETRY).await;
    };
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let missing = readiness.unstarted().join("; ");
                // The buffer of a new connection has room.
                stream.try_write(missing.as_bytes()).ok();
            }
            Err(_) => sleep(RETRY).await,
        }
    }
}

fn listener(pod: &ObjectKey) -> io::Result<net::UnixListener> {
    let listener = UnixListener::bind_addr(&address(pod)?)?;
    listener.set_nonblocking(true)?;
    net::UnixListener::from_std(listener)
}

/// Asks the agent of this Pod. Returns an error with what it waits for.
pub fn ask(pod: &ObjectKey) -> anyhow::Result<()> {
    let ask = || {
        let stream = UnixStream::connect_addr(&address(pod)?)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        let mut missing = String::new();
        stream.take(ANSWER_BYTES).read_to_string(&mut missing)?;
        io::Result::Ok(missing)
    };
    let missing = ask().with_context(|| format!("Pod {pod}: its agent does not answer"))?;
    if !missing.is_empty() {
        bail!("Pod {pod}: its agent has not started: {missing}");
    }
    Ok(())
}
