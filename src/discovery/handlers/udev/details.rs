//! Parses `discoveryDetails` and `discoveryProperties` of the udev handler: from YAML to checked [`Details`]. Pure.
use super::{
    super::{
        fields::{Fields, Handler},
        matcher::Budget,
    },
    record::Chain,
    rules::{DeviceHead, Rule},
};
use crate::model::limits;
use std::collections::{BTreeMap, BTreeSet};

/// The name of this handler in messages, and an example.
const HANDLER: Handler = Handler {
    name: "udev",
    example: r#"udevRules: ['KERNEL=="video[0-9]*"']"#,
};
/// The most rules of a Configuration of `udev`. Beyond it: the Configuration is not used (`BadDiscoveryDetails`).
const RULES_MAX: usize = 64;
/// The most devices of all subsystems that are read. Beyond it: further ones are not read, and devices that are not
/// seen stay as they were.
const CANDIDATES_MAX: usize = 65_536;
/// The most steps that the rules of a Configuration take in one look at all devices, which are about 5 s. Beyond it: fewer
/// devices are read, as many as have these steps.
const LOOK_STEPS_MAX: usize = 1_000_000_000;

/// The discovery properties that this handler reads, as Akri's does.
pub(super) const RESOURCE_PROPERTY: &str = "devicePluginResourceName";
pub(super) const VFIO_PROPERTY: &str = "vfioPassthrough";
/// The attributes that identify a USB device.
pub(super) const USB_ATTRIBUTES: [&str; 3] = ["idProduct", "idVendor", "serial"];

/// The devices that a Configuration selects, and the variables that their containers get.
#[derive(Debug, Clone)]
pub(super) struct Details {
    rules: Vec<Rule>,
    /// The most steps that the rules take on a device.
    steps: usize,
    pub(super) group_recursive: bool,
    pub(super) permissions: &'static str,
    pub(super) identity: Identity,
    /// The last part of the names of KubeVirt's variables, such as `AKRI_SH_GPU`.
    pub(super) resource: Option<String>,
    /// True if containers get the device nodes of VFIO.
    pub(super) has_vfio: bool,
}

/// The property by which a device is recognized as the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Identity {
    /// The path in sysfs, as in Akri.
    Path,
    /// The serial number, if the device has one.
    Serial,
}

impl Details {
    pub(super) fn parse(yaml: &str, properties: &BTreeMap<String, String>) -> Result<Self, String> {
        let mut fields = Fields::read(HANDLER, yaml)?
            .of("udevRules, groupRecursive, permissions, identity", &[])?;
        let mut budget = Budget::default();
        let identities = [("path", Identity::Path), ("serial", Identity::Serial)];
        Ok(Self {
            rules: rules(fields.strings("udevRules")?, &mut budget)?,
            steps: budget.steps(),
            group_recursive: fields.switch("groupRecursive", false)?,
            permissions: fields.permissions()?,
            identity: fields.word("identity", &identities)?,
            resource: properties
                .get(RESOURCE_PROPERTY)
                .map(|name| variable_part(name)),
            has_vfio: vfio(properties)?,
        })
    }

    /// Returns the most devices to which the rules are applied in one look.
    pub(super) fn candidates_max(&self) -> usize {
        CANDIDATES_MAX.min(LOOK_STEPS_MAX / self.steps.max(1))
    }

    /// Returns whether a rule selects the device.
    pub(super) fn take(&self, chain: &Chain) -> bool {
        self.rules.iter().any(|rule| rule.takes(chain))
    }

    /// Returns whether a rule may select a device at this place.
    pub(super) fn may_take(&self, place: DeviceHead<'_>) -> bool {
        self.rules.iter().any(|rule| rule.may_take(place))
    }

    /// Returns whether a rule may select a device of a subsystem.
    pub(super) fn may_take_subsystem(&self, subsystem: &str) -> bool {
        (self.rules.iter()).any(|rule| rule.may_take_subsystem(subsystem))
    }

    /// Returns the names of the attributes that rules use.
    pub(super) fn attributes(&self) -> BTreeSet<String> {
        let all = self.rules.iter().flat_map(Rule::attributes);
        all.map(str::to_owned).collect()
    }
}

fn rules(texts: Vec<String>, budget: &mut Budget) -> Result<Vec<Rule>, String> {
    if texts.is_empty() {
        return Err(format!(
            "`udevRules` is missing: a list of rules, such as `{}`",
            HANDLER.example
        ));
    }
    if texts.len() > RULES_MAX {
        let count = texts.len();
        return Err(format!(
            "`udevRules` has {count} rules; {RULES_MAX} are the most: remove some, or join them with | in a value"
        ));
    }
    let rule = |(n, text): (usize, &String)| {
        let shown = || limits::cut(text.clone(), 200);
        Rule::parse(text, budget).map_err(|why| format!("`udevRules[{n}]: {}`: {why}", shown()))
    };
    texts.iter().enumerate().map(rule).collect()
}

/// Converts a resource's name to a part of a variable's name, as KubeVirt does it.
fn variable_part(resource: &str) -> String {
    resource.to_ascii_uppercase().replace(['.', '/'], "_")
}

fn vfio(properties: &BTreeMap<String, String>) -> Result<bool, String> {
    let Some(value) = properties.get(VFIO_PROPERTY) else {
        return Ok(false);
    };
    match value.trim().to_ascii_lowercase().as_str() {
        "true" => Ok(true),
        "false" | "" => Ok(false),
        // The value may be of a Secret, so it is not named.
        _ => Err(format!(
            "the discoveryProperty `{VFIO_PROPERTY}` must be true or false"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(yaml: &str) -> Result<Details, String> {
        Details::parse(yaml, &BTreeMap::new())
    }

    #[test]
    fn akris_details_are_read_with_akris_defaults() {
        let plain = parse("udevRules:\n- 'KERNEL==\"video[0-9]*\"'\n").unwrap();
        assert!(!plain.group_recursive && !plain.has_vfio);
        assert_eq!((plain.permissions, plain.identity), ("rwm", Identity::Path));
        let whole = parse(
            r#"{"groupRecursive": true, "permissions": "rw", "udevRules": ["TAG==\"a\"", "ATTRS{idVendor}==\"1\", ATTR{x}!=\"2\""]}"#,
        );
        let whole = whole.unwrap();
        assert!(whole.group_recursive);
        assert_eq!(whole.permissions, "rw");
        assert_eq!(
            whole.attributes(),
            BTreeSet::from(["idVendor".to_owned(), "x".to_owned()])
        );
    }

    #[test]
    fn rules_that_take_many_steps_are_applied_to_fewer_devices() {
        let of = |rule: &str, count| {
            let rules = vec![format!("'{rule}'"); count];
            parse(&format!("udevRules: [{}]", rules.join(", ")))
        };
        let usual = of(r#"SUBSYSTEM=="tty", ATTRS{idVendor}=="0403""#, RULES_MAX).unwrap();
        assert_eq!(usual.candidates_max(), CANDIDATES_MAX);
        let many = of(&format!(r#"TAG=="*{}""#, "a".repeat(10)), RULES_MAX).unwrap();
        assert_eq!(many.steps, 64 * (255 * 11 + 1));
        assert_eq!(many.candidates_max(), 5568);
        let refused = of(&format!(r#"TAG=="*{}""#, "a".repeat(12)), RULES_MAX);
        let refused = refused.unwrap_err();
        assert!(
            refused.contains("`udevRules[60]: TAG==\"*aaa") && refused.contains("200000 steps"),
            "{refused}"
        );
    }

    #[test]
    fn the_discovery_properties_of_kubevirt_are_read() {
        let of = |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
        let read = |properties| Details::parse("udevRules: ['TAG==\"a\"']", &properties);
        let named = read(of(RESOURCE_PROPERTY, "akri.sh/udev-gpu")).unwrap();
        assert_eq!(named.resource.unwrap(), "AKRI_SH_UDEV-GPU");
        assert!(read(of(VFIO_PROPERTY, " True ")).unwrap().has_vfio);
        assert!(!read(of(VFIO_PROPERTY, "false")).unwrap().has_vfio);
        let refused = read(of(VFIO_PROPERTY, "yes")).unwrap_err();
        assert!(
            refused.contains("`vfioPassthrough` must be true or false"),
            "{refused}"
        );
    }

    #[test]
    fn what_cannot_work_is_refused_with_its_place() {
        for (yaml, place) in [
            ("", "`udevRules` is missing"),
            ("udevRules: []", "`udevRules` is missing"),
            ("udevRule: []", "`udevRule` is no key of udev"),
            ("udevRules: {}", "`udevRules` must be text"),
            ("udevRules: ['', 'x']", "`udevRules[0]: `: it is empty"),
            (
                "udevRules: ['TAG==\"a\"', 'x']",
                "`udevRules[1]: x`: a field must stand here",
            ),
            (
                "{udevRules: ['TAG==\"a\"'], groupRecursive: 1}",
                "`groupRecursive: 1`",
            ),
            (
                "{udevRules: ['TAG==\"a\"'], permissions: rx}",
                "`permissions: \"rx\"` must be one of rwm, r, w, m",
            ),
            (
                "{udevRules: ['TAG==\"a\"'], identity: port}",
                "`identity: \"port\"` must be one of path, serial",
            ),
            (
                "{udevRules: ['TAG==\"a\"'], group: 1}",
                "`group` is no key of udev; known here: udevRules",
            ),
        ] {
            let message = parse(yaml).unwrap_err();
            assert!(message.contains(place), "{yaml}\n said {message}");
        }
        let many = vec!["'TAG==\"a\"'"; 65].join(",");
        let message = parse(&format!("udevRules: [{many}]"))
            .unwrap_err()
            .to_string();
        assert!(message.contains("65 rules; 64 are the most"), "{message}");
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "\\PC*") {
            drop(parse(&text));
            drop(parse(&format!("udevRules: ['{text}']")));
        }
    }
}
