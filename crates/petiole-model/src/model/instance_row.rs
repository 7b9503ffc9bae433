//! The columns that every table of Instances begins with, as `kubectl get instances` has them.
use super::age;
use crate::model::typed_names::NodeName;
use std::time::Duration;

pub const COLUMNS: [&str; 5] = ["NAME", "CONFIG", "SHARED", "NODES", "AGE"];

/// The values of an Instance in these columns.
#[derive(Debug, Clone, Copy)]
pub struct InstanceRow<'a> {
    pub name: &'a str,
    pub configuration: &'a str,
    pub is_shared: bool,
    pub nodes: &'a [NodeName],
    /// Unknown of an Instance that has no creation time.
    pub age: Option<Duration>,
}

impl InstanceRow<'_> {
    pub fn cells(&self) -> [String; 5] {
        [
            self.name.to_owned(),
            self.configuration.to_owned(),
            self.is_shared.to_string(),
            format!("[{}]", self.nodes.join(",")),
            self.age.map(age::short).unwrap_or_default(),
        ]
    }
}
