//! Makes a device of a server and of what it says about itself. Pure.
use crate::model::{device::Device, limits::cut};
use petiole_opcua::{Endpoint, EndpointUrl, FoundServer};

/// The longest value of a property, in bytes. Beyond it: the end is cut off.
const VALUE_MAX: usize = 1024;
/// The most endpoints of a server that become properties. Beyond it: those that the server itself counts as less secure are left out.
const ENDPOINTS_MAX: usize = 16;

/// Returns the device of a server, with its endpoints.
pub(super) fn device(found: &FoundServer<'_>) -> Device {
    const URL: &str = "OPCUA_DISCOVERY_URL";
    let FoundServer {
        application, url, ..
    } = found;
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
    let endpoints = sorted(found.endpoints);
    let mut policies: Vec<&str> = endpoints
        .iter()
        .map(|endpoint| endpoint.policy_name())
        .collect();
    policies.sort_unstable();
    policies.dedup();
    set("OPCUA_SECURITY_POLICIES", &policies.join(","));
    for (n, endpoint) in endpoints.iter().enumerate() {
        let mut set = |part: &str, value: &str| set(&format!("OPCUA_ENDPOINT_{n}_{part}"), value);
        set("URL", &endpoint_url(&endpoint.url, found));
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
fn endpoint_url(endpoint: &str, found: &FoundServer<'_>) -> String {
    let url = &found.url;
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
    use petiole_opcua::{Application, ApplicationType, SecurityMode, UserToken};

    fn endpoint(level: u8, policy: &str, mode: SecurityMode) -> Endpoint {
        Endpoint {
            url: "opc.tcp://press:4840/".to_owned(),
            mode,
            policy: format!("http://opcfoundation.org/UA/SecurityPolicy#{policy}"),
            users: vec![
                UserToken::USER_NAME,
                UserToken::ANONYMOUS,
                UserToken::USER_NAME,
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
            kind: ApplicationType::CLIENT_AND_SERVER,
            discovery_urls: vec![
                "https://press".to_owned(),
                "opc.tcp://press:4840/".to_owned(),
            ],
        };
        let mut endpoints = vec![
            endpoint(0, "None", SecurityMode::NONE),
            endpoint(9, "Basic256Sha256", SecurityMode::SIGN_AND_ENCRYPT),
            endpoint(0, "None", SecurityMode::NONE),
        ];
        let device_of = |endpoints: &[Endpoint]| {
            device(&FoundServer {
                application: &application,
                url: "opc.tcp://10.1.2.3:4840/".parse().unwrap(),
                advertised: &application.discovery_urls[1],
                endpoints,
            })
        };
        let device = device_of(&endpoints);
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
        endpoints.reverse();
        assert_eq!(
            device_of(&endpoints),
            device,
            "the order of an answer means nothing"
        );
        endpoints = (0..40)
            .map(|n| endpoint(n, &n.to_string(), SecurityMode::SIGN))
            .collect();
        let many = device_of(&endpoints);
        assert_eq!(many.properties["OPCUA_ENDPOINT_15_SECURITY_POLICY"], "24");
        assert!(!many.properties.contains_key("OPCUA_ENDPOINT_16_URL"));
    }
}
