//! The kinds of CDI device that Configurations may offer. Pure.
use super::{
    super::allow_list::{AllowList, Entry},
    spec::Kind,
};
use crate::model::container_nodes::CDI_KIND;

/// The kinds that are allowed. A kind of device brings everything that its CDI files do to a container, such as mounts of the node.
pub type Kinds = AllowList<Kind>;

/// An entry of the allow list.
pub type AllowedKind = Entry<Kind>;

impl Kinds {
    /// Returns an error with the reason if devices of this kind are not offered.
    pub(super) fn check(&self, kind: &Kind) -> Result<(), String> {
        if kind.to_string().eq_ignore_ascii_case(CDI_KIND) {
            return Err(format!(
                "`kind: {kind}`: agents write the files of this kind for containers that hold a slot of the device; it is never offered. Ask for the resource of the device's own Configuration"
            ));
        }
        let Self::Only(kinds) = self else {
            return Ok(());
        };
        if kinds.contains(kind) {
            return Ok(());
        }
        let allowed: Vec<String> = kinds.iter().map(Kind::to_string).collect();
        let allowed = if allowed.is_empty() {
            "no kind is".to_owned()
        } else {
            format!("allowed are {}", allowed.join(", "))
        };
        Err(format!(
            "`kind: {kind}`: this kind is not allowed on this node, {allowed}. The administrator of the agents allows it with --cdi-kinds (the chart's cdi.kinds)"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(texts: &[&str]) -> Kinds {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn only_kinds_of_the_list_are_allowed_and_the_message_names_them() {
        let gpu = "nvidia.com/gpu".parse().unwrap();
        assert_eq!(
            kinds(&["pflex.io/block", "nvidia.com/gpu"]).check(&gpu),
            Ok(())
        );
        assert_eq!(kinds(&["*"]).check(&gpu), Ok(()));
        assert_eq!(kinds(&["pflex.io/block", "*"]).check(&gpu), Ok(()));
        let refused = kinds(&["pflex.io/block", "a.b/c"]).check(&gpu).unwrap_err();
        assert!(
            refused.contains("allowed are a.b/c, pflex.io/block."),
            "{refused}"
        );
        let refused = kinds(&[]).check(&gpu).unwrap_err();
        assert!(refused.contains("`kind: nvidia.com/gpu`"), "{refused}");
        assert!(refused.contains("no kind is."), "{refused}");
        assert!(refused.contains("--cdi-kinds"), "{refused}");
    }

    #[test]
    fn the_kind_that_agents_write_is_never_offered() {
        let own = CDI_KIND.parse().unwrap();
        for allowed in [&["*"][..], &[CDI_KIND], &[]] {
            let refused = kinds(allowed).check(&own).unwrap_err();
            assert!(refused.contains("never offered"), "{allowed:?}: {refused}");
        }
    }

    #[test]
    fn what_is_no_kind_is_refused_where_it_is_written() {
        for text in ["gpu", "nvidia.com/", "nvidia.com/*", ""] {
            assert!(text.parse::<AllowedKind>().is_err(), "{text}");
        }
    }
}
