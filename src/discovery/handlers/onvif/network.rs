//! Owns the sockets of a discovery. Probes go out from ports of their own, to which cameras answer. Hello and Bye come to port
//! 3702; the sockets for these have the address of the group, so that they take nothing from other programs on the port.
use petiole_base::collect::CollectMap as _;
use petiole_mdns::Link;
use petiole_onvif::{Family, Outgoing, To};
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Socket, Type};
use std::{
    collections::{BTreeMap, BTreeSet},
    future::poll_fn,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6},
    task::Poll,
    time::Duration,
};
use tokio::{net::UdpSocket, time::timeout};

const PORT: u16 = 3702;
const GROUP_V4: Ipv4Addr = Ipv4Addr::new(239, 255, 255, 250);
const GROUP_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xc);
/// The receive buffer of a socket in the kernel, in bytes. Many cameras answer at the same time.
const RECEIVE_BUFFER: usize = 1 << 20;
/// The largest datagram, in bytes. Beyond it: it is ignored.
const DATAGRAM_MAX: usize = 65_536;
/// The most datagrams that are read before other tasks have their turn.
const AT_ONCE: usize = 64;
/// The most bytes that are read before other tasks have their turn.
const BYTES_AT_ONCE: usize = 128 * 1024;

/// The longest time that a probe waits for room in a socket.
const SENT_WITHIN: Duration = Duration::from_millis(10);

/// The open sockets.
pub(super) struct Network {
    /// The sockets of each interface and family: the one that sends, and the one that listens for Hello and Bye.
    paths: BTreeMap<(u32, Family), Path>,
    /// The sockets for single addresses.
    unicast: [Option<UdpSocket>; 2],
    buffer: Vec<u8>,
}

struct Path {
    address: IpAddr,
    sender: UdpSocket,
    listener: Option<UdpSocket>,
}

impl Network {
    pub(super) fn new() -> Self {
        let any = |ip: IpAddr| {
            let socket = socket(ip, SocketAddr::new(ip, 0));
            socket
                .and_then(|socket| UdpSocket::from_std(socket.into()))
                .ok()
        };
        Self {
            paths: BTreeMap::new(),
            unicast: [
                any(Ipv4Addr::UNSPECIFIED.into()),
                any(Ipv6Addr::UNSPECIFIED.into()),
            ],
            buffer: vec![0; DATAGRAM_MAX],
        }
    }

    /// Opens and closes sockets for these interfaces. Returns the paths that can be used.
    pub(super) fn use_links(&mut self, links: &[Link]) -> BTreeSet<(u32, Family)> {
        let wanted = links.iter().flat_map(|link| {
            let address = |is_it: fn(&IpAddr) -> bool| {
                let mut addresses = link.addresses.iter().map(|net| net.addr());
                addresses.find(is_it)
            };
            let both = [
                (Family::V4, address(IpAddr::is_ipv4)),
                (
                    Family::V6,
                    address(|ip| matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())),
                ),
            ];
            let known = both
                .into_iter()
                .filter_map(|(family, ip)| Some((family, ip?)));
            known.map(|(family, ip)| ((link.index, family), ip))
        });
        let wanted: BTreeMap<(u32, Family), IpAddr> = wanted.collect_map();
        self.paths
            .retain(|key, path| wanted.get(key) == Some(&path.address));
        for (key, address) in wanted {
            if let Some(path) = self.paths.get_mut(&key) {
                path.listen(key.0);
                continue;
            }
            match Path::new(key.0, address) {
                Ok(path) => drop(self.paths.insert(key, path)),
                Err(error) => {
                    tracing::debug!(%address, %error, "WS-Discovery cannot use an address")
                }
            }
        }
        self.paths.keys().copied().collect()
    }

    /// Sends a probe. A socket that has just been made is not known to be writable, and one that is full has no room soon.
    pub(super) async fn send(&self, probe: &Outgoing) {
        let (socket, to) = match probe.to {
            To::Group { link, family } => {
                let group: SocketAddr = match family {
                    Family::V4 => (GROUP_V4, PORT).into(),
                    Family::V6 => SocketAddrV6::new(GROUP_V6, PORT, 0, link).into(),
                };
                (
                    self.paths.get(&(link, family)).map(|path| &path.sender),
                    group,
                )
            }
            To::Address(address) => (
                self.unicast[usize::from(address.is_ipv6())].as_ref(),
                address,
            ),
        };
        let Some(socket) = socket else {
            return;
        };
        let sent = timeout(SENT_WITHIN, socket.send_to(&probe.bytes, to)).await;
        if let Err(error) = sent.unwrap_or_else(|late| Err(late.into())) {
            tracing::debug!(%to, %error, "a probe was not sent");
        }
    }

    fn sockets(&self) -> impl Iterator<Item = &UdpSocket> {
        let paths = self.paths.values();
        let paths = paths.flat_map(|path| [Some(&path.sender), path.listener.as_ref()]);
        paths
            .chain(self.unicast.iter().map(Option::as_ref))
            .flatten()
    }

    /// Waits for a datagram. Safe to cancel.
    pub(super) async fn readable(&self) {
        poll_fn(|context| {
            let mut is_ready = false;
            for socket in self.sockets() {
                is_ready |= socket.poll_recv_ready(context).is_ready();
            }
            if is_ready {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    /// Passes received datagrams to `take`, up to a bound. No socket takes the turns of the others.
    pub(super) fn receive(&mut self, mut take: impl FnMut(SocketAddr, &[u8])) {
        let mut buffer = std::mem::take(&mut self.buffer);
        let (mut count, mut bytes) = (0, 0);
        let mut is_drained = false;
        while !is_drained && count < AT_ONCE && bytes < BYTES_AT_ONCE {
            is_drained = true;
            for socket in self.sockets() {
                if let Ok((length, source)) = socket.try_recv_from(&mut buffer) {
                    take(source, &buffer[..length]);
                    is_drained = false;
                    count += 1;
                    bytes += length;
                }
            }
        }
        self.buffer = buffer;
    }
}

impl Path {
    fn new(link: u32, address: IpAddr) -> io::Result<Self> {
        let from = match address {
            IpAddr::V4(ip) => SocketAddr::from((ip, 0)),
            IpAddr::V6(ip) => SocketAddrV6::new(ip, 0, 0, link).into(),
        };
        let sender = socket(address, from)?;
        match address {
            IpAddr::V4(ip) => {
                sender.set_multicast_if_v4(&ip)?;
                sender.set_multicast_ttl_v4(1)?;
            }
            IpAddr::V6(_) => {
                sender.set_multicast_if_v6(link)?;
                sender.set_multicast_hops_v6(1)?;
            }
        }
        let mut path = Self {
            address,
            sender: UdpSocket::from_std(sender.into())?,
            listener: None,
        };
        path.listen(link);
        Ok(path)
    }

    /// Opens the listener if it is missing. The program that had the port may have ended since the last attempt.
    fn listen(&mut self, link: u32) {
        if self.listener.is_some() {
            return;
        }
        match listener(link, self.address) {
            Ok(listener) => self.listener = Some(listener),
            Err(error) => {
                tracing::debug!(address = %self.address, %error, "Hello and Bye are not heard: UDP port 3702 cannot be used")
            }
        }
    }
}

fn socket(family: IpAddr, from: SocketAddr) -> io::Result<Socket> {
    let domain = if family.is_ipv4() {
        Domain::IPV4
    } else {
        Domain::IPV6
    };
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
    if from.port() != 0 {
        socket.set_reuse_address(true)?;
    }
    if family.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&from.into())?;
    Ok(socket)
}

fn listener(link: u32, address: IpAddr) -> io::Result<UdpSocket> {
    let socket = match address {
        IpAddr::V4(_) => {
            let socket = socket(address, (GROUP_V4, PORT).into())?;
            socket.set_multicast_all_v4(false)?;
            socket.join_multicast_v4_n(&GROUP_V4, &InterfaceIndexOrAddress::Index(link))?;
            socket
        }
        IpAddr::V6(_) => {
            let socket = socket(address, SocketAddrV6::new(GROUP_V6, PORT, 0, link).into())?;
            socket.join_multicast_v6(&GROUP_V6, link)?;
            socket
        }
    };
    UdpSocket::from_std(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_listener_that_could_not_be_opened_is_opened_when_the_interfaces_are_read_again() {
        let mut links = petiole_mdns::links().unwrap();
        links.retain(|link| link.is_loopback);
        let mut network = Network::new();
        assert!(!network.use_links(&links).is_empty());
        // As if another program had the port.
        for path in network.paths.values_mut() {
            assert!(path.listener.take().is_some());
        }
        network.use_links(&links);
        let mut paths = network.paths.values();
        assert!(paths.all(|path| path.listener.is_some()));
    }
}
