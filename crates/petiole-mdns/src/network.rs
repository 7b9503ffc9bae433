//! Owns the sockets of the querier: one for each interface and address family, on UDP port 5353 beside other programs.
use super::{
    host_links::{address_of, watch_interfaces},
    link::{Family, Link},
    querier::{Outgoing, PACKET_STEPS, Packet},
    turns::{SocketKey, in_turn},
};
use ipnet::IpNet;
use nix::{
    cmsg_space, libc,
    sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt},
};
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Socket, Type};
use std::{
    collections::BTreeMap,
    future::poll_fn,
    io::{self, IoSliceMut},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6},
    os::fd::AsRawFd as _,
    task::Poll,
};
use tokio::{io::Interest, net::UdpSocket};

const PORT: u16 = 5353;
const GROUP_V4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 251);
const GROUP_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xfb);
/// The hop limit (RFC 6762 11).
const HOP_LIMIT: u32 = 255;
/// The largest packet, in bytes (RFC 6762 17). Beyond it: the end is cut off, and the packet is ignored.
const PACKET_MAX: usize = 9000;
/// The receive buffer of a socket in the kernel, in bytes. The kernel may allow less.
const RECEIVE_BUFFER: usize = 1 << 20;

/// The open sockets.
pub(super) struct Network {
    sockets: BTreeMap<SocketKey, Open>,
    /// The socket that packets were received from last.
    last_read: Option<SocketKey>,
    /// Becomes readable when interfaces change.
    changes: Option<UdpSocket>,
    buffer: Vec<u8>,
}

struct Open {
    socket: UdpSocket,
    group: SocketAddr,
    /// The address that packets are sent from.
    address: IpAddr,
    /// The number of packets that were dropped because the buffer was full.
    lost: u32,
}

impl Network {
    pub(super) fn new() -> Self {
        let changes = watch_interfaces();
        if let Err(error) = &changes {
            tracing::debug!(%error, "the kernel does not notify of changed interfaces; they are read every 2 s");
        }
        Self {
            sockets: BTreeMap::new(),
            last_read: None,
            changes: changes.ok(),
            buffer: vec![0; PACKET_MAX],
        }
    }

    /// Returns whether the kernel notifies of changed interfaces.
    pub(super) fn is_notified(&self) -> bool {
        self.changes.is_some()
    }

    /// Opens and closes sockets for these interfaces. Returns the interfaces that can be used.
    pub(super) fn use_links(&mut self, links: Vec<Link>) -> Vec<Link> {
        let address = |link: &Link, family| {
            let mut addresses = link.addresses.iter().map(IpNet::addr);
            addresses.find(|ip| Family::of(*ip) == family)
        };
        self.sockets.retain(|(index, family), open| {
            let link = links.iter().find(|link| link.index == *index);
            link.and_then(|link| address(link, *family)) == Some(open.address)
        });
        for link in &links {
            for family in [Family::V4, Family::V6] {
                let key = (link.index, family);
                let Some(address) = address(link, family) else {
                    continue;
                };
                if self.sockets.contains_key(&key) {
                    continue;
                }
                match Open::new(link, address) {
                    Ok(open) => drop(self.sockets.insert(key, open)),
                    Err(error) => {
                        tracing::debug!(interface = link.name, %address, %error, "mDNS cannot use an address");
                    }
                }
            }
        }
        let is_open = |link: &Link, ip: IpAddr| {
            let key = (link.index, Family::of(ip));
            self.sockets.contains_key(&key)
        };
        let used = links.into_iter().filter_map(|mut link| {
            let all = std::mem::take(&mut link.addresses);
            link.addresses = all
                .into_iter()
                .filter(|n| is_open(&link, n.addr()))
                .collect();
            (!link.addresses.is_empty()).then_some(link)
        });
        used.collect()
    }

    pub(super) fn send(&self, packet: &Outgoing) {
        let Some(open) = self.sockets.get(&(packet.link, packet.family)) else {
            return;
        };
        let sent = open.socket.try_send_to(&packet.bytes, open.group);
        if let Err(error) = sent {
            tracing::debug!(address = %open.address, %error, "an mDNS query was not sent");
        }
    }

    /// Waits for a packet. Safe to cancel.
    pub(super) async fn readable(&self) {
        poll_fn(|context| {
            let mut is_ready = false;
            for open in self.sockets.values() {
                is_ready |= open.socket.poll_recv_ready(context).is_ready();
            }
            if is_ready {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    /// Passes received packets to `take`, which returns the steps that each has taken, until these are `most`. The next
    /// call begins with the socket after the last one, so that many packets on one interface do not keep the others from
    /// being read.
    pub(super) fn receive(&mut self, most: usize, mut take: impl FnMut(&Packet<'_>) -> usize) {
        let mut steps = 0;
        for key in in_turn(self.sockets.keys(), self.last_read) {
            let Some(open) = self.sockets.get_mut(&key).filter(|_| steps < most) else {
                break;
            };
            self.last_read = Some(key);
            while steps < most {
                let socket = &open.socket;
                let received =
                    socket.try_io(Interest::READABLE, || receive(socket, &mut self.buffer));
                match received {
                    // The kernel gives a packet for the group to each IPv6 socket in it, of any interface.
                    Ok(Some(header))
                        if key.1 == Family::V6 && header.is_multicast && header.link != key.0 =>
                    {
                        steps += PACKET_STEPS;
                    }
                    Ok(Some(header)) => {
                        open.lost = open.lost.max(header.lost);
                        let bytes = &self.buffer[..header.length];
                        steps += take(&Packet {
                            link: header.link,
                            family: key.1,
                            source: header.source,
                            is_multicast: header.is_multicast,
                            hop_limit: header.hop_limit,
                            bytes,
                        });
                    }
                    Ok(None) => steps += PACKET_STEPS,
                    Err(_) => break,
                }
            }
        }
    }

    /// Returns the number of packets of each interface that were dropped because the buffer was full.
    pub(super) fn lost(&self) -> BTreeMap<u32, u64> {
        let mut lost: BTreeMap<u32, u64> = BTreeMap::new();
        for ((index, _), open) in &self.sockets {
            *lost.entry(*index).or_default() += u64::from(open.lost);
        }
        lost
    }

    /// Waits until interfaces may have changed. Safe to cancel.
    pub(super) async fn changed(&self) {
        let Some(changes) = &self.changes else {
            return std::future::pending().await;
        };
        if changes.readable().await.is_ok() {
            let mut buffer = [0; 8192];
            // Too many notifications at once are an error, which counts as a notification.
            while !is_drained(&changes.try_recv(&mut buffer)) {}
        }
    }
}

fn is_drained(received: &io::Result<usize>) -> bool {
    match received {
        Ok(length) => *length == 0,
        Err(error) => error.raw_os_error() != Some(libc::ENOBUFS),
    }
}

impl Open {
    fn new(link: &Link, address: IpAddr) -> io::Result<Self> {
        let (socket, group) = match address {
            IpAddr::V4(v4) => (
                open_v4(link.index, v4)?,
                SocketAddrV4::new(GROUP_V4, PORT).into(),
            ),
            IpAddr::V6(_) => {
                let group = SocketAddrV6::new(GROUP_V6, PORT, 0, link.index);
                (open_v6(link.index)?, group.into())
            }
        };
        Ok(Self {
            socket: UdpSocket::from_std(socket.into())?,
            group,
            address,
            lost: 0,
        })
    }
}

fn shared(domain: Domain) -> io::Result<Socket> {
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    // Other programs of this machine use the port too (RFC 6762 15).
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
    setsockopt(&socket, sockopt::RxqOvfl, &1)?;
    Ok(socket)
}

fn open_v4(index: u32, address: Ipv4Addr) -> io::Result<Socket> {
    let socket = shared(Domain::IPV4)?;
    setsockopt(&socket, sockopt::Ipv4PacketInfo, &true)?;
    setsockopt(&socket, sockopt::Ipv4RecvTtl, &true)?;
    // Without this option each socket would receive the packets of all interfaces.
    socket.set_multicast_all_v4(false)?;
    socket.bind(&SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, PORT).into())?;
    socket.join_multicast_v4_n(&GROUP_V4, &InterfaceIndexOrAddress::Index(index))?;
    socket.set_multicast_if_v4(&address)?;
    socket.set_multicast_ttl_v4(HOP_LIMIT)?;
    // The services of this machine are found too.
    socket.set_multicast_loop_v4(true)?;
    Ok(socket)
}

fn open_v6(index: u32) -> io::Result<Socket> {
    let socket = shared(Domain::IPV6)?;
    socket.set_only_v6(true)?;
    setsockopt(&socket, sockopt::Ipv6RecvPacketInfo, &true)?;
    setsockopt(&socket, sockopt::Ipv6RecvHopLimit, &true)?;
    socket.set_multicast_all_v6(false)?;
    socket.bind(&SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, PORT, 0, 0).into())?;
    socket.join_multicast_v6(&GROUP_V6, index)?;
    socket.set_multicast_if_v6(index)?;
    socket.set_multicast_hops_v6(HOP_LIMIT)?;
    socket.set_multicast_loop_v6(true)?;
    Ok(socket)
}

/// Returns whether no other program of this machine listens on the port. Such a program may receive the answers that
/// are sent by unicast.
pub(super) fn is_alone() -> bool {
    let bind = |domain, any: SocketAddr| {
        let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
        if domain == Domain::IPV6 {
            socket.set_only_v6(true)?;
        }
        socket.bind(&any.into())
    };
    let is_taken =
        |bound: io::Result<()>| bound.is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse);
    let v4 = bind(
        Domain::IPV4,
        SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT)),
    );
    let v6 = bind(
        Domain::IPV6,
        SocketAddr::from((Ipv6Addr::UNSPECIFIED, PORT)),
    );
    !is_taken(v4) && !is_taken(v6)
}

struct Header {
    length: usize,
    link: u32,
    source: SocketAddr,
    is_multicast: bool,
    hop_limit: u8,
    /// The packets that were lost since the socket was opened.
    lost: u32,
}

/// Receives a packet. Returns `None` for a packet that cannot be used.
fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<Option<Header>> {
    let mut slices = [IoSliceMut::new(buffer)];
    let mut space = cmsg_space!(libc::in6_pktinfo, i32, u32);
    let message = recvmsg::<SockaddrStorage>(
        socket.as_raw_fd(),
        &mut slices,
        Some(&mut space),
        MsgFlags::MSG_DONTWAIT,
    )?;
    if message.flags.contains(MsgFlags::MSG_TRUNC) {
        return Ok(None);
    }
    let Some(source) = message.address.as_ref().and_then(address_of) else {
        return Ok(None);
    };
    let (mut arrival, mut hops, mut lost) = (None, 0, 0);
    for control in message.cmsgs()? {
        if let ControlMessageOwned::Ipv4PacketInfo(info) = control {
            let to = Ipv4Addr::from(u32::from_be(info.ipi_addr.s_addr));
            arrival = Some((u32::try_from(info.ipi_ifindex).ok(), to == GROUP_V4));
        } else if let ControlMessageOwned::Ipv6PacketInfo(info) = control {
            let to = Ipv6Addr::from(info.ipi6_addr.s6_addr);
            arrival = Some((Some(info.ipi6_ifindex), to == GROUP_V6));
        } else if let ControlMessageOwned::Ipv4Ttl(count)
        | ControlMessageOwned::Ipv6HopLimit(count) = control
        {
            hops = count;
        } else if let ControlMessageOwned::RxqOvfl(count) = control {
            lost = count;
        }
    }
    let Some((Some(link), is_multicast)) = arrival else {
        return Ok(None);
    };
    Ok(Some(Header {
        length: message.bytes,
        link,
        source,
        is_multicast,
        hop_limit: u8::try_from(hops).unwrap_or_default(),
        lost,
    }))
}
