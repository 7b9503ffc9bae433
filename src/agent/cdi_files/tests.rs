use super::*;
use std::os::unix::fs::MetadataExt as _;
use std::time::SystemTime;

const OURS: &str = r#"{"kind": "akri.sh/petiole", "devices": []}"#;
const LONG: Duration = Duration::from_secs(3600);

fn texts(instance: &str) -> BTreeMap<InstanceName, String> {
    [(InstanceName::new(instance), OURS.to_owned())].into()
}

/// Makes a file that was written an hour ago.
fn old_file(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - LONG).unwrap();
}

#[tokio::test]
async fn a_file_is_there_when_the_write_has_ended_and_its_folder_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("run/cdi");
    let files = CdiFiles::new(Some(folder.clone()));
    files.write(texts("cam-a")).await.unwrap();
    let path = folder.join("petiole-cam-a.json");
    assert_eq!(fs::read_to_string(&path).unwrap(), OURS);
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o644);
    files.write(texts("cam-a")).await.unwrap();
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
}

#[tokio::test]
async fn what_cannot_be_written_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().to_owned();
    let nowhere = CdiFiles::new(None).write(texts("cam-a")).await;
    assert!(nowhere.unwrap_err().contains("--cdi-folder"));
    assert_eq!(CdiFiles::new(None).write(BTreeMap::new()).await, Ok(()));
    let files = CdiFiles::new(Some(folder.clone()));
    assert!(files.write(texts("a/b")).await.is_err());
    let theirs = folder.join("petiole-cam-a.json");
    fs::write(&theirs, r#"{"kind": "vendor.com/cam"}"#).unwrap();
    let refused = files.write(texts("cam-a")).await.unwrap_err();
    assert!(
        refused.contains("petiole-cam-a.json is a file of somebody else"),
        "{refused}"
    );
    assert!(fs::read_to_string(&theirs).unwrap().contains("vendor.com"));
    let large = [(InstanceName::new("cam-b"), " ".repeat(256 * 1024 + 1))].into();
    let refused = files.write(large).await.unwrap_err();
    assert!(refused.contains("262144 are the most"), "{refused}");
}

#[test]
fn files_that_nobody_needs_are_removed_and_those_of_others_stay() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path();
    let files = CdiFiles::new(Some(folder.to_owned()));
    for (file, text) in [
        ("petiole-cam-a.json", OURS),
        ("petiole-cam-b.json", OURS),
        ("petiole-vendor.json", "{}"),
        ("nvidia.json", OURS),
    ] {
        old_file(&folder.join(file), text);
    }
    fs::write(folder.join("petiole-cam-new.json"), OURS).unwrap();
    let needed = [
        ("petiole-cam-a.json".to_owned(), None),
        ("petiole-cam-c.json".to_owned(), Some(OURS.to_owned())),
    ];
    let known = KnownContainers {
        needed: needed.into(),
        since: Some(LONG),
        ..KnownContainers::default()
    };
    files.reconcile(folder, || known).unwrap();
    let names = fs::read_dir(folder).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    assert_eq!(
        names,
        [
            "nvidia.json",
            "petiole-cam-a.json",
            "petiole-cam-c.json",
            "petiole-cam-new.json",
            "petiole-vendor.json"
        ]
    );
    let nowhere = folder.join("nowhere");
    assert_eq!(files.reconcile(&nowhere, KnownContainers::default), Ok(()));
}

#[tokio::test]
async fn one_file_that_cannot_be_written_or_removed_stops_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path();
    let files = CdiFiles::new(Some(folder.to_owned()));
    let large = || " ".repeat(256 * 1024 + 1);
    let of = |name: &str| [(InstanceName::new(name), OURS.to_owned())];
    let mut all: BTreeMap<_, _> = of("cam-b").into();
    all.extend([(InstanceName::new("cam-a"), large())]);
    let refused = files.write(all).await.unwrap_err();
    assert!(refused.contains("cam-a.json"), "{refused}");
    assert!(folder.join("petiole-cam-b.json").exists());
    let needed = [("a", Some(large())), ("b", Some(OURS.to_owned()))];
    let needed = needed.map(|(name, text)| (format!("petiole-cam-{name}-2.json"), text));
    old_file(&folder.join("petiole-cam-c.json"), OURS);
    let known = KnownContainers {
        needed: needed.into(),
        since: Some(LONG),
        ..KnownContainers::default()
    };
    let refused = files.reconcile(folder, || known).unwrap_err();
    assert!(refused.contains("cam-a-2.json"), "{refused}");
    assert!(folder.join("petiole-cam-b-2.json").exists());
    assert!(!folder.join("petiole-cam-c.json").exists());
}

#[test]
fn what_is_needed_is_asked_for_after_a_claim_has_written() {
    let dir = tempfile::tempdir().unwrap();
    let files = CdiFiles::new(Some(dir.path().to_owned()));
    let asked = || {
        assert!(files.writing.try_lock().is_err(), "the lock is held");
        KnownContainers::default()
    };
    assert_eq!(files.reconcile(dir.path(), asked), Ok(()));
}
