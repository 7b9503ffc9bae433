//! Finds the address at which a server is reached that another one tells of. Pure.
use crate::url::EndpointUrl;
use std::net::IpAddr;

/// Why there is no address to offer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unoffered {
    /// This host must be looked up first.
    Lookup(String),
    /// It is no address of a server.
    Bad(String),
}

/// Returns the address at which this node reaches a server that `source` tells of: the one that it gives; or, where this node does
/// not know its host, or where its host means each machine itself, the same port and path at the host that was asked.
pub(crate) fn offered_url(
    advertised: &str,
    source: &EndpointUrl,
    knows: &dyn Fn(&str) -> Option<bool>,
) -> Result<EndpointUrl, Unoffered> {
    let url: EndpointUrl = match advertised.parse() {
        Ok(url) => url,
        Err(why) => return Err(Unoffered::Bad(format!("{why}"))),
    };
    let is_any = |ip: IpAddr| ip.is_unspecified();
    let address = url.host().parse::<IpAddr>().ok();
    let is_reachable = if url.host() == source.host() {
        true
    } else if address.is_some_and(is_any) || url.is_loopback() && !source.is_loopback() {
        false
    } else if address.is_some() || url.is_loopback() {
        true
    } else {
        knows(url.host()).ok_or_else(|| Unoffered::Lookup(url.host().to_owned()))?
    };
    if is_reachable {
        return Ok(url);
    }
    // As Akri writes it where the address that was asked has no path: with its slash.
    let path = match (url.path(), source.path()) {
        ("", "/") => "/",
        (path, _) => path,
    };
    EndpointUrl::new(source.host(), url.port(), path)
        .map_err(|why| Unoffered::Bad(format!("{why}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> EndpointUrl {
        text.parse().unwrap()
    }

    fn offered(advertised: &str, source: &str, known: Option<bool>) -> Result<String, Unoffered> {
        let offered = offered_url(advertised, &url(source), &|_| known);
        offered.map(|url| url.to_string())
    }

    #[test]
    fn a_host_that_this_node_does_not_know_is_replaced_by_the_one_that_was_asked() {
        let asked = "opc.tcp://10.1.2.3:4840/";
        let is = |advertised, known, expected: &str| {
            assert_eq!(offered(advertised, asked, known).unwrap(), expected);
        };
        is("opc.tcp://plc:4840/UA", Some(true), "opc.tcp://plc:4840/UA");
        is(
            "opc.tcp://plc:4840/UA",
            Some(false),
            "opc.tcp://10.1.2.3:4840/UA",
        );
        // A server that has registered has a port of its own; Akri loses it.
        is(
            "opc.tcp://plc:4855/UA",
            Some(false),
            "opc.tcp://10.1.2.3:4855/UA",
        );
        is(
            "opc.tcp://plc:4840",
            Some(false),
            "opc.tcp://10.1.2.3:4840/",
        );
        is("opc.tcp://10.1.2.9:4855/", None, "opc.tcp://10.1.2.9:4855/");
        is(
            "opc.tcp://127.0.0.1:4855/",
            None,
            "opc.tcp://10.1.2.3:4855/",
        );
        is(
            "opc.tcp://localhost:4855/",
            None,
            "opc.tcp://10.1.2.3:4855/",
        );
        is(
            "opc.tcp://0.0.0.0:4840/x",
            None,
            "opc.tcp://10.1.2.3:4840/x",
        );
        is("opc.tcp://[::]:4840/x", None, "opc.tcp://10.1.2.3:4840/x");
        let unknown = offered("opc.tcp://plc:4840", asked, None);
        assert_eq!(unknown, Err(Unoffered::Lookup("plc".to_owned())));
        let local = offered(
            "opc.tcp://127.0.0.1:4855/",
            "opc.tcp://localhost:4840/",
            None,
        );
        assert_eq!(local.unwrap(), "opc.tcp://127.0.0.1:4855/");
        let six = offered("opc.tcp://plc:1/", "opc.tcp://[fd00::1]:4840/", Some(false));
        assert_eq!(six.unwrap(), "opc.tcp://[fd00::1]:1/");
        assert!(offered("https://plc", asked, None).is_err());
    }
}
