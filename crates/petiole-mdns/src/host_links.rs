//! Reads the interfaces of this machine from the kernel: again at each notification, whose contents are not read.
use super::link::Link;
use ipnet::IpNet;
use nix::{
    ifaddrs::getifaddrs,
    libc,
    net::if_::{InterfaceFlags, if_nametoindex},
    sys::socket::{
        AddressFamily, NetlinkAddr, SockFlag, SockProtocol, SockType, SockaddrStorage, bind, socket,
    },
};
use std::{
    collections::BTreeMap,
    io,
    net::{SocketAddr, SocketAddrV4, SocketAddrV6},
    os::fd::AsRawFd as _,
};
use tokio::net::UdpSocket;

pub(super) fn address_of(storage: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = storage
        .as_sockaddr_in()
        .map(|sin| SocketAddrV4::from(*sin).into());
    let v6 = || {
        let v6 = storage.as_sockaddr_in6();
        v6.map(|sin6| SocketAddrV6::from(*sin6).into())
    };
    v4.or_else(v6)
}

/// Opens a netlink socket. Its type is that of a UDP socket, because only its readiness is used.
pub(super) fn watch_interfaces() -> io::Result<UdpSocket> {
    let fd = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkRoute,
    )?;
    let groups = libc::RTMGRP_LINK | libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR;
    let groups = u32::try_from(groups).unwrap_or_default();
    bind(fd.as_raw_fd(), &NetlinkAddr::new(0, groups))?;
    UdpSocket::from_std(fd.into())
}

/// The interfaces that are up and can multicast, with their addresses. Point-to-point interfaces are left out: a tunnel
/// leads to no LAN.
pub fn links() -> io::Result<Vec<Link>> {
    let mut links: BTreeMap<u32, Link> = BTreeMap::new();
    for found in getifaddrs()? {
        let has = |flag| found.flags.contains(flag);
        let is_loopback = has(InterfaceFlags::IFF_LOOPBACK);
        let is_up = has(InterfaceFlags::IFF_UP) && has(InterfaceFlags::IFF_RUNNING);
        let can = is_loopback
            || (has(InterfaceFlags::IFF_MULTICAST) && !has(InterfaceFlags::IFF_POINTOPOINT));
        let ip = |storage: &Option<SockaddrStorage>| storage.as_ref().and_then(address_of);
        let (Some(address), Some(mask), true) =
            (ip(&found.address), ip(&found.netmask), is_up && can)
        else {
            continue;
        };
        let Ok(network) = IpNet::with_netmask(address.ip(), mask.ip()) else {
            continue;
        };
        let Ok(index) = if_nametoindex(found.interface_name.as_str()) else {
            continue; // It has just gone.
        };
        let link = links.entry(index).or_insert_with(|| Link {
            index,
            name: found.interface_name.clone(),
            addresses: vec![],
            is_loopback,
        });
        link.addresses.push(network);
    }
    Ok(links.into_values().collect())
}
