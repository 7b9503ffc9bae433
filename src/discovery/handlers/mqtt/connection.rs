//! Opens a connection to a broker, within a time limit. A failure names the step, and what to look at.
use super::{
    super::tcp::{self, Stream, Within},
    credentials::Credentials,
    details::Broker,
};
use crate::model::networks::is_of_cloud;
use petiole_mqtt::limits::ANSWER_WITHIN;
use std::net::{IpAddr, SocketAddr};
use tokio_rustls::{TlsConnector, rustls::pki_types::ServerName};

/// Connects. The error is about the broker, which the caller names.
pub(super) async fn connect(
    broker: &Broker,
    credentials: &Credentials,
) -> Result<Box<dyn Stream>, String> {
    let Broker { is_tls, host, port } = broker;
    let within = Within::new(ANSWER_WITHIN);
    let mut addresses = tcp::look_up(host, *port, within).await?;
    addresses.retain(may_be_a_broker);
    if addresses.is_empty() {
        return Err(format!(
            "{host} has no addresses but those of links (169.254.0.0/16, fe80::/10) and of clouds' own services: name another address"
        ));
    }
    let socket = tcp::connect(&addresses, "broker", within).await?;
    // What we send is small, and the broker waits for it.
    let set = socket.set_nodelay(true);
    set.map_err(|e| format!("the connection broke ({e}): look at the log of the broker"))?;
    if !is_tls {
        return Ok(Box::new(socket));
    }
    let Some(config) = credentials.tls.clone() else {
        return Err(
            "mqtts:// needs the certificate authority of the broker: name it as the discoveryProperty ca".to_owned(),
        );
    };
    let name = ServerName::try_from(host.clone());
    let name =
        name.map_err(|_| format!("{host} cannot be in a certificate: name the host otherwise"))?;
    let agreed = async {
        let agreed = TlsConnector::from(config).connect(name, socket).await;
        agreed.map_err(|e| {
            format!("TLS was not agreed on ({e}): is it the port for TLS, and did the authority in ca sign a certificate for {host}?")
        })
    };
    let late =
        |seconds| format!("TLS was not agreed on within {seconds} s: is it the port for TLS?");
    Ok(Box::new(within.step(agreed, late).await?))
}

fn may_be_a_broker(address: &SocketAddr) -> bool {
    let is_of_link = match address.ip().to_canonical() {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !is_of_link && !is_of_cloud(address.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_a_link_or_of_a_cloud_is_none_of_a_broker() {
        for (address, may_be) in [
            ("127.0.0.1:1883", true),
            ("10.1.2.3:1883", true),
            ("[fd00::7]:1883", true),
            ("169.254.169.254:80", false),
            ("[::ffff:169.254.169.254]:80", false),
            ("[fe80::1]:1883", false),
            ("100.100.100.200:80", false),
            ("168.63.129.16:80", false),
            ("[fd00:ec2::254]:80", false),
        ] {
            assert_eq!(
                may_be_a_broker(&address.parse().unwrap()),
                may_be,
                "{address}"
            );
        }
    }
}
