//! Parses `discoveryDetails` of the cdi handler: from YAML to checked [`Details`]. Pure.
use super::{
    super::{
        fields::{Fields, Handler},
        matcher::{Budget, Matcher},
    },
    spec::Kind,
};

/// The name of this handler in messages, and an example.
const HANDLER: Handler = Handler {
    name: "cdi",
    example: "kind: vendor.com/class",
};

/// The devices that a Configuration selects.
#[derive(Debug, Clone)]
pub(super) struct Details {
    pub(super) kind: Kind,
    /// The filter of names; `None` selects all devices of the kind.
    pub(super) name: Option<Matcher>,
}

impl Details {
    pub(super) fn parse(yaml: &str) -> Result<Self, String> {
        let mut fields = Fields::read(HANDLER, yaml)?.of("kind, name", &[])?;
        let kind = match fields.take("kind") {
            None => {
                return Err(
                    "`kind` is missing: the kind of CDI device, such as vendor.com/class".into(),
                );
            }
            Some(value) => {
                let text = value.as_str().ok_or_else(|| {
                    format!("`kind` must be one kind such as vendor.com/class, not {value}")
                })?;
                let kind = text.parse::<Kind>();
                kind.map_err(|why| format!("`kind: {text}`: {why}"))?
            }
        };
        let name = fields.matcher("name", &mut Budget::default())?;
        Ok(Self { kind, name })
    }

    pub(super) fn takes(&self, name: &str) -> bool {
        self.name
            .as_ref()
            .is_none_or(|matcher| matcher.matches(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_kind_alone_takes_everything_of_it_and_a_name_narrows_it() {
        let all = Details::parse("kind: pflex.io/block").unwrap();
        assert_eq!(all.kind.to_string(), "pflex.io/block");
        assert!(all.takes("pflex1") && all.takes("x"));
        for name in ["[pflex1, pflex2]", "{regex: 'pflex\\d'}"] {
            let some = Details::parse(&format!("kind: pflex.io/block\nname: {name}")).unwrap();
            assert!(some.takes("pflex1") && !some.takes("pflex11"), "{name}");
        }
        assert!(Details::parse("{kind: a/b, name: 3}").unwrap().takes("3"));
    }

    #[test]
    fn what_cannot_work_is_refused_with_its_place() {
        for (yaml, place) in [
            ("", "`kind` is missing"),
            (
                "knid: a/b",
                "`knid` is no key of cdi; known here: kind, name",
            ),
            ("kind: [", "not YAML"),
            ("just text", "such as `kind: vendor.com/class`"),
            ("kind: 3", "`kind` must be one kind"),
            ("kind: block", "`kind: block`: must be vendor/class"),
            (
                "kind: pflex.io/block=pflex1",
                "`kind: pflex.io/block=pflex1`: the class",
            ),
            (
                "{kind: a/b, nmae: x}",
                "`nmae` is no key of cdi; known here: kind, name",
            ),
            ("{kind: a/b, name: []}", "`name` is an empty list"),
            ("{kind: a/b, name: {regex: '('}}", "`name.regex: (`"),
        ] {
            let message = Details::parse(yaml).unwrap_err();
            assert!(message.contains(place), "{yaml}\n said {message}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "\\PC*") {
            drop(Details::parse(&text));
            drop(Details::parse(&format!("kind: {text}")));
            drop(Details::parse(&format!("kind: a/b\nname: {text}")));
        }
    }
}
