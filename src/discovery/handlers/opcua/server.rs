//! Makes a device of what a server says about itself. Pure.
use crate::model::{device::Device, limits::cut};
use petiole_opcua::{Answer, Application, Endpoint, EndpointUrl};
use std::net::IpAddr;

/// The longest value of a property, in bytes. Beyond it: the end is cut off.
const VALUE_MAX: usize = 1024;
/// The most endpoints of a server that become properties. Beyond it: those that the server itself counts as less secure are left out.
const ENDPOINTS_MAX: usize = 16;

/// The answers of one server.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) applications: Vec<Application>,
    /// The addresses of servers that it knows by multicast DNS.
    pub(super) on_network: Vec<String>,
    pub(super) endpoints: Vec<Endpoint>,
}

impl Said {
    /// Takes the answers, with those applications that `takes` wants. A question that a server refuses has no answer: it is there
    /// all the same.
    pub(super) fn new(answers: Vec<Answer>, takes: impl Fn(&Application) -> bool) -> Self {
        let mut said = Self::default();
        for answer in answers {
            match answer {
                Answer::Servers(applications) => {
                    said.applications = applications.into_iter().filter(&takes).collect();
                }
                Answer::ServersOnNetwork(servers) => {
                    said.on_network = servers
                        .into_iter()
                        .map(|server| server.discovery_url)
                        .collect();
                }
                Answer::Endpoints(endpoints) => said.endpoints = endpoints,
                Answer::Refused(..) => {}
            }
        }
        said
    }

    /// Returns how many bytes of texts, and of what holds them, it has.
    pub(super) fn bytes(&self) -> usize {
        const FIELD: usize = 24;
        let applications = self.applications.iter().map(|application| {
            let Application {
                uri,
                product_uri,
                name,
                kind: _,
                discovery_urls,
            } = application;
            let urls: usize = discovery_urls.iter().map(|url| url.len() + FIELD).sum();
            uri.len() + product_uri.len() + name.len() + urls + 5 * FIELD
        });
        let endpoints = self.endpoints.iter().map(|endpoint| {
            endpoint.url.len() + endpoint.policy.len() + 8 * endpoint.users.len() + 4 * FIELD
        });
        let on_network = self.on_network.iter().map(|url| url.len() + FIELD);
        applications.chain(endpoints).chain(on_network).sum()
    }
}

/// A server that another one, or it itself, has named.
pub(super) struct Found<'a> {
    pub(super) application: &'a Application,
    /// The server that named it.
    pub(super) source: &'a EndpointUrl,
    /// The address that the server gives, as it is.
    pub(super) advertised: &'a str,
    /// The address at which this node reaches it. `None` if a name must be looked up first, or there is none.
    pub(super) url: Option<EndpointUrl>,
    /// Why it has no address that can be used.
    pub(super) unusable: Option<String>,
    /// True if it is the server that named it.
    pub(super) is_self: bool,
}

impl<'a> Found<'a> {
    /// `knows` says whether this node knows an address of a host, once that is known.
    pub(super) fn new(
        application: &'a Application,
        source: &'a EndpointUrl,
        knows: &dyn Fn(&str) -> Option<bool>,
    ) -> Self {
        let urls = application.discovery_urls.iter();
        // As Akri does: TCP comes first. It does not need another library in brokers, and other transports are rare.
        let tcp = urls.clone().find(|url| url.starts_with("opc.tcp://"));
        let advertised = tcp.map_or("", String::as_str);
        let (url, unusable) = match offered_url(advertised, source, knows) {
            Ok(url) => (Some(url), None),
            Err(Unoffered::Lookup(_)) => (None, None),
            Err(Unoffered::Bad(_)) if tcp.is_none() => {
                let why = "it has no address that begins with opc.tcp://".to_owned();
                (None, Some(why))
            }
            Err(Unoffered::Bad(why)) => (None, Some(format!("{advertised:?} {why}"))),
        };
        let is_self = (url.as_ref())
            .is_some_and(|url| (url.host(), url.port()) == (source.host(), source.port()));
        Self {
            application,
            source,
            advertised,
            url,
            unusable,
            is_self,
        }
    }
}

/// Why there is no address to offer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unoffered {
    /// This host must be looked up first.
    Lookup(String),
    /// It is no address of a server.
    Bad(String),
}

/// Returns the address at which this node reaches a server that `source` tells of: the one that it gives; or, where this node does
/// not know its host, or where its host means each machine itself, the same port and path at the host that was asked.
pub(super) fn offered_url(
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

/// Returns the device of a server at `url`, with its endpoints.
pub(super) fn device(found: &Found<'_>, url: &EndpointUrl, said: &Said) -> Device {
    const URL: &str = "OPCUA_DISCOVERY_URL";
    let application = found.application;
    let mut device = Device::new(url.as_str());
    let mut set = |name: &str, value: &str| {
        if !value.is_empty() {
            device.properties.insert(name.to_owned(), text(value));
        }
    };
    set(URL, url.as_str());
    if found.advertised != url.as_str() {
        set("OPCUA_ADVERTISED_URL", found.advertised);
    }
    set("OPCUA_APPLICATION_NAME", &application.name);
    set("OPCUA_APPLICATION_URI", &application.uri);
    set("OPCUA_APPLICATION_TYPE", &application.kind.to_string());
    set("OPCUA_PRODUCT_URI", &application.product_uri);
    let endpoints = sorted(&said.endpoints);
    let mut policies: Vec<&str> = endpoints
        .iter()
        .map(|endpoint| endpoint.policy_name())
        .collect();
    policies.sort_unstable();
    policies.dedup();
    set("OPCUA_SECURITY_POLICIES", &policies.join(","));
    for (n, endpoint) in endpoints.iter().enumerate() {
        let mut set = |part: &str, value: &str| set(&format!("OPCUA_ENDPOINT_{n}_{part}"), value);
        set("URL", &endpoint_url(&endpoint.url, found, url));
        set("SECURITY_MODE", &endpoint.mode.to_string());
        set("SECURITY_POLICY", endpoint.policy_name());
        let mut users: Vec<String> = endpoint.users.iter().map(ToString::to_string).collect();
        users.sort_unstable();
        users.dedup();
        set("USER_TOKENS", &users.join(","));
    }
    device.connection.insert(URL.to_owned());
    device
}

/// Returns the endpoints with the most secure first, in an order that does not depend on that of the answer.
fn sorted(endpoints: &[Endpoint]) -> Vec<&Endpoint> {
    let mut endpoints: Vec<&Endpoint> = endpoints.iter().collect();
    let key = |endpoint: &Endpoint| {
        (
            endpoint.mode.to_string(),
            endpoint.policy.clone(),
            endpoint.url.clone(),
        )
    };
    endpoints.sort_by_cached_key(|endpoint| (std::cmp::Reverse(endpoint.level), key(endpoint)));
    endpoints.dedup();
    endpoints.truncate(ENDPOINTS_MAX);
    endpoints
}

/// Returns the address of an endpoint. If its host was replaced in the address of its server, it is replaced here, too.
fn endpoint_url(endpoint: &str, found: &Found<'_>, url: &EndpointUrl) -> String {
    let parsed =
        (endpoint.parse::<EndpointUrl>().ok()).zip(found.advertised.parse::<EndpointUrl>().ok());
    let replaced = parsed
        .filter(|(own, advertised)| own.host() == advertised.host() && own.host() != url.host());
    let replaced =
        replaced.and_then(|(own, _)| EndpointUrl::new(url.host(), own.port(), own.path()).ok());
    replaced.map_or_else(|| endpoint.to_owned(), |url| url.to_string())
}

/// Returns a text that can be the value of a variable.
fn text(value: &str) -> String {
    cut(value.replace(char::is_control, " "), VALUE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use petiole_opcua::{ApplicationType, SecurityMode, UserToken};

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

    fn endpoint(level: u8, policy: &str, mode: SecurityMode) -> Endpoint {
        Endpoint {
            url: "opc.tcp://press:4840/".to_owned(),
            mode,
            policy: format!("http://opcfoundation.org/UA/SecurityPolicy#{policy}"),
            users: vec![
                UserToken::UserName,
                UserToken::Anonymous,
                UserToken::UserName,
            ],
            level,
        }
    }

    #[test]
    fn a_device_has_the_properties_of_akri_and_its_application_and_endpoints() {
        let application = Application {
            uri: "urn:press".to_owned(),
            product_uri: "urn:vendor:press".to_owned(),
            name: "Press\0 4".to_owned(),
            kind: ApplicationType::ClientAndServer,
            discovery_urls: vec![
                "https://press".to_owned(),
                "opc.tcp://press:4840/".to_owned(),
            ],
        };
        let source = url("opc.tcp://10.1.2.3:4840/");
        let found = Found::new(&application, &source, &|_| Some(false));
        assert!(found.is_self);
        let mut said = Said {
            endpoints: vec![
                endpoint(0, "None", SecurityMode::None),
                endpoint(9, "Basic256Sha256", SecurityMode::SignAndEncrypt),
                endpoint(0, "None", SecurityMode::None),
            ],
            ..Said::default()
        };
        let device_of = |said: &Said| device(&found, found.url.as_ref().unwrap(), said);
        let device = device_of(&said);
        assert_eq!(device.id.as_str(), "opc.tcp://10.1.2.3:4840/");
        let expected = [
            ("OPCUA_ADVERTISED_URL", "opc.tcp://press:4840/"),
            ("OPCUA_APPLICATION_NAME", "Press  4"),
            ("OPCUA_APPLICATION_TYPE", "ClientAndServer"),
            ("OPCUA_APPLICATION_URI", "urn:press"),
            ("OPCUA_DISCOVERY_URL", "opc.tcp://10.1.2.3:4840/"),
            ("OPCUA_ENDPOINT_0_SECURITY_MODE", "SignAndEncrypt"),
            ("OPCUA_ENDPOINT_0_SECURITY_POLICY", "Basic256Sha256"),
            ("OPCUA_ENDPOINT_0_URL", "opc.tcp://10.1.2.3:4840/"),
            ("OPCUA_ENDPOINT_0_USER_TOKENS", "Anonymous,UserName"),
            ("OPCUA_ENDPOINT_1_SECURITY_MODE", "None"),
            ("OPCUA_ENDPOINT_1_SECURITY_POLICY", "None"),
            ("OPCUA_ENDPOINT_1_URL", "opc.tcp://10.1.2.3:4840/"),
            ("OPCUA_ENDPOINT_1_USER_TOKENS", "Anonymous,UserName"),
            ("OPCUA_PRODUCT_URI", "urn:vendor:press"),
            ("OPCUA_SECURITY_POLICIES", "Basic256Sha256,None"),
        ];
        let properties: Vec<(&str, &str)> = (device.properties.iter())
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        assert_eq!(properties, expected);
        said.endpoints.reverse();
        assert_eq!(
            device_of(&said),
            device,
            "the order of an answer means nothing"
        );
        said.endpoints = (0..40)
            .map(|n| endpoint(n, &n.to_string(), SecurityMode::Sign))
            .collect();
        let many = device_of(&said);
        assert_eq!(many.properties["OPCUA_ENDPOINT_15_SECURITY_POLICY"], "24");
        assert!(!many.properties.contains_key("OPCUA_ENDPOINT_16_URL"));
    }

    #[test]
    fn a_server_without_an_address_that_can_be_used_says_why() {
        let source = url("opc.tcp://10.1.2.3:4840/");
        let why = |urls: &[&str]| {
            let application = Application {
                discovery_urls: urls.iter().map(ToString::to_string).collect(),
                ..Application::default()
            };
            Found::new(&application, &source, &|_| None).unusable
        };
        assert!(why(&[]).unwrap().contains("no address"));
        assert!(why(&["https://plc"]).unwrap().contains("no address"));
        assert!(why(&["opc.tcp://plc:99999/"]).unwrap().contains("99999"));
        assert_eq!(why(&["opc.tcp://plc:1/"]), None, "it is looked up first");
    }
}
