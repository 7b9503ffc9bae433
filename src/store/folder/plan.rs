//! Computes the set of Configurations from the manifests of a folder, and their status. Pure.
use crate::{
    api::{
        condition::{Condition, ConditionStatus, ConditionType},
        configuration::{Configuration, ConfigurationStatus, NodeReport, Problem},
        reason::Reason,
    },
    model::typed_names::ConfigurationKey,
    store::{
        interface::{Configurations, Report, configuration_key},
        manifest::Unreadable,
    },
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// The time for which a Configuration must be missing from its file, which still exists, before it counts as deleted: a
/// file that is being written is incomplete for a moment.
const BELIEVED_AFTER: Duration = Duration::from_secs(1);

/// A file as it was read.
#[derive(Debug)]
pub(super) struct File {
    pub(super) name: String,
    pub(super) configurations: Vec<Configuration>,
    pub(super) unreadable: Vec<Unreadable>,
}

/// The state that one reading leaves for the next.
#[derive(Debug, Default)]
pub(super) struct LastReading {
    /// The file of each Configuration, including hidden ones.
    pub(super) files: BTreeMap<ConfigurationKey, String>,
    /// The uptime since which a Configuration has been missing from its file.
    missing: BTreeMap<ConfigurationKey, Duration>,
    /// The files that could not be read since the start; `None` before the first reading.
    never_read: Option<BTreeSet<String>>,
    /// The Configurations that had files since the start and have none now, while other files were never read.
    deleted: BTreeSet<ConfigurationKey>,
}

#[derive(Debug, Default)]
pub(super) struct Stock {
    pub(super) configurations: Configurations,
    /// The problems of each file.
    pub(super) problems: BTreeMap<String, Vec<Problem>>,
}

/// Reads the files. A Configuration that was known and cannot be read now is hidden. One whose file is gone, or has had
/// other contents for a while, is deleted.
pub(super) fn take_stock(files: Vec<File>, known: &mut LastReading, now: Duration) -> Stock {
    let mut stock = Stock::default();
    let mut found: BTreeMap<ConfigurationKey, String> = BTreeMap::new();
    let (mut names, mut opaque) = (BTreeSet::new(), BTreeSet::new());
    for mut file in files {
        file.unreadable.extend(empty(&file));
        for configuration in std::mem::take(&mut file.configurations) {
            let key = configuration_key(&configuration.metadata);
            match found.get(&key) {
                Some(earlier) => file.unreadable.push(duplicate(key, earlier)),
                None => {
                    found.insert(key.clone(), file.name.clone());
                    let objects = &mut stock.configurations.objects;
                    objects.insert(key, Arc::new(configuration));
                }
            }
        }
        let is_opaque =
            |u: &Unreadable| u.key.is_none() && u.problem.reason != Reason::NotAConfiguration;
        if file.unreadable.iter().any(is_opaque) {
            opaque.insert(file.name.clone());
        }
        stock
            .configurations
            .hidden
            .extend(file.unreadable.iter().filter_map(|u| u.key.clone()));
        if !file.unreadable.is_empty() {
            let problems = file.unreadable.into_iter().map(|u| u.problem).collect();
            stock.problems.insert(file.name.clone(), problems);
        }
        names.insert(file.name);
    }
    let is_believed = |since: Duration| now.saturating_sub(since) >= BELIEVED_AFTER;
    let missing: BTreeMap<_, _> = missing(known, &found, &names, now)
        .filter(|(key, since)| opaque.contains(&known.files[key]) || !is_believed(*since))
        .collect();
    stock.configurations.hidden.extend(missing.keys().cloned());
    stock
        .configurations
        .hidden
        .retain(|key| !found.contains_key(key));
    let hidden = stock.configurations.hidden.iter();
    let files = hidden.filter_map(|key| Some((key.clone(), known.files.get(key)?.clone())));
    let files: BTreeMap<_, _> = files.chain(found).collect();
    let never_read = match known.never_read.take() {
        None => opaque,
        Some(before) => before.intersection(&opaque).cloned().collect(),
    };
    stock.configurations.is_complete = never_read.is_empty();
    let gone = known.files.keys().chain(&known.deleted);
    let gone = gone.filter(|key| !files.contains_key(*key)).cloned();
    stock.configurations.deleted = gone.filter(|_| !never_read.is_empty()).collect();
    *known = LastReading {
        files,
        missing,
        never_read: Some(never_read),
        deleted: stock.configurations.deleted.clone(),
    };
    stock
}

/// Returns the problem of a file in which there is nothing.
fn empty(file: &File) -> Option<Unreadable> {
    let message = "it has no Configuration; remove the file if those it had are to go";
    let is_empty = file.configurations.is_empty() && file.unreadable.is_empty();
    is_empty.then(|| Unreadable {
        key: None,
        problem: Problem::new(Reason::Empty, message),
    })
}

fn duplicate(key: ConfigurationKey, earlier: &str) -> Unreadable {
    let message = format!("{key} is in {earlier} already; that one is used");
    Unreadable {
        key: Some(key),
        problem: Problem::new(Reason::Duplicate, message),
    }
}

/// Returns the Configurations that are missing from their files, which still exist, each with the start of that time.
fn missing<'a>(
    known: &'a LastReading,
    found: &'a BTreeMap<ConfigurationKey, String>,
    names: &'a BTreeSet<String>,
    now: Duration,
) -> impl Iterator<Item = (ConfigurationKey, Duration)> + 'a {
    let missing = (known.files.iter())
        .filter(|(key, file)| !found.contains_key(*key) && names.contains(*file));
    missing.map(move |(key, _)| (key.clone(), known.missing.get(key).copied().unwrap_or(now)))
}

/// Returns whether each Configuration's handler has answered, or something is wrong with it.
pub(super) fn is_answered(
    configurations: &Configurations,
    reports: &BTreeMap<ConfigurationKey, Report>,
) -> bool {
    let mut keys = configurations.objects.keys();
    keys.all(|key| {
        let report = reports.get(key);
        report.is_some_and(|report| report.complete || !report.problems.is_empty())
    })
}

/// Returns the status of a Configuration that has one node.
pub(super) fn status_of(
    report: &Report,
    node: &str,
    before: Option<&ConfigurationStatus>,
    now: &str,
) -> ConfigurationStatus {
    let (value, reason, message) = match report.problems.first() {
        None => (
            ConditionStatus::True,
            Reason::Working.as_str(),
            "every device that is found is offered".to_owned(),
        ),
        Some(problem) => (
            ConditionStatus::False,
            problem.reason.as_str(),
            problem.message.clone(),
        ),
    };
    let ready = Condition::new(ConditionType::Ready, value, reason, message, now);
    let before = before.map_or(&[][..], |status| &status.conditions);
    let instances = i64::try_from(report.instances).unwrap_or(i64::MAX);
    ConfigurationStatus {
        observed_generation: None,
        conditions: vec![ready.replacing(before)],
        instances,
        brokers: None,
        nodes: vec![NodeReport {
            name: node.into(),
            instances,
            problems: report.problems.clone(),
        }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::manifest;

    fn manifest_of(names: &[&str]) -> String {
        let document = |name: &&str| {
            format!(
                "{{apiVersion: akri.sh/v0, kind: Configuration, metadata: {{name: {name}}}, spec: {{discoveryHandler: {{name: echo}}}}}}"
            )
        };
        names
            .iter()
            .map(document)
            .collect::<Vec<_>>()
            .join("\n---\n")
    }

    fn file(name: &str, text: &str) -> File {
        let (configurations, unreadable) = manifest::read_each(text);
        File {
            name: name.to_owned(),
            configurations,
            unreadable,
        }
    }

    /// Returns the names of the Configurations, those of hidden ones in brackets, and whether all are known.
    fn stock(known: &mut LastReading, seconds: u64, files: &[(&str, &str)]) -> (String, bool) {
        let files = files.iter().map(|(name, text)| file(name, text)).collect();
        let stock = take_stock(files, known, Duration::from_secs(seconds)).configurations;
        let here = stock.objects.keys().map(|key| key.name.to_string());
        let hidden = stock.hidden.iter().map(|key| format!("({})", key.name));
        (
            here.chain(hidden).collect::<Vec<_>>().join(" "),
            stock.is_complete,
        )
    }

    #[test]
    fn a_file_that_is_empty_or_cut_for_a_moment_deletes_nothing() {
        let mut known = LastReading::default();
        let whole = manifest_of(&["a", "b"]);
        assert_eq!(
            stock(&mut known, 0, &[("f", &whole)]),
            ("a b".to_owned(), true)
        );
        assert_eq!(stock(&mut known, 10, &[("f", "")]).0, "(a) (b)");
        assert_eq!(
            stock(&mut known, 60, &[("f", "")]).0,
            "(a) (b)",
            "an empty file is no deletion"
        );
        assert_eq!(stock(&mut known, 61, &[("f", &whole)]).0, "a b");
        assert_eq!(
            stock(&mut known, 70, &[("f", &manifest_of(&["a"]))]).0,
            "a (b)"
        );
        assert_eq!(stock(&mut known, 72, &[("f", &manifest_of(&["a"]))]).0, "a");
        assert_eq!(stock(&mut known, 73, &[]).0, "");
    }

    #[test]
    fn a_bad_file_hides_its_own_configurations_and_no_others() {
        let mut known = LastReading::default();
        let (a, b) = (manifest_of(&["a"]), manifest_of(&["b"]));
        stock(&mut known, 0, &[("a", &a), ("b", &b)]);
        assert_eq!(
            stock(&mut known, 9, &[("a", "a: ["), ("b", &b)]),
            ("b (a)".to_owned(), true)
        );
        assert_eq!(
            stock(&mut known, 99, &[("a", "a: [")]),
            ("(a)".to_owned(), true)
        );
        let misspelt = a.replace("spec:", "capcity: 2, spec:");
        assert_eq!(
            stock(&mut known, 100, &[("a", &misspelt)]),
            ("(a)".to_owned(), true)
        );
    }

    #[test]
    fn a_file_that_was_never_read_may_hide_anything_until_it_is() {
        let mut known = LastReading::default();
        let a = manifest_of(&["a"]);
        assert_eq!(
            stock(&mut known, 0, &[("a", &a), ("z", "z: [")]),
            ("a".to_owned(), false)
        );
        let deleted = |known: &LastReading| {
            Vec::from_iter(known.deleted.iter().map(|key| key.name.to_string()))
        };
        stock(&mut known, 1, &[("z", "z: [")]);
        assert_eq!(deleted(&known), ["a"], "it was read, and its file is gone");
        stock(&mut known, 2, &[("z", "z: [")]);
        assert_eq!(deleted(&known), ["a"]);
        stock(&mut known, 3, &[("a", &a), ("z", "z: [")]);
        assert!(deleted(&known).is_empty());
        assert_eq!(
            stock(&mut known, 9, &[("a", &a), ("z", &manifest_of(&["z"]))]),
            ("a z".to_owned(), true)
        );
        assert_eq!(
            stock(&mut known, 10, &[("a", &a), ("y", "y: [")]),
            ("a".to_owned(), true)
        );
    }
}
