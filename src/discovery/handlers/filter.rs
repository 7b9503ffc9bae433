//! The filters of Akri's handlers `onvif` and `opcua`: `{action: Include, items: […]}`. Pure.
use super::fields::Fields;
use ipnet::IpNet;
use std::net::IpAddr;

/// The most items of a filter. Beyond it: the Configuration is not used (`BadDiscoveryDetails`).
const ITEMS_MAX: usize = 256;

/// A filter over texts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Filter {
    is_include: bool,
    items: Vec<String>,
}

impl Filter {
    /// Takes the filter at a key. `item` brings each item into the form of the texts.
    pub(super) fn take(
        fields: &mut Fields,
        key: &str,
        item: impl Fn(&str) -> String,
    ) -> Result<Self, String> {
        let Some(inner) = fields.inner(key)? else {
            return Ok(Self::default());
        };
        let mut inner = inner.of("action, items", &[])?;
        let is_include = inner.word("action", &[("Include", true), ("Exclude", false)])?;
        let items = inner.strings("items")?;
        let path = fields.path_of(key);
        if is_include && items.is_empty() {
            return Err(format!(
                "`{path}` includes nothing and can never match: name items, or leave it out to take any"
            ));
        }
        if items.len() > ITEMS_MAX {
            let count = items.len();
            return Err(format!(
                "`{path}.items` has {count} items; {ITEMS_MAX} are the most"
            ));
        }
        if items.iter().any(String::is_empty) {
            return Err(format!(
                "`{path}.items` has an empty item, which every device matches"
            ));
        }
        let items = items.iter().map(|text| item(text)).collect();
        Ok(Self { is_include, items })
    }

    /// Returns whether it takes every device.
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Returns whether it takes a device with these texts. An item matches a text that contains it, as in Akri's `onvif`.
    pub(super) fn takes<'a>(&self, texts: impl IntoIterator<Item = &'a str>) -> bool {
        let has = |text: &str| self.items.iter().any(|item| text.contains(item.as_str()));
        texts.into_iter().any(has) == self.is_include
    }

    /// Returns whether it takes a device with this text. An item matches the whole text, as in Akri's `opcua`.
    pub(super) fn takes_whole(&self, text: &str) -> bool {
        self.items.iter().any(|item| item == text) == self.is_include
    }

    /// Returns whether it takes an address. An item that is an address or a network matches the whole address.
    pub(super) fn takes_address(&self, address: IpAddr) -> bool {
        let text = address.to_string();
        let has = self.items.iter().any(|item| {
            let network = item.parse::<IpNet>().ok();
            let network = network.or_else(|| item.parse::<IpAddr>().ok().map(IpNet::from));
            network.map_or_else(|| text.contains(item), |network| network.contains(&address))
        });
        has == self.is_include
    }
}
