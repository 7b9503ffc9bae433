//! What became of the input. Pure.
use crate::model::printable::printable;

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Converted {
    /// The manifests of all Configurations.
    pub manifests: String,
    /// What could not be converted, what is different with Petiole, and the values of the chart that are needed; a line each.
    pub said: Vec<String>,
    /// The number of entries that could not be converted.
    pub refused: usize,
}

impl Converted {
    pub(super) fn note(&mut self, origin: &str, what: &str) {
        self.said
            .push(printable(&format!("note: {origin}: {what}")));
    }

    pub(super) fn refuse(&mut self, origin: &str, why: &str) {
        self.refused += 1;
        self.said
            .push(printable(&format!("not converted: {origin}: {why}")));
    }
}
