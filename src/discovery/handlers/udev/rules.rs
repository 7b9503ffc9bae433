//! Parses the matches of udev rules: text to [`Rule`]s. Pure.
//!
//! A rule consists of `FIELD=="value"` and `FIELD!="value"` with commas between. All of them must hold.
use super::{
    super::matcher::Budget,
    pattern::Pattern,
    record::{Chain, Record},
};
use crate::model::limits;
use std::collections::BTreeSet;

/// The most matches of a rule. Beyond it: the Configuration is not used (`BadDiscoveryDetails`).
const MATCHES_MAX: usize = 32;
/// The longest name in `ATTR{name}`, in bytes. Beyond it: the Configuration is not used (`BadDiscoveryDetails`).
const NAME_MAX: usize = 255;
/// The part of an invalid rule that is shown, in bytes.
const SHOWN: usize = 200;
/// The fields that udev uses for actions, or that say nothing about a device that is present.
const NO_MATCH_FIELDS: &[&str] = &[
    "ACTION", "CONST", "NAME", "PROGRAM", "RESULT", "SECLABEL", "SYMLINK", "SYSCTL", "TEST", "RUN",
    "LABEL", "GOTO", "IMPORT", "OPTIONS", "OWNER", "GROUP", "MODE",
];

/// The condition that one rule sets on a device.
#[derive(Debug, Clone)]
pub(super) struct Rule {
    matches: Vec<Match>,
}

#[derive(Debug, Clone)]
struct Match {
    field: Field,
    is_equal: bool,
    pattern: Pattern,
}

/// The part of a device that a match compares. The plural ones compare the device and all its ancestors.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Field {
    Attr(String),
    Attrs(String),
    Devpath,
    Driver,
    Drivers,
    Env(String),
    Kernel,
    Kernels,
    Subsystem,
    Subsystems,
    Tag,
    Tags,
}

/// The three values that are known of a device before its files are read.
#[derive(Debug, Clone, Copy)]
pub(super) struct DeviceHead<'a> {
    pub(super) devpath: &'a str,
    pub(super) kernel: &'a str,
    pub(super) subsystem: &'a str,
}

impl Rule {
    /// Parses one rule. The error says what is wrong, and where.
    pub(super) fn parse(text: &str, budget: &mut Budget) -> Result<Self, String> {
        let mut rest = text.trim();
        let mut matches = vec![];
        if rest.is_empty() {
            return Err("it is empty and would select every device of the node".to_owned());
        }
        while !rest.is_empty() {
            let (one, after) = parse_match(rest, budget)
                .map_err(|why| format!("{why}, at `{}`", limits::cut(rest.to_owned(), SHOWN)))?;
            matches.push(one);
            let after = after.trim_start();
            rest = match after.strip_prefix(',') {
                Some(after) => after.trim_start(),
                None if after.is_empty() => after,
                None => {
                    let shown = limits::cut(after.to_owned(), SHOWN);
                    return Err(format!("a comma must stand before `{shown}`"));
                }
            };
            if matches.len() > MATCHES_MAX {
                return Err(format!(
                    "it has more than {MATCHES_MAX} matches: remove some"
                ));
            }
        }
        Ok(Self { matches })
    }

    /// Returns whether the rule selects a device.
    pub(super) fn takes(&self, chain: &Chain) -> bool {
        self.matches.iter().all(|one| one.holds(chain))
    }

    /// Returns whether the rule may select a device at this place.
    pub(super) fn may_take(&self, place: DeviceHead<'_>) -> bool {
        self.matches.iter().all(|one| {
            let text = match one.field {
                Field::Devpath => place.devpath,
                Field::Kernel => place.kernel,
                Field::Subsystem => place.subsystem,
                Field::Attr(_)
                | Field::Attrs(_)
                | Field::Driver
                | Field::Drivers
                | Field::Env(_)
                | Field::Kernels
                | Field::Subsystems
                | Field::Tag
                | Field::Tags => return true,
            };
            one.pattern.matches(text) == one.is_equal
        })
    }

    /// Returns whether the rule may select a device of a subsystem.
    pub(super) fn may_take_subsystem(&self, subsystem: &str) -> bool {
        let mut of_subsystem = (self.matches.iter()).filter(|one| one.field == Field::Subsystem);
        of_subsystem.all(|one| one.pattern.matches(subsystem) == one.is_equal)
    }

    /// Returns the names of the attributes that the rule uses.
    pub(super) fn attributes(&self) -> impl Iterator<Item = &str> {
        self.matches.iter().filter_map(|one| one.field.attribute())
    }
}

impl Field {
    fn attribute(&self) -> Option<&str> {
        if let Self::Attr(name) | Self::Attrs(name) = self {
            return Some(name);
        }
        None
    }
}

impl Match {
    fn holds(&self, chain: &Chain) -> bool {
        let own = chain.own();
        let is = |text: Option<&str>| text.is_some_and(|text| self.pattern.matches(text));
        let any = |has: &dyn Fn(&str, &Record) -> bool| chain.links().any(|(path, r)| has(path, r));
        let tagged = |tags: &BTreeSet<String>| tags.iter().any(|tag| self.pattern.matches(tag));
        let is_match = match &self.field {
            Field::Attr(name) => is(own.attributes.get(name).map(String::as_str)),
            Field::Attrs(name) => any(&|_, r| is(r.attributes.get(name).map(String::as_str))),
            Field::Devpath => is(Some(chain.devpath())),
            Field::Driver => is(own.driver.as_deref()),
            Field::Drivers => any(&|_, r| is(r.driver.as_deref())),
            Field::Env(name) => is(chain.property(name).as_deref()),
            Field::Kernel => is(Some(&super::record::kernel_name(chain.devpath()))),
            Field::Kernels => any(&|path, _| is(Some(&super::record::kernel_name(path)))),
            Field::Subsystem => is(own.subsystem.as_deref()),
            Field::Subsystems => any(&|_, r| is(r.subsystem.as_deref())),
            Field::Tag => tagged(&own.tags),
            Field::Tags => any(&|_, r| tagged(&r.tags)),
        };
        is_match == self.is_equal
    }
}

/// Parses one match at the beginning of a text. Returns the rest of the text too.
fn parse_match<'a>(text: &'a str, budget: &mut Budget) -> Result<(Match, &'a str), String> {
    let end = text.find(|c: char| !c.is_ascii_alphabetic());
    let (word, rest) = text.split_at(end.unwrap_or(text.len()));
    let (name, rest) = match rest.strip_prefix('{') {
        None => (None, rest),
        Some(rest) => {
            let (name, rest) = rest.split_once('}').ok_or("a `}` is missing")?;
            (Some(name), rest)
        }
    };
    let field = field(word, name)?;
    let rest = rest.trim_start();
    let (is_equal, rest) = match rest {
        _ if rest.starts_with("==") => (true, &rest[2..]),
        _ if rest.starts_with("!=") => (false, &rest[2..]),
        _ => {
            return Err(format!(
                "after {word} must come == or !=: a rule of a Configuration matches, and assigns nothing"
            ));
        }
    };
    let rest = rest.trim_start();
    let (value, rest) = quoted(rest).ok_or("the value must stand in double quotes")?;
    let may_be_regex = if is_equal {
        is_regex_when_equal(&field)
    } else {
        is_regex_when_unequal(&field)
    };
    let pattern = Pattern::new(&value, may_be_regex, budget)
        .map_err(|why| format!("the value of {word} is invalid: {why}"))?;
    let one = Match {
        field,
        is_equal,
        pattern,
    };
    Ok((one, rest))
}

fn field(word: &str, name: Option<&str>) -> Result<Field, String> {
    let plain = match word {
        "DEVPATH" => Some(Field::Devpath),
        "DRIVER" => Some(Field::Driver),
        "DRIVERS" => Some(Field::Drivers),
        "KERNEL" => Some(Field::Kernel),
        "KERNELS" => Some(Field::Kernels),
        "SUBSYSTEM" => Some(Field::Subsystem),
        "SUBSYSTEMS" => Some(Field::Subsystems),
        "TAG" => Some(Field::Tag),
        "TAGS" => Some(Field::Tags),
        _ => None,
    };
    if let Some(field) = plain {
        return match name {
            None => Ok(field),
            Some(_) => Err(format!("{word} has no name in braces")),
        };
    }
    let named: fn(String) -> Field = match word {
        "ATTR" => Field::Attr,
        "ATTRS" => Field::Attrs,
        "ENV" => Field::Env,
        _ if NO_MATCH_FIELDS.contains(&word) => {
            return Err(format!(
                "{word} says nothing about a device that is there: remove it"
            ));
        }
        _ => {
            return Err(
                "a field must stand here: ATTR{…}, ATTRS{…}, DEVPATH, DRIVER, DRIVERS, ENV{…}, KERNEL, KERNELS, SUBSYSTEM, SUBSYSTEMS, TAG or TAGS"
                    .to_owned(),
            );
        }
    };
    let name =
        name.ok_or_else(|| format!("{word} needs a name in braces, as in {word}{{name}}"))?;
    // The name of an attribute is a path in sysfs. It must not lead out of sysfs.
    let is_bad = |name: &str| {
        let leads_away = name.starts_with('/') || name.split('/').any(|part| part == "..");
        name.is_empty() || name.len() > NAME_MAX || name.contains('\0') || leads_away
    };
    if !is_bad(name) {
        Ok(named(name.to_owned()))
    } else {
        Err(format!(
            "the name in {word}{{…}} must have 1 to {NAME_MAX} bytes, and no `..`"
        ))
    }
}

/// Returns whether Akri compares the field with `==` by a regular expression instead of by libudev.
fn is_regex_when_equal(field: &Field) -> bool {
    let by_libudev = matches!(
        field,
        Field::Devpath | Field::Env(_) | Field::Kernel | Field::Tag
    );
    !by_libudev && is_regex_when_unequal(field)
}

/// Returns whether Akri compares the field with `!=` by a regular expression instead of by libudev.
fn is_regex_when_unequal(field: &Field) -> bool {
    !matches!(field, Field::Attr(_) | Field::Subsystem)
}

/// Parses a text in quotes. Returns the rest of the text too. `\"` is a quote; any other backslash belongs to the
/// pattern.
fn quoted(text: &str) -> Option<(String, &str)> {
    let inner = text.strip_prefix('"')?;
    let mut value = String::new();
    let mut characters = inner.char_indices().peekable();
    while let Some((at, c)) = characters.next() {
        match c {
            '"' => return Some((value, &inner[at + 1..])),
            '\\' if characters.peek().is_some_and(|(_, next)| *next == '"') => {
                characters.next();
                value.push('"');
            }
            '\\' => {
                value.push('\\');
                // The character after the backslash is copied, so that `\\` before the quote ends the value.
                value.extend(characters.next().map(|(_, next)| next));
            }
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<Rule, String> {
        Rule::parse(text, &mut Budget::default())
    }

    #[test]
    fn akris_rules_are_read() {
        for (rule, count) in [
            (r#"KERNEL=="video[0-9]*""#, 1),
            (
                r#"KERNEL=="video[0-9]*",SUBSYSTEM=="video4linux", ATTR{idVendor}=="05a9""#,
                3,
            ),
            (
                r#"KERNEL=="video[0-9]*", ENV{ID_V4L_CAPABILITIES}==":capture:""#,
                2,
            ),
            (
                r#"  SUBSYSTEM == "sound" , ATTRS{idProduct} != "a|b" , "#,
                2,
            ),
            (
                r#"DEVPATH=="/devices/*", DRIVER!="x", DRIVERS=="y", KERNELS=="1-1", SUBSYSTEMS=="usb", TAG=="t", TAGS!="u""#,
                7,
            ),
            (r#"ATTR{power/control}=="auto\"x\\""#, 1),
        ] {
            assert_eq!(parse(rule).unwrap().matches.len(), count, "{rule}");
        }
    }

    #[test]
    fn what_cannot_be_a_match_is_refused_with_its_place() {
        for (rule, why) in [
            ("", "it is empty"),
            (r#"KERNEL="video0""#, "must come == or !="),
            (r#"KERNEL+="video0""#, "must come == or !="),
            (r#"TEST=="x""#, "TEST says nothing about a device"),
            (r#"ACTION=="add", KERNEL=="x""#, "ACTION says nothing"),
            (r#"KERNEL=="x", TYPO=="y""#, r#"at `TYPO=="y"`"#),
            (
                r#"KERNEL=="x" SUBSYSTEM=="y""#,
                "a comma must stand before `SUBSYSTEM",
            ),
            (r#"KERNEL=="x"#, "double quotes"),
            (r"KERNEL==x", "double quotes"),
            (r#"ATTR=="x""#, "needs a name in braces"),
            (r#"KERNEL{a}=="x""#, "has no name in braces"),
            (r#"ATTR{a=="x""#, "a `}` is missing"),
            (r#"ATTR{../../../etc/shadow}=="x""#, "no `..`"),
            (r#"ATTR{/etc/shadow}=="x""#, "no `..`"),
            (r#"ATTRS{a}=="(""#, "the value of ATTRS is invalid"),
            (r#"KERNEL==i"x""#, "double quotes"),
        ] {
            let message = parse(rule).unwrap_err();
            assert!(message.contains(why), "{rule} said {message}");
        }
        assert!(parse(&vec![r#"KERNEL=="x""#; 33].join(",")).is_err());
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "\\PC*", more in "[A-Z{}=!\"\\\\,a ]{0,40}") {
            drop(parse(&text));
            drop(parse(&more));
        }
    }
}
