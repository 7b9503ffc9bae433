//! Decides which devices are listed, and in which order, as the web page does (`page/model.js`). Pure.
use crate::inspect::devices::Device;
use std::collections::BTreeSet;

/// What a device is filtered by besides the words of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    Node,
    Configuration,
    State,
}

/// The state of a device with any problem.
pub(super) const PROBLEM: &str = "problem";
/// The states that can be chosen besides the names of problems.
const STATES: [&str; 4] = [PROBLEM, "healthy", "in use", "free"];

/// What the user wants to see. Nothing chosen means all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Filter {
    /// The words of the search, all of which a device must have.
    pub(super) search: String,
    pub(super) node: Option<String>,
    pub(super) configuration: Option<String>,
    pub(super) state: Option<String>,
}

impl Filter {
    pub(super) fn allows(&self, device: &Device) -> bool {
        let is_chosen = |by: By, chosen: &Option<String>| {
            chosen
                .as_ref()
                .is_none_or(|chosen| values(device, by).contains(chosen))
        };
        let text = text_of(device);
        is_chosen(By::Node, &self.node)
            && is_chosen(By::Configuration, &self.configuration)
            && is_chosen(By::State, &self.state)
            && (self.search.to_lowercase().split_whitespace()).all(|word| text.contains(word))
    }

    /// Chooses the next of the values that there are, and all of them after the last one.
    pub(super) fn advance(&mut self, by: By, devices: &[Device]) {
        let chosen = match by {
            By::Node => &mut self.node,
            By::Configuration => &mut self.configuration,
            By::State => &mut self.state,
        };
        let all = devices.iter().flat_map(|device| values(device, by));
        let all: BTreeSet<String> = all.collect();
        *chosen = match chosen {
            None => all.into_iter().next(),
            Some(chosen) => all.into_iter().find(|next| next > chosen),
        };
    }

    /// Returns the words that say what is chosen; empty if nothing is.
    pub(super) fn said(&self) -> String {
        let search = (!self.search.is_empty()).then(|| format!("/{}", self.search));
        let chosen = [
            ("node", &self.node),
            ("Configuration", &self.configuration),
            ("state", &self.state),
        ];
        let chosen = chosen.into_iter();
        let chosen = chosen.filter_map(|(name, value)| Some(format!("{name} {}", value.as_ref()?)));
        Vec::from_iter(search.into_iter().chain(chosen)).join(", ")
    }
}

/// Returns the values of a device, any of which can be chosen.
fn values(device: &Device, by: By) -> Vec<String> {
    match by {
        By::Node => device.nodes.iter().map(|node| node.name.clone()).collect(),
        By::Configuration => vec![format!("{}/{}", device.namespace, device.configuration)],
        By::State => {
            let used = device.used.len();
            let capacity = usize::try_from(device.capacity).unwrap_or_default();
            let has = [
                device.problem.is_some(),
                device.problem.is_none(),
                used > 0,
                used < capacity,
            ];
            let states = STATES.into_iter().zip(has).filter(|(_, has)| *has);
            let states = states.map(|(state, _)| state.to_owned());
            states.chain(device.problem.clone()).collect()
        }
    }
}

/// Returns the text in which a search looks.
fn text_of(device: &Device) -> String {
    let mut all = vec![
        device.device.as_str(),
        &device.namespace,
        &device.instance,
        &device.configuration,
        &device.resource,
        device.address.as_deref().unwrap_or_default(),
        device.problem.as_deref().unwrap_or(&device.health),
        device.message.as_deref().unwrap_or_default(),
    ];
    all.extend(device.nodes.iter().map(|node| node.name.as_str()));
    for used in &device.used {
        all.push(&used.node);
        all.extend(used.pods.iter().map(String::as_str));
    }
    all.join("\n").to_lowercase()
}

/// Sorts devices: those with a problem first, then by Configuration and name. Numbers in names compare as numbers.
pub(super) fn sort(devices: &mut [Device]) {
    devices.sort_by_cached_key(|device| {
        (
            device.problem.is_none(),
            comparable(&format!("{}/{}", device.namespace, device.configuration)),
            comparable(&device.device),
            device.instance.clone(),
        )
    });
}

fn comparable(text: &str) -> String {
    let mut key = String::new();
    let mut digits = String::new();
    for c in text.to_lowercase().chars().chain(['\0']) {
        if c.is_ascii_digit() {
            digits.push(c);
        } else {
            if !digits.is_empty() {
                key += &format!("{digits:0>8}");
                digits.clear();
            }
            key.push(c);
        }
    }
    key
}
