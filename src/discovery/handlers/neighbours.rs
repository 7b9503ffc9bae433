//! Reads the node's table of neighbours, which knows the MAC addresses of its networks. Pure.
use std::net::IpAddr;

/// The file of the kernel with the table.
pub(super) const FILE: &str = "/proc/net/arp";
/// The most bytes of the table that are read. Beyond it: no MAC address is known from it.
pub(super) const FILE_MAX: u64 = 1 << 20;

/// Returns the MAC address of a neighbour.
pub(super) fn mac(table: &str, address: IpAddr) -> Option<String> {
    let mut lines = table.lines().skip(1).map(|line| line.split_whitespace());
    lines.find_map(|mut words| {
        let [ip, _kind, flags, mac] = [words.next()?, words.next()?, words.next()?, words.next()?];
        let is_it = ip.parse() == Ok(address);
        // An entry whose address is not known has no flags.
        let is_known = flags != "0x0" && mac != "00:00:00:00:00:00";
        (is_it && is_known).then(|| normalized_mac(mac))
    })
}

/// Returns a MAC address as `00:11:22:aa:bb:cc`.
pub(super) fn normalized_mac(text: &str) -> String {
    let digits: Vec<char> = text
        .chars()
        .filter(char::is_ascii_hexdigit)
        .map(|c| c.to_ascii_lowercase())
        .collect();
    let pairs: Vec<String> = digits.chunks(2).map(|pair| pair.iter().collect()).collect();
    pairs.join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_neighbour_has_the_address_of_its_line() {
        let table = "IP address       HW type     Flags       HW address            Mask     Device\n\
                     10.0.0.7         0x1         0x2         00:11:22:AA:bb:cc     *        eth0\n\
                     10.0.0.8         0x1         0x0         00:00:00:00:00:00     *        eth0\n\
                     nonsense\n";
        let of = |ip: &str| mac(table, ip.parse().unwrap());
        assert_eq!(of("10.0.0.7").as_deref(), Some("00:11:22:aa:bb:cc"));
        assert_eq!(of("10.0.0.8"), None);
        assert_eq!(of("10.0.0.9"), None);
        assert_eq!(mac("", "10.0.0.7".parse().unwrap()), None);
    }
}
