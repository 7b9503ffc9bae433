//! Asks one host, within time limits. A failure names the step, and what to look at.
use super::{
    super::{
        neighbour_table::NeighbourTable,
        tcp::{self, Stream, Within},
    },
    details::{Details, Target},
    networks::{Networks, names},
    plan::Answer,
};
use crate::model::networks::Range;
use petiole_probe::{Facts, Inquiry, Question, Turn, certificate};
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UdpSocket,
    time::timeout,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{ClientConfig, pki_types::ServerName},
};

/// The time for each step of one host but the connection.
const LIMIT: Duration = Duration::from_secs(5);
/// The most addresses of a name that are tried. Beyond it: the others are not asked.
const ADDRESSES_MAX: usize = 4;
/// The time for a connection to an address, in which the kernel sends a second packet, and for an answer to each of two datagrams.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);
const DATAGRAM_LIMIT: Duration = Duration::from_secs(1);
const DATAGRAMS: usize = 2;
/// The community that is no secret.
pub(super) const PUBLIC: &str = "public";
const READ_BYTES: usize = 4096;

/// What a discovery asks, and as whom.
pub(super) struct Settings {
    pub(super) details: Arc<Details>,
    pub(super) networks: Networks,
    /// The networks that must be named to be asked.
    pub(super) special: Vec<Range>,
    pub(super) tls: Arc<ClientConfig>,
    pub(super) neighbours: Arc<NeighbourTable>,
}

impl Settings {
    /// Returns whether an address of `hosts` may be asked.
    pub(super) fn may_ask(&self, ip: IpAddr) -> bool {
        names(&self.details.hosts, ip, &self.special) && self.networks.allow(ip, &self.special)
    }

    /// Returns the addresses of a name that may be asked. Whoever answers for a name chooses its addresses: only entries of `hosts`
    /// name those of special networks.
    fn of_name(&self, found: &[SocketAddr]) -> Result<Vec<SocketAddr>, String> {
        let may = |ip: IpAddr| {
            let is_special = self.special.iter().any(|special| special.contains(ip));
            self.may_ask(ip) || !is_special && self.networks.allow(ip, &self.special)
        };
        let found = found
            .iter()
            .map(|a| SocketAddr::new(a.ip().to_canonical(), a.port()));
        let mut allowed: Vec<_> = found.clone().filter(|address| may(address.ip())).collect();
        if allowed.is_empty() {
            return Err(format!(
                "its addresses ({}) may not be probed from this node: name one of them in `hosts`, or have its network allowed (the chart's probe.networks)",
                found
                    .clone()
                    .next()
                    .map_or_else(|| "none".to_owned(), |address| address.ip().to_string())
            ));
        }
        // DNS servers give them in turns: the address of the device would be another in each round, and on each node.
        allowed.sort_unstable();
        allowed.truncate(ADDRESSES_MAX);
        Ok(allowed)
    }
}

/// Returns the addresses of a host to ask: the `known` one alone while it has that, because one packet that is lost is no move.
fn tried(known: Option<SocketAddr>, found: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let known = known.filter(|known| found.contains(known));
    known.map_or(found, |known| vec![known])
}

/// Asks a host, which has answered from the `known` address. The error is about that host, which the caller names.
pub(super) async fn ask(
    target: &Target,
    known: Option<SocketAddr>,
    settings: &Settings,
) -> Result<Answer, String> {
    let port = settings.details.port;
    let addresses = match target {
        Target::Address(address) => vec![(*address, port).into()],
        Target::Name(name) => {
            let found = tcp::look_up(name, port, Within::new(LIMIT)).await?;
            tried(known, settings.of_name(&found)?)
        }
    };
    let (address, facts) = match &settings.details.question {
        Some(question @ Question::Snmp(community)) => {
            let (address, facts) = by_datagrams(&addresses, question).await?;
            // A host that says what it was sent would make a Secret a property.
            let facts = match community.as_str() {
                PUBLIC => facts,
                secret => facts.without(secret),
            };
            (address, facts)
        }
        question => by_connection(target, &addresses, question.as_ref(), settings).await?,
    };
    Ok(Answer {
        address,
        mac: settings.neighbours.mac(address.ip()).await,
        facts,
    })
}

async fn by_connection(
    target: &Target,
    addresses: &[SocketAddr],
    question: Option<&Question>,
    settings: &Settings,
) -> Result<(SocketAddr, Facts), String> {
    let tries = u32::try_from(addresses.len()).unwrap_or(1);
    let within = Within::new(CONNECT_LIMIT * tries);
    let socket = tcp::connect(addresses, "host", within).await?;
    let address = socket.peer_addr().map_err(|e| e.to_string())?;
    let mut stream: Box<dyn Stream> = Box::new(socket);
    let mut facts = Facts::default();
    if settings.details.is_tls {
        let name = match target {
            Target::Address(address) => ServerName::from(*address),
            Target::Name(name) => ServerName::try_from(name.clone())
                .map_err(|_| "it cannot be in a certificate: name the address instead")?,
        };
        let connector = TlsConnector::from(settings.tls.clone());
        let agreed = async {
            let agreed = connector.connect(name, stream).await;
            agreed.map_err(|e| format!("TLS was not agreed on ({e}): is it the port for TLS?"))
        };
        let tls = Within::new(LIMIT).step(agreed, late("TLS")).await?;
        let shown = tls.get_ref().1.peer_certificates().and_then(<[_]>::first);
        facts = shown.map(|der| certificate(der)).unwrap_or_default();
        stream = Box::new(tls);
    }
    let Some(question) = question else {
        return Ok((address, facts));
    };
    let authority = format!("{target}:{}", address.port());
    let talked = talk(&mut *stream, question, &authority);
    let said = Within::new(LIMIT).step(talked, late("the question"));
    Ok((address, said.await?.and(facts)))
}

async fn talk(
    stream: &mut dyn Stream,
    question: &Question,
    authority: &str,
) -> Result<Facts, String> {
    let broken = |e| format!("the connection broke at the question ({e}): {REMEDY}");
    let unfit = |failure| format!("{failure}: {REMEDY}");
    let (mut inquiry, mut request) = Inquiry::start(question, authority, 0);
    let mut bytes = vec![0; READ_BYTES];
    loop {
        stream.write_all(&request).await.map_err(broken)?;
        stream.flush().await.map_err(broken)?;
        request.clear();
        let turn = match stream.read(&mut bytes).await.map_err(broken)? {
            0 => inquiry.hung_up().map(Turn::Done),
            count => inquiry.receive(&bytes[..count]),
        };
        match turn.map_err(unfit)? {
            Turn::More => {}
            Turn::Send(more) => request = more,
            Turn::Done(facts) => return Ok(facts),
        }
    }
}

/// Asks one address after the other. Returns the first that answers.
async fn by_datagrams(
    addresses: &[SocketAddr],
    question: &Question,
) -> Result<(SocketAddr, Facts), String> {
    let mut failure = "it has no address".to_owned();
    for address in addresses {
        match by_datagrams_to(*address, question).await {
            Ok(facts) => return Ok((*address, facts)),
            Err(why) => failure = why,
        }
    }
    Err(failure)
}

async fn by_datagrams_to(address: SocketAddr, question: &Question) -> Result<Facts, String> {
    let broken = |e| format!("no answer ({e}): {REMEDY}");
    let any: IpAddr = match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await.map_err(broken)?;
    socket.connect(address).await.map_err(broken)?;
    let (mut inquiry, request) = Inquiry::start(question, "", fastrand::u32(..=i32::MAX as u32));
    let mut bytes = vec![0; READ_BYTES];
    for _ in 0..DATAGRAMS {
        socket.send(&request).await.map_err(broken)?;
        let heard = timeout(DATAGRAM_LIMIT, async {
            loop {
                let count = socket.recv(&mut bytes).await.map_err(broken)?;
                match inquiry.receive(&bytes[..count]) {
                    Ok(Turn::Done(facts)) => return Ok(facts),
                    Ok(Turn::More | Turn::Send(_)) => {}
                    Err(failure) => return Err(format!("{failure}: {REMEDY}")),
                }
            }
        });
        if let Ok(heard) = heard.await {
            return heard;
        }
    }
    Err(format!(
        "no answer to SNMP within {} s: is the community right (the discoveryProperty community), and does the host allow this node?",
        DATAGRAMS as u64 * DATAGRAM_LIMIT.as_secs()
    ))
}

const REMEDY: &str = "is it the port for what `ask` names?";

fn late(step: &str) -> impl Fn(u64) -> String {
    move |seconds| format!("no whole answer to {step} within {seconds} s: {REMEDY}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_stays_at_its_address_as_long_as_its_name_has_it() {
        let [a, b] = ["10.0.0.1:1", "10.0.0.2:1"].map(|text| text.parse().unwrap());
        assert_eq!(tried(None, vec![a, b]), [a, b]);
        assert_eq!(tried(Some(b), vec![a, b]), [b]);
        assert_eq!(tried(Some(b), vec![a]), [a]);
    }
}
