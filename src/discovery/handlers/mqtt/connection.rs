//! Opens a connection to a broker, within a time limit. A failure names the step, and what to look at.
use super::{credentials::Credentials, details::Broker};
use petiole_mqtt::limits::ANSWER_WITHIN;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, lookup_host},
    time::timeout,
};
use tokio_rustls::{TlsConnector, rustls::pki_types::ServerName};

/// A connection with TLS, or without.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Connects. The error is about the broker, which the caller names.
pub(super) async fn connect(
    broker: &Broker,
    credentials: &Credentials,
) -> Result<Box<dyn Stream>, String> {
    let mut step = "its name was not looked up";
    let opened = timeout(ANSWER_WITHIN, open(broker, credentials, &mut step)).await;
    opened.unwrap_or_else(|_late| {
        let seconds = ANSWER_WITHIN.as_secs();
        Err(format!(
            "{step} within {seconds} s: is the host up, and does its network let this node through?"
        ))
    })
}

async fn open(
    broker: &Broker,
    credentials: &Credentials,
    step: &mut &'static str,
) -> Result<Box<dyn Stream>, String> {
    let Broker { is_tls, host, port } = broker;
    let found = lookup_host((host.as_str(), *port)).await;
    let addresses = found.map_err(|e| {
        format!("this node knows no address of {host} ({e}): name the address instead, or let the nodes' DNS resolve it")
    })?;
    let addresses: Vec<_> = addresses.collect();
    *step = "no connection";
    let socket = TcpStream::connect(addresses.as_slice()).await;
    let socket = socket.map_err(|e| {
        format!("no connection ({e}): is the broker running, and does its network let this node through to port {port}?")
    })?;
    if !is_tls {
        return Ok(Box::new(socket));
    }
    *step = "TLS was not agreed on";
    let Some(config) = credentials.tls.clone() else {
        return Err(
            "mqtts:// needs the certificate authority of the broker: name it as the discoveryProperty ca".to_owned(),
        );
    };
    let name = ServerName::try_from(host.clone());
    let name =
        name.map_err(|_| format!("{host} cannot be in a certificate: name the host otherwise"))?;
    let socket = TlsConnector::from(config).connect(name, socket).await;
    let socket = socket.map_err(|e| {
        format!("TLS was not agreed on ({e}): is it the port for TLS, and did the authority in ca sign a certificate for {host}?")
    })?;
    Ok(Box::new(socket))
}
