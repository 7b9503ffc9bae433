//! Reads topics of Sparkplug B, and the few values of births and deaths that matter. Pure.
use crate::facts::Facts;
use prost::Message as _;

const NAMESPACE: &str = "spBv1.0";
/// The name of the number that a birth and the death of the same session share.
const SESSION: &str = "bdSeq";

/// What a message says about its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Birth,
    Death,
    /// The sender is alive: it was born before we came.
    Data,
}

/// The sender of a message, and what it says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Said<'a> {
    pub(crate) kind: Kind,
    pub(crate) group: &'a str,
    /// The edge node.
    pub(crate) node: &'a str,
    /// The device of the edge node, if it is not about the node itself.
    pub(crate) device: Option<&'a str>,
}

/// Returns the filters of all births, deaths and data of a group, or of all groups.
pub(crate) fn filters(group: Option<&str>) -> Vec<String> {
    let group = group.unwrap_or("+");
    let filter = |kind: &str| {
        if kind.starts_with('N') {
            format!("{NAMESPACE}/{group}/{kind}/+")
        } else {
            format!("{NAMESPACE}/{group}/{kind}/+/+")
        }
    };
    ["NDEATH", "DDEATH", "NBIRTH", "DBIRTH", "NDATA", "DDATA"]
        .map(filter)
        .to_vec()
}

/// Reads a topic.
pub(crate) fn topic(topic: &str) -> Option<Said<'_>> {
    let mut levels = topic.split('/');
    let (namespace, group, kind) = (levels.next()?, levels.next()?, levels.next()?);
    let (node, device, rest) = (levels.next()?, levels.next(), levels.next());
    let (kind, is_device) = match kind {
        "NBIRTH" => (Kind::Birth, false),
        "DBIRTH" => (Kind::Birth, true),
        "NDEATH" => (Kind::Death, false),
        "DDEATH" => (Kind::Death, true),
        "NDATA" => (Kind::Data, false),
        "DDATA" => (Kind::Data, true),
        _ => return None,
    };
    let is_whole = namespace == NAMESPACE && rest.is_none() && device.is_some() == is_device;
    let is_named = ![group, node].contains(&"") && device != Some("");
    (is_whole && is_named).then_some(Said {
        kind,
        group,
        node,
        device,
    })
}

impl Said<'_> {
    /// Returns what identifies an edge node, or a device of it.
    pub(crate) fn id(&self, device: Option<&str>) -> String {
        let Self { group, node, .. } = self;
        match device {
            Some(device) => format!("{NAMESPACE}/{group}/{node}/{device}"),
            None => format!("{NAMESPACE}/{group}/{node}"),
        }
    }
}

#[derive(Clone, PartialEq, prost::Message)]
struct Payload {
    #[prost(message, repeated, tag = "2")]
    metrics: Vec<Metric>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Metric {
    #[prost(string, optional, tag = "1")]
    name: Option<String>,
    #[prost(uint32, optional, tag = "10")]
    int: Option<u32>,
    #[prost(uint64, optional, tag = "11")]
    long: Option<u64>,
    #[prost(string, optional, tag = "15")]
    text: Option<String>,
}

/// What a payload says: the number of the session, and the facts about the sender.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stated {
    pub(crate) session: Option<u64>,
    pub(crate) facts: Facts,
}

/// Reads the payload of a birth or a death.
pub(crate) fn payload(said: &Said<'_>, payload: &[u8]) -> Result<Stated, &'static str> {
    let payload = Payload::decode(payload).map_err(|_| "it is no payload of Sparkplug B")?;
    let find = |name: &str| {
        payload
            .metrics
            .iter()
            .find(|m| m.name.as_deref() == Some(name))
    };
    let mut stated = Stated {
        session: find(SESSION).and_then(|m| m.long.or(m.int.map(u64::from))),
        facts: Facts::default(),
    };
    stated.facts.add("NAME", said.device.or(Some(said.node)));
    for (fact, metric) in [
        ("MANUFACTURER", "Properties/Hardware Make"),
        ("MODEL", "Properties/Hardware Model"),
        ("HW_VERSION", "Properties/Hardware Version"),
        ("SW_VERSION", "Properties/FW"),
    ] {
        stated
            .facts
            .add(fact, find(metric).and_then(|m| m.text.as_deref()));
    }
    Ok(stated)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_name_their_senders() {
        let said = topic("spBv1.0/plant/DBIRTH/gate/press").unwrap();
        assert_eq!((said.kind, said.device), (Kind::Birth, Some("press")));
        assert_eq!(said.id(said.device), "spBv1.0/plant/gate/press");
        let said = topic("spBv1.0/plant/NDEATH/gate").unwrap();
        assert_eq!(
            (said.kind, said.id(None).as_str()),
            (Kind::Death, "spBv1.0/plant/gate")
        );
        for other in [
            "spBv1.0/STATE/scada",
            "spBv1.0/plant/NBIRTH/gate/press",
            "spBv1.0/plant/DBIRTH/gate",
            "spBv1.0/plant/NCMD/gate",
            "spAv1.0/plant/NBIRTH/gate",
            "spBv1.0//NBIRTH/gate",
            "spBv1.0/plant/DBIRTH/gate/",
            "spBv1.0/plant/DBIRTH/gate/press/more",
        ] {
            assert_eq!(topic(other), None, "{other}");
        }
    }

    #[test]
    fn a_birth_of_pysparkplug_is_read() {
        // What pysparkplug 0.6.1 sent as NBIRTH.
        let birth = include_bytes!("../tests/data/nbirth");
        let said = topic("spBv1.0/plant/NBIRTH/gate").unwrap();
        let stated = payload(&said, birth).unwrap();
        assert_eq!(stated.session, Some(0));
        let facts: Vec<_> = stated.facts.iter().collect();
        assert_eq!(facts, [("NAME", "gate"), ("MANUFACTURER", "Acme")]);
        assert!(payload(&said, b"\xff\xff").is_err());
    }
}
