//! Parses `discoveryDetails` of the opcua handler, which are Akri's with a few keys more: from YAML to checked [`Details`]. Pure.
use super::super::{
    fields::{Fields, Handler, strings},
    filter::Filter,
    only::Only,
};
use crate::model::device::Scope;
use petiole_mdns::Interfaces;
use petiole_opcua::EndpointUrl;
use serde_json::Value;

/// The name of this handler in messages, and an example.
const HANDLER: Handler = Handler {
    name: "opcua",
    example: "opcuaDiscoveryMethod: {standard: {discoveryUrls: [\"opc.tcp://10.1.2.3:4840/\"]}}",
};
/// The most `discoveryUrls` of a Configuration. Beyond it: the Configuration is not used (`BadDiscoveryDetails`).
const URLS_MAX: usize = 64;
/// The address of the discovery server of a machine, where the details name none, as in Akri.
const LOCAL: &str = "opc.tcp://localhost:4840/";

/// The servers that a Configuration selects, and the way to find them.
#[derive(Debug, Clone)]
pub(super) struct Details {
    pub(super) urls: Vec<EndpointUrl>,
    /// True if discovery servers are asked for the servers that they know by multicast DNS.
    pub(super) asks_for_network: bool,
    /// The interfaces on which servers are found by multicast DNS, if they are.
    pub(super) mdns: Option<Interfaces>,
    /// The names of applications that become devices.
    pub(super) names: Filter,
    pub(super) only: Only,
    pub(super) scope: Scope,
}

impl Details {
    pub(super) fn parse(yaml: &str) -> Result<Self, String> {
        const KEYS: &str = "opcuaDiscoveryMethod, applicationNames, identityScope, only";
        let mut fields = Fields::read(HANDLER, yaml)?.of(KEYS, &[])?;
        let Some(method) = fields.take("opcuaDiscoveryMethod") else {
            return Err(format!(
                "`opcuaDiscoveryMethod` is missing: `{}`",
                HANDLER.example
            ));
        };
        let method = Method::read(method)?;
        Ok(Self {
            urls: method.urls,
            asks_for_network: method.asks_for_network,
            mdns: method.mdns,
            names: Filter::take(&mut fields, "applicationNames", str::to_owned)?,
            only: Only::take(&mut fields)?,
            scope: fields.scope()?,
        })
    }
}

#[derive(Default)]
struct Method {
    urls: Vec<EndpointUrl>,
    asks_for_network: bool,
    mdns: Option<Interfaces>,
}

impl Method {
    fn read(value: Value) -> Result<Self, String> {
        const PATH: &str = "opcuaDiscoveryMethod";
        // `standard` alone is a method without settings.
        if value == "standard" {
            return Self::default().standard(PATH, Value::Null);
        }
        let is_tagged = (value.as_object()).is_some_and(|map| {
            ["discoveryUrls", "findServersOnNetwork"]
                .iter()
                .any(|key| map.contains_key(*key))
        });
        if is_tagged {
            // `!standard {discoveryUrls: …}`: the tag itself is no value.
            return Self::default().standard(PATH, value);
        }
        let mut fields = Fields::new(HANDLER, PATH, chosen(value))?.of("standard, mdns", &[])?;
        let mut method = Self::default();
        let (standard, mdns) = (fields.take("standard"), fields.take("mdns"));
        if standard.is_none() && mdns.is_none() {
            return Err(format!(
                "`{PATH}` names no method: `standard` asks servers by their addresses, `mdns` those that announce themselves"
            ));
        }
        if let Some(value) = standard {
            method = method.standard("opcuaDiscoveryMethod.standard", value)?;
        }
        if let Some(value) = mdns {
            const PATH: &str = "opcuaDiscoveryMethod.mdns";
            let mut fields = Fields::new(HANDLER, PATH, value)?.of("interfaces", &[])?;
            method.mdns = Some(fields.interfaces()?);
        }
        Ok(method)
    }

    fn standard(self, path: &'static str, value: Value) -> Result<Self, String> {
        let fields = Fields::new(HANDLER, path, value)?;
        let mut fields = fields.of("discoveryUrls, findServersOnNetwork", &[])?;
        let path = fields.path_of("discoveryUrls");
        let urls = match fields.take("discoveryUrls") {
            None => vec![LOCAL.to_owned()],
            Some(value) => strings(&path, Some(value))?,
        };
        if urls.is_empty() || urls.len() > URLS_MAX {
            return Err(format!(
                "`{path}` has {} addresses and must have 1 to {URLS_MAX}; without it, {LOCAL} is asked",
                urls.len()
            ));
        }
        let parse = |url: String| (url.parse()).map_err(|why| format!("`{path}: {url}` {why}"));
        Ok(Self {
            urls: urls.into_iter().map(parse).collect::<Result<_, _>>()?,
            asks_for_network: fields.switch("findServersOnNetwork", false)?,
            ..self
        })
    }
}

/// A method without settings is `standard:` as well as `standard: {}`.
fn chosen(mut method: Value) -> Value {
    for settings in method
        .as_object_mut()
        .into_iter()
        .flat_map(serde_json::Map::values_mut)
    {
        if settings.is_null() {
            *settings = Value::Object(serde_json::Map::new());
        }
    }
    method
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn urls(yaml: &str) -> Vec<String> {
        let details = Details::parse(yaml).unwrap();
        let urls = details.urls.iter().map(ToString::to_string);
        urls.collect()
    }

    #[test]
    fn akris_details_are_read_as_they_are() {
        let akris = "opcuaDiscoveryMethod:\n  standard:\n    discoveryUrls:\n    - opc.tcp://127.0.0.1:4855/\napplicationNames:\n  action: Include\n  items:\n  - \"Some application name\"\n";
        let details = Details::parse(akris).unwrap();
        assert_eq!(urls(akris), ["opc.tcp://127.0.0.1:4855/"]);
        assert!(
            details.names.takes_whole("Some application name")
                && !details.names.takes_whole("Another")
        );
        assert_eq!(
            (details.scope, details.asks_for_network),
            (Scope::Shared, false)
        );
        assert!(details.mdns.is_none());
        for default in [
            "opcuaDiscoveryMethod:\n  standard: {}",
            "opcuaDiscoveryMethod:\n  standard:",
            "opcuaDiscoveryMethod: standard",
        ] {
            assert_eq!(urls(default), ["opc.tcp://localhost:4840/"], "{default}");
        }
        let tagged = "opcuaDiscoveryMethod: !standard\n  discoveryUrls: [\"opc.tcp://plc\"]";
        assert_eq!(urls(tagged), ["opc.tcp://plc"]);
    }

    #[test]
    fn a_filter_takes_only_these_or_all_but_these() {
        let names = |filter: &str| {
            let yaml =
                format!("opcuaDiscoveryMethod: {{standard: {{}}}}\napplicationNames: {filter}");
            Details::parse(&yaml).unwrap().names
        };
        let takes = |filter: &str| ["a", "b"].map(|name| names(filter).takes_whole(name));
        assert_eq!(takes("{action: Exclude, items: []}"), [true, true]);
        assert_eq!(takes("{action: Exclude, items: [a]}"), [false, true]);
        assert_eq!(takes("{action: Include, items: [a]}"), [true, false]);
        assert_eq!(takes("{items: [a]}"), [true, false]);
    }

    #[test]
    fn further_ways_are_chosen_by_their_keys() {
        let yaml = "opcuaDiscoveryMethod:\n  standard: {findServersOnNetwork: true}\n  mdns: {interfaces: {allow: [lo]}}\nidentityScope: node";
        let details = Details::parse(yaml).unwrap();
        assert!(details.asks_for_network && details.scope == Scope::Node);
        assert!(
            details
                .mdns
                .is_some_and(|mdns| mdns.uses("lo") && !mdns.uses("eth0"))
        );
        let alone = Details::parse("opcuaDiscoveryMethod: {mdns: }").unwrap();
        assert!(alone.urls.is_empty() && alone.mdns.is_some());
    }

    #[test]
    fn what_cannot_work_is_refused_with_its_place() {
        let with =
            |urls: &str| format!("opcuaDiscoveryMethod: {{standard: {{discoveryUrls: {urls}}}}}");
        let many = with(&format!("[{}]", "\"opc.tcp://a\", ".repeat(65)));
        for (yaml, place) in [
            ("", "`opcuaDiscoveryMethod` is missing"),
            (
                "{opcuaDiscoveryMethod: {standard: {}}, applicationName: x}",
                "known here: opcuaDiscoveryMethod, applicationNames, identityScope, only",
            ),
            ("opcuaDiscoveryMethod: {}", "names no method"),
            (
                "opcuaDiscoveryMethod: {scan: {}}",
                "`opcuaDiscoveryMethod.scan` is no key of opcua; known here: standard, mdns",
            ),
            (
                "opcuaDiscoveryMethod: {standard: {urls: []}}",
                "known here: discoveryUrls, findServersOnNetwork",
            ),
            (&with("[]"), "has 0 addresses"),
            (&many, "has 65 addresses"),
            (
                &with("[\"http://plc\"]"),
                "`opcuaDiscoveryMethod.standard.discoveryUrls: http://plc` must begin with opc.tcp://",
            ),
            (
                "{opcuaDiscoveryMethod: {standard: {}}, applicationNames: {action: exclude}}",
                "`applicationNames.action: \"exclude\"` must be one of Include, Exclude",
            ),
            (
                "{opcuaDiscoveryMethod: {standard: {}}, identityScope: all}",
                "identityScope",
            ),
            (
                "opcuaDiscoveryMethod: {standard: {findServersOnNetwork: 3}}",
                "`opcuaDiscoveryMethod.standard.findServersOnNetwork: 3` must be true or false",
            ),
            (
                "opcuaDiscoveryMethod: {mdns: {interfaces: {only: lo}}}",
                "`opcuaDiscoveryMethod.mdns.interfaces.only` is no key of opcua; known here: allow, deny",
            ),
        ] {
            let message = Details::parse(yaml).unwrap_err();
            assert!(message.contains(place), "{yaml}\n said {message}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "\\PC*") {
            drop(Details::parse(&text));
            drop(Details::parse(&format!("opcuaDiscoveryMethod: {text}")));
        }
    }
}
