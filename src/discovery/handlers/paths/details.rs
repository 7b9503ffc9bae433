//! Parses `discoveryDetails` of the handler `paths`: from YAML to checked [`Details`]. Pure.
use super::super::{
    fields::{Fields, Handler, strings},
    matcher::Budget,
};
use crate::{
    discovery::glob::Glob,
    model::{container_devices::is_below_dev, limits},
};
use serde_json::Value;
use std::collections::BTreeSet;

/// The name of this handler in messages, and an example.
const HANDLER: Handler = Handler {
    name: "paths",
    example: "groups: [/dev/kvm]",
};
/// The most groups of a Configuration of `paths`. Beyond it: the Configuration is not used (`BadDiscoveryDetails`).
const GROUPS_MAX: usize = 64;
/// The most patterns of a group of `paths`. Beyond it: the Configuration is not used (`BadDiscoveryDetails`).
const PATTERNS_MAX: usize = 16;

/// The device nodes that a Configuration selects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Details {
    pub(super) groups: Vec<Group>,
    pub(super) permissions: &'static str,
}

/// Patterns whose device nodes are one device, or with `each` one device each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) paths: Vec<Pattern>,
    /// The patterns whose device nodes are added to each device of the group.
    pub(super) optional: Vec<Pattern>,
    pub(super) each: bool,
}

/// A path below `/dev` whose parts may be globs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern {
    pub(super) text: String,
    pub(super) parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    Name(String),
    Glob(Glob),
}

impl Details {
    pub(super) fn parse(yaml: &str) -> Result<Self, String> {
        let mut fields = Fields::read(HANDLER, yaml)?.of("groups, permissions", &[])?;
        let permissions = fields.permissions()?;
        let groups = match fields.take("groups") {
            Some(Value::Array(groups)) => groups,
            Some(group) => vec![group],
            None => vec![],
        };
        if groups.is_empty() {
            let example = HANDLER.example;
            return Err(format!(
                "`groups` is missing: the device nodes, such as `{example}`"
            ));
        }
        bounded("groups", groups.len(), GROUPS_MAX)?;
        let mut budget = Budget::default();
        let groups = groups.into_iter().map(|group| read(group, &mut budget));
        let groups = groups.collect::<Result<Vec<_>, _>>()?;
        // A group is known by its first path, so that others can be added without making another device of it.
        let mut firsts = BTreeSet::new();
        let mut all = groups.iter().map(Group::first);
        if let Some(path) = all.find(|path| !firsts.insert(*path)) {
            return Err(format!(
                "`groups`: two begin with {path}, and a group is known by its first path: make them one, or begin one with another path"
            ));
        }
        Ok(Self {
            groups,
            permissions,
        })
    }
}

impl Group {
    /// Returns its first path, by which it is known.
    pub(super) fn first(&self) -> &str {
        &self.paths[0].text
    }
}

/// Reads a group: a path, a list of paths, or keys and values.
fn read(group: Value, budget: &mut Budget) -> Result<Group, String> {
    let (paths, optional, each) = if group.is_object() {
        let fields = Fields::new(HANDLER, "groups", group)?;
        let mut fields = fields.of("paths, optional, each", &[])?;
        let each = fields.switch("each", false)?;
        (fields.take("paths"), fields.take("optional"), each)
    } else {
        (Some(group), None, false)
    };
    let paths = patterns("groups.paths", paths, budget)?;
    if paths.is_empty() {
        let message = "`groups.paths` is missing: the paths of device nodes, such as /dev/kvm";
        return Err(message.to_owned());
    }
    Ok(Group {
        paths,
        optional: patterns("groups.optional", optional, budget)?,
        each,
    })
}

fn patterns(key: &str, value: Option<Value>, budget: &mut Budget) -> Result<Vec<Pattern>, String> {
    let texts = strings(key, value)?;
    bounded(key, texts.len(), PATTERNS_MAX)?;
    let read = |text: String| {
        let why = match pattern(&text, budget) {
            Ok(pattern) => return Ok(pattern),
            Err(why) => why,
        };
        let shown = limits::cut(text, limits::CONTAINER_PATH_MAX);
        Err(format!("`{key}: {shown}`: {why}"))
    };
    texts.into_iter().map(read).collect()
}

fn pattern(text: &str, budget: &mut Budget) -> Result<Pattern, String> {
    let below = text.strip_prefix("/dev/").filter(|_| is_below_dev(text));
    let below = below.ok_or(
        "it must be a path below /dev without `.`, `..` and `//`, and none that container runtimes make themselves",
    )?;
    let parts = below.split('/').map(|part| {
        if !part.contains(['*', '?', '[']) {
            return Ok(Part::Name(part.to_owned()));
        }
        let glob = Glob::new(part);
        budget.take_steps(glob.steps())?;
        Ok::<_, String>(Part::Glob(glob))
    });
    Ok(Pattern {
        text: text.to_owned(),
        parts: parts.collect::<Result<_, _>>()?,
    })
}

fn bounded(key: &str, count: usize, most: usize) -> Result<(), String> {
    if count <= most {
        return Ok(());
    }
    Err(format!(
        "`{key}` has {count} entries; {most} are the most: remove some, or make a second Configuration"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn texts(patterns: &[Pattern]) -> Vec<&str> {
        patterns.iter().map(|pattern| &*pattern.text).collect()
    }

    #[test]
    fn a_group_is_a_path_a_list_of_paths_or_says_more() {
        let yaml = "groups:\n- /dev/kvm\n- [/dev/dri/card0, '/dev/dri/renderD*']\n- {paths: '/dev/video[0-9]*', optional: /dev/media0, each: true}";
        let details = Details::parse(yaml).unwrap();
        assert_eq!(details.permissions, "rwm");
        let [kvm, gpu, cameras] = &details.groups[..] else {
            panic!("{details:?}");
        };
        assert_eq!((texts(&kvm.paths), kvm.each), (vec!["/dev/kvm"], false));
        assert_eq!(texts(&gpu.paths), ["/dev/dri/card0", "/dev/dri/renderD*"]);
        assert!(matches!(
            gpu.paths[1].parts[..],
            [Part::Name(_), Part::Glob(_)]
        ));
        assert_eq!(texts(&cameras.optional), ["/dev/media0"]);
        assert!(cameras.each);
        let one = Details::parse("{groups: /dev/net/tun, permissions: rw}").unwrap();
        assert_eq!((one.groups.len(), one.permissions), (1, "rw"));
    }

    #[test]
    fn what_cannot_work_is_refused_with_its_place() {
        let many = |count: usize| {
            let paths = (0..count).map(|n| format!("/dev/a{n}"));
            paths.collect::<Vec<_>>().join(", ")
        };
        for (yaml, place) in [
            ("", "`groups` is missing"),
            ("groups: []", "`groups` is missing"),
            ("/dev/kvm", "such as `groups: [/dev/kvm]`"),
            (
                "{groups: /dev/kvm, portt: 1}",
                "`portt` is no key of paths; known here: groups, permissions",
            ),
            (
                "groups: [{path: /dev/kvm}]",
                "`groups.path` is no key of paths; known here: paths, optional, each",
            ),
            (
                "groups: [{optional: /dev/kvm}]",
                "`groups.paths` is missing",
            ),
            ("groups: [{paths: /dev/kvm, each: 1}]", "`groups.each: 1`"),
            (
                "groups: [kvm]",
                "`groups.paths: kvm`: it must be a path below /dev",
            ),
            ("groups: [/etc/passwd]", "`groups.paths: /etc/passwd`"),
            ("groups: [/dev/../etc/passwd]", "without `.`, `..`"),
            ("groups: [/dev/null]", "runtimes make themselves"),
            (
                "groups: [{paths: /dev/kvm, optional: [/dev]}]",
                "`groups.optional: /dev`",
            ),
            (
                "groups: [/dev/kvm, [/dev/kvm, /dev/fuse]]",
                "two begin with /dev/kvm",
            ),
            (
                "{groups: /dev/kvm, permissions: rx}",
                "`permissions: \"rx\"`",
            ),
            (
                &format!("groups: [{}]", many(65)),
                "`groups` has 65 entries; 64 are the most",
            ),
            (
                &format!("groups: [[{}]]", many(17)),
                "`groups.paths` has 17 entries; 16 are the most",
            ),
            (
                &format!("groups: ['/dev/{}']", "a".repeat(251)),
                "below /dev",
            ),
        ] {
            let message = Details::parse(yaml).unwrap_err();
            assert!(message.contains(place), "{yaml}\n said {message}");
        }
        let slow = vec![format!("'/dev/*{}'", "a".repeat(240)); 4].join(", ");
        let message = Details::parse(&format!("groups: [[{slow}]]")).unwrap_err();
        assert!(message.to_string().contains("200000 steps"), "{message}");
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "\\PC*") {
            drop(Details::parse(&text));
            drop(Details::parse(&format!("groups: ['/dev/{text}']")));
        }
    }
}
