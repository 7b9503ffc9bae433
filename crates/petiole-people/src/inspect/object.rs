//! Defines the objects that are explained, and the names of their kinds. Pure.
use petiole_model::model::names::ObjectKey;
use std::fmt;

/// A kind of object that is explained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Pod,
    Instance,
    Configuration,
    Deployment,
    ReplicaSet,
    StatefulSet,
    DaemonSet,
    Job,
}

/// An object that is explained.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Object {
    pub kind: Kind,
    pub key: ObjectKey,
}

impl Kind {
    /// The kinds whose objects have Pods of their own.
    pub(super) const WORKLOADS: [Self; 5] = [
        Self::Deployment,
        Self::ReplicaSet,
        Self::StatefulSet,
        Self::DaemonSet,
        Self::Job,
    ];

    /// Returns the kind of this name, in a form that kubectl takes.
    pub fn parse(text: &str) -> Option<Self> {
        let kind = text.to_lowercase();
        let mut groups = [".akri.sh", ".apps", ".batch"].into_iter();
        let kind = groups
            .find_map(|group| kind.strip_suffix(group))
            .unwrap_or(&kind);
        let others = [Self::Pod, Self::Instance, Self::Configuration];
        others.into_iter().chain(Self::WORKLOADS).find(|known| {
            let name = known.as_str().to_lowercase();
            kind == known.short() || kind.strip_suffix('s').unwrap_or(kind) == name
        })
    }

    fn short(self) -> &'static str {
        match self {
            Self::Pod => "po",
            Self::Instance => "akrii",
            Self::Configuration => "akric",
            Self::Deployment => "deploy",
            Self::ReplicaSet => "rs",
            Self::StatefulSet => "sts",
            Self::DaemonSet => "ds",
            Self::Job => "job",
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pod => "Pod",
            Self::Instance => "Instance",
            Self::Configuration => "Configuration",
            Self::Deployment => "Deployment",
            Self::ReplicaSet => "ReplicaSet",
            Self::StatefulSet => "StatefulSet",
            Self::DaemonSet => "DaemonSet",
            Self::Job => "Job",
        }
    }

    /// Returns whether objects of this kind have Pods of their own.
    pub fn is_workload(self) -> bool {
        Self::WORKLOADS.contains(&self)
    }
}

impl Object {
    pub fn new(kind: Kind, key: ObjectKey) -> Self {
        Self { kind, key }
    }

    /// Returns whether a Pod of this name may be the workload's. The name of a Deployment's Pod has two parts more, those of
    /// other workloads one.
    pub(super) fn may_have_made(&self, pod: &str) -> bool {
        let more = pod.strip_prefix(self.key.name.as_str());
        let more = more.and_then(|more| more.strip_prefix('-'));
        let is_deployment = self.kind == Kind::Deployment;
        let parts = if is_deployment { 2 } else { 1 };
        more.is_some_and(|more| more.split('-').count() == parts)
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.as_str(), self.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_read_in_the_forms_that_kubectl_takes() {
        for (text, expected) in [
            ("po", Some(Kind::Pod)),
            ("Pods", Some(Kind::Pod)),
            ("akrii", Some(Kind::Instance)),
            ("instances.akri.sh", Some(Kind::Instance)),
            ("akric", Some(Kind::Configuration)),
            ("configuration", Some(Kind::Configuration)),
            ("deployment", Some(Kind::Deployment)),
            ("deployments", Some(Kind::Deployment)),
            ("deployment.apps", Some(Kind::Deployment)),
            ("deploy", Some(Kind::Deployment)),
            ("rs", Some(Kind::ReplicaSet)),
            ("replicasets.apps", Some(Kind::ReplicaSet)),
            ("sts", Some(Kind::StatefulSet)),
            ("ds", Some(Kind::DaemonSet)),
            ("daemonset", Some(Kind::DaemonSet)),
            ("job", Some(Kind::Job)),
            ("jobs.batch", Some(Kind::Job)),
            ("cronjob", None),
            ("instances.example.org", None),
            ("", None),
            ("s", None),
        ] {
            assert_eq!(Kind::parse(text), expected, "{text}");
        }
    }
}
