//! Writes the problems of single devices and of several. Pure.
use crate::model::limits::cut;
use std::{fmt::Display, net::IpAddr};

/// The longest problem of one server or host, in bytes. Beyond it: the end is cut off.
const PROBLEM_MAX: usize = 500;

/// The problem of a handler that browses by multicast DNS.
pub(super) const NO_MDNS_INTERFACE: &str = "no network interface to browse mDNS on: every interface is down or left out by `interfaces`, or another program holds UDP port 5353 for itself";

/// Returns the problem of a host that announces more than its share by multicast DNS.
pub(super) fn share_used_up(host: IpAddr) -> String {
    format!(
        "services of {host} are left out: this host has used up its share, which is half of the services, records and bytes that the other hosts leave; check what it announces"
    )
}

/// Returns a problem that may have words of a server.
pub(super) fn problem(text: String) -> String {
    cut(text, PROBLEM_MAX)
}

/// Returns one problem of several devices, if there are some.
pub(super) fn such_as(
    count: usize,
    first: Option<impl Display>,
    what: &str,
    why: &str,
) -> Option<String> {
    first.map(|first| format!("{count} {what}, such as {first}: {why}"))
}
