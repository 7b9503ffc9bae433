//! Finds the network address of a device among its properties, which the handlers of this repository set. Pure.
use std::collections::BTreeMap;

/// The properties of `zeroconf` and of `probe` with the address, each with the one with the port.
const ADDRESSES: [(&str, &str); 2] = [
    ("AKRI_ZEROCONF_DEVICE_ADDR", "AKRI_ZEROCONF_DEVICE_PORT"),
    ("PROBE_ADDRESS", "PROBE_PORT"),
];
/// The properties of `onvif` and `opcua` with the URL by which the node reaches the device.
const URLS: [&str; 2] = ["ONVIF_DEVICE_SERVICE_URL", "OPCUA_DISCOVERY_URL"];
/// The ports of URLs that have none.
const PORTS: [(&str, &str); 3] = [("http", "80"), ("https", "443"), ("opc.tcp", "4840")];

/// Returns the address of a device as `host:port`; an IPv6 address is in brackets. A device whose properties have no port has only
/// the host, and one that is not reached by the network has none.
pub fn address(properties: &BTreeMap<String, String>) -> Option<String> {
    let mut addresses = ADDRESSES.iter();
    let Some((address, port)) =
        addresses.find_map(|(name, port)| Some((properties.get(*name)?, port)))
    else {
        return URLS.iter().find_map(|name| of_url(properties.get(*name)?));
    };
    let host = if address.contains(':') {
        format!("[{address}]")
    } else {
        address.clone()
    };
    Some(match properties.get(*port) {
        Some(port) => format!("{host}:{port}"),
        None => host,
    })
}

fn of_url(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit('@').next().filter(|h| !h.is_empty())?;
    // The colons of an IPv6 address stand before the bracket.
    let has_port = host.rsplit(']').next()?.contains(':');
    let port = PORTS.iter().find(|(of, _)| *of == scheme);
    Some(match port.filter(|_| !has_port) {
        Some((_, port)) => format!("{host}:{port}"),
        None => host.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_handler_that_reaches_devices_by_the_network_gives_host_and_port() {
        let (address_name, port_name) = ADDRESSES[0];
        let service = |address: &'static str| vec![(address_name, address), (port_name, "80")];
        for (properties, expected) in [
            (service("10.0.0.7"), Some("10.0.0.7:80")),
            (service("2001:db8::1"), Some("[2001:db8::1]:80")),
            (service("fe80::1%eth0"), Some("[fe80::1%eth0]:80")),
            (vec![(address_name, "10.0.0.7")], Some("10.0.0.7")),
            (
                vec![("PROBE_ADDRESS", "10.1.2.3"), ("PROBE_PORT", "502")],
                Some("10.1.2.3:502"),
            ),
            (
                vec![(URLS[0], "http://10.0.0.7/onvif/device_service")],
                Some("10.0.0.7:80"),
            ),
            (
                vec![(URLS[0], "https://[fd00::1]/x:y")],
                Some("[fd00::1]:443"),
            ),
            (vec![(URLS[0], "http://u:p@cam:8080")], Some("cam:8080")),
            (vec![(URLS[1], "opc.tcp://press/")], Some("press:4840")),
            (
                vec![(URLS[1], "opc.tcp://10.1.2.3:4841/")],
                Some("10.1.2.3:4841"),
            ),
            (vec![(URLS[1], "press")], None),
            (vec![("UDEV_DEVNODE", "/dev/ttyUSB0")], None),
        ] {
            let named = properties
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
            assert_eq!(
                address(&named.collect()).as_deref(),
                expected,
                "{properties:?}"
            );
        }
    }
}
