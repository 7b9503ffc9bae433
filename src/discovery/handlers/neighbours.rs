//! Reads the texts of MAC addresses, and of the node's table of neighbours, which has those of its networks. Pure.
use petiole_base::collect::CollectMap as _;
use std::{collections::BTreeMap, net::IpAddr};

/// Returns the MAC addresses of all neighbours in the table.
pub(super) fn macs(table: &str) -> BTreeMap<IpAddr, String> {
    let lines = table.lines().skip(1).map(|line| line.split_whitespace());
    let known = lines.filter_map(|mut words| {
        let [ip, _kind, flags, mac] = [words.next()?, words.next()?, words.next()?, words.next()?];
        // An entry whose address is not known has no flags.
        let is_known = flags != "0x0" && mac != "00:00:00:00:00:00";
        is_known.then_some((ip.parse().ok()?, normalized_mac(mac)))
    });
    known.collect_map()
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
        let expected = ("10.0.0.7".parse().unwrap(), "00:11:22:aa:bb:cc".to_owned());
        assert_eq!(macs(table), BTreeMap::from([expected]));
        assert!(macs("").is_empty());
    }
}
