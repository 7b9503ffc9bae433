//! Tests of the chart: the rendered files in `tests/golden/chart`, and the values that it rejects.
//!
//! `PETIOLE_UPDATE_GOLDEN=1 cargo test --test it chart_renders` writes the files again.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod variants;

use petiole_cli::removal;
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};
use variants::{REFUSED, VARIANTS};

/// A variant sets every value of the chart. So a template that ignores a value, or writes it into the wrong place, is seen in
/// the files.
#[test]
fn every_value_is_set_by_a_variant() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("charts/petiole/values.yaml");
    let values: serde_json::Value =
        serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let set = VARIANTS.iter().flat_map(|(_, values)| values.iter());
    let set: Vec<String> = set
        .flat_map(|line| line.split(','))
        .filter_map(|value| value.split_once('='))
        .map(|(key, _)| key.replace('[', ".").replace(']', ""))
        .collect();
    let is_set = |leaf: &String| {
        let is_it = |key: &String| key == leaf || key.starts_with(&format!("{leaf}."));
        set.iter().any(is_it)
    };
    let unset: Vec<String> = (leaves("", &values).into_iter())
        .filter(|leaf| !is_set(leaf))
        .collect();
    assert!(unset.is_empty(), "no variant sets {unset:?}");
}

/// Returns the paths of the values that a user sets as a whole.
fn leaves(path: &str, value: &serde_json::Value) -> Vec<String> {
    // What Kubernetes defines, or what has keys of the user's own, is set as a whole.
    let is_whole = ["resources", "nodeSelector", "labels"]
        .iter()
        .any(|end| path.ends_with(end));
    match value
        .as_object()
        .filter(|keys| !keys.is_empty() && !is_whole)
    {
        None => vec![path.to_owned()],
        Some(keys) => (keys.iter())
            .flat_map(|(key, value)| leaves(format!("{path}.{key}").trim_start_matches('.'), value))
            .collect(),
    }
}

/// The folders of each distribution, as its kubelet has them.
#[test]
fn each_distribution_has_the_folders_of_its_kubelet() {
    let Some(helm) = helm() else { return };
    let page =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("charts/petiole/README.md"))
            .unwrap();
    for (distribution, row, root) in [
        (
            "",
            "| kubeadm, kind, k3s, RKE2, Talos |",
            "/var/lib/kubelet",
        ),
        (
            "k3s",
            "| kubeadm, kind, k3s, RKE2, Talos |",
            "/var/lib/kubelet",
        ),
        ("k0s", "| k0s |", "/var/lib/k0s/kubelet"),
        (
            "microk8s",
            "| MicroK8s |",
            "/var/snap/microk8s/common/var/lib/kubelet",
        ),
    ] {
        let output = render(&helm, &[&format!("kubelet.distribution={distribution}")]);
        let text = String::from_utf8(output.stdout).unwrap();
        let documents = serde_saphyr::from_multiple::<serde_json::Value>(&text).unwrap();
        let agent = documents.iter().find(|d| d["kind"] == "DaemonSet").unwrap();
        let pod = &agent["spec"]["template"]["spec"];
        let plugins = "/var/lib/kubelet/device-plugins".to_owned();
        let resources = format!("{root}/pod-resources");
        let row = page.lines().find(|line| line.starts_with(row)).unwrap();
        for (name, variable, folder) in [
            ("device-plugins", "PETIOLE_DEVICE_PLUGIN_DIR", plugins),
            ("pod-resources", "PETIOLE_POD_RESOURCES_DIR", resources),
        ] {
            assert!(row.contains(&format!("`{folder}`")), "{row}: {folder}");
            let container = &pod["containers"][0];
            let named = |list: &serde_json::Value| {
                let mut list = list.as_array().unwrap().iter();
                list.find(|item| [name, variable].contains(&item["name"].as_str().unwrap()))
                    .unwrap()
                    .clone()
            };
            assert_eq!(named(&pod["volumes"])["hostPath"]["path"], *folder);
            assert_eq!(named(&container["volumeMounts"])["mountPath"], *folder);
            assert_eq!(named(&container["env"])["value"], *folder);
        }
    }
}

#[test]
fn every_variant_renders_as_kept() {
    let Some(helm) = helm() else { return };
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/chart");
    for (name, values) in VARIANTS {
        let output = render(&helm, values);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {errors}");
        let now = String::from_utf8(output.stdout).unwrap();
        // A chart from a branch has another version with every commit: Flux would replace the Pods each time.
        assert!(!now.contains("\n        helm.sh/chart:"), "{name}: of Pods");
        let path = golden.join(format!("{name}.yaml"));
        if env::var_os("PETIOLE_UPDATE_GOLDEN").is_some() {
            fs::create_dir_all(&golden).unwrap();
            fs::write(&path, &now).unwrap();
        }
        let kept = fs::read_to_string(&path).unwrap_or_default();
        let line = now.lines().zip(kept.lines()).position(|(n, k)| n != k);
        assert!(
            now == kept,
            "{name}: differs from line {} on; PETIOLE_UPDATE_GOLDEN=1 cargo test --test it chart_renders",
            line.unwrap_or(now.lines().count().min(kept.lines().count())) + 1
        );
    }
}

#[test]
fn values_that_are_unknown_or_wrong_are_refused_by_name() {
    let Some(helm) = helm() else { return };
    for (value, named) in REFUSED {
        let output = render(&helm, &[value]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{value} is taken");
        assert!(errors.contains(named), "{value}: {errors}");
    }
}

#[test]
fn the_definitions_can_be_had_from_the_chart() {
    let Some(helm) = helm() else { return };
    let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("charts/petiole");
    let output = Command::new(helm)
        .args(["show", "crds"])
        .arg(chart)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let documents = serde_saphyr::from_multiple::<serde_json::Value>(&text).unwrap();
    let names: Vec<_> = documents
        .iter()
        .map(|d| d["metadata"]["name"].clone())
        .collect();
    assert_eq!(names, ["configurations.akri.sh", "instances.akri.sh"]);
}

/// Tools other than Helm that apply the chart's objects treat a hook as an ordinary object. So the Job must know which
/// of Helm's records proves that the release is being removed, and must be allowed to read it.
#[test]
fn the_uninstall_hook_acts_by_helms_records_of_its_own_release() {
    let Some(helm) = helm() else { return };
    let output = render(&helm, &[]);
    let text = String::from_utf8(output.stdout).unwrap();
    let documents = serde_saphyr::from_multiple::<serde_json::Value>(&text).unwrap();
    let of_tidy =
        |d: &&serde_json::Value| d["metadata"]["labels"]["app.kubernetes.io/component"] == "tidy";
    let of_tidy: Vec<_> = documents.iter().filter(of_tidy).collect();
    for document in &of_tidy {
        let annotations = &document["metadata"]["annotations"];
        assert_eq!(annotations["helm.sh/hook"], "pre-delete", "{document}");
    }
    let one = |kind: &str, name: &str| {
        let is_it = |d: &&&serde_json::Value| d["kind"] == kind && d["metadata"]["name"] == name;
        (*of_tidy.iter().find(is_it).unwrap()).clone()
    };
    let job = one("Job", "petiole-uninstall");
    let args = &job["spec"]["template"]["spec"]["containers"][0]["args"];
    assert_eq!(args[1], "--helm-release=petiole");
    assert_eq!(args[2], "--helm-revision=1");
    let release = removal::Release {
        name: "petiole".to_owned(),
        namespace: "petiole".to_owned(),
        revision: 1,
    };
    let records: Vec<_> = (release.revisions())
        .map(|revision| release.record_name(revision))
        .collect();
    let rules = &one("Role", "petiole-tidy-release")["rules"];
    assert_eq!(rules.as_array().unwrap().len(), 1);
    assert_eq!(rules[0]["resourceNames"], serde_json::json!(records));
    assert_eq!(rules[0]["verbs"], serde_json::json!(["get"]));
}

/// The notes are read at each installation, upgrade and test.
#[test]
fn the_notes_are_short() {
    let notes = Path::new(env!("CARGO_MANIFEST_DIR")).join("charts/petiole/templates/NOTES.txt");
    let notes = fs::read_to_string(notes).unwrap();
    let written = notes.lines().filter(|line| !line.starts_with("{{"));
    assert!(written.count() <= 10, "{notes}");
}

/// A release packs the chart with an empty tag: the image is that of the program's version, and never `dev`.
#[test]
fn without_a_tag_the_image_is_that_of_the_version() {
    let Some(helm) = helm() else { return };
    let output = render(&helm, &["image.tag="]);
    let text = String::from_utf8(output.stdout).unwrap();
    let images: Vec<&str> = (text.lines())
        .filter_map(|line| line.trim().strip_prefix("image: "))
        .collect();
    let version = format!("\"localhost/petiole:{}\"", env!("CARGO_PKG_VERSION"));
    assert!(!images.is_empty());
    assert!(images.iter().all(|image| *image == version), "{images:?}");
}

/// Another chart may have this one under a name of its own, and a condition for it. Petiole's commands find its objects by their labels.
#[test]
fn as_a_part_of_another_chart_it_keeps_its_labels() {
    let Some(helm) = helm() else { return };
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("charts")).unwrap();
    let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("charts/petiole");
    std::os::unix::fs::symlink(chart, folder.path().join("charts/petiole")).unwrap();
    let of_all = format!(
        "apiVersion: v2\nname: edge\nversion: 1.0.0\ndependencies: [{{name: petiole, alias: leaf, version: {}, condition: leaf.enabled}}]\n",
        env!("CARGO_PKG_VERSION")
    );
    fs::write(folder.path().join("Chart.yaml"), of_all).unwrap();
    let mut command = Command::new(helm);
    command.args(["template", "edge", "--kube-version", "1.37.0", "--set"]);
    let output = command
        .arg("leaf.enabled=true")
        .arg(folder.path())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("app.kubernetes.io/part-of: petiole"));
    assert!(!text.contains("part-of: leaf") && !text.contains("helm.sh/chart: leaf"));
}

/// Labels and annotations of a user come beside those by which the objects are found, and a key is there once.
#[test]
fn labels_of_a_user_do_not_replace_those_of_the_chart() {
    let Some(helm) = helm() else { return };
    let parts = ["agent.podLabels", "controller.podLabels", "monitor.labels"];
    let values = parts.map(|labels| format!("{labels}.app\\.kubernetes\\.io/part-of=mine"));
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    let output = render(&helm, &[&values[..], &["monitor.kind=PodMonitor"]].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    // The parser refuses a key that is there twice.
    assert!(
        serde_saphyr::from_multiple::<serde_json::Value>(&text)
            .unwrap()
            .len()
            > 10
    );
    assert!(!text.contains("part-of: mine"));
}

#[test]
fn an_old_kubernetes_is_refused() {
    let Some(helm) = helm() else { return };
    let output = render_for(&helm, "1.32.9", &[]);
    assert!(!output.status.success());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains(">=1.33.0-0"), "{errors}");
}

pub(crate) fn render(helm: &Path, values: &[&str]) -> Output {
    render_for(helm, "1.37.0", values)
}

fn render_for(helm: &Path, kubernetes: &str, values: &[&str]) -> Output {
    let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("charts/petiole");
    let mut command = Command::new(helm);
    command.args(["template", "petiole"]).arg(chart);
    command.args(["--namespace", "petiole", "--kube-version", kubernetes]);
    for value in values {
        command.args(["--set", value]);
    }
    command.output().unwrap()
}

/// Returns the path of helm, from the PATH or from the folder of the end-to-end tests.
pub(crate) fn helm() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let kept = env::home_dir().map(|home| home.join(".cache/cluster-bin"));
    let found = env::split_paths(&path)
        .chain(kept)
        .map(|dir| dir.join("helm"))
        .find(|p| p.is_file());
    if found.is_none() {
        eprintln!("SKIPPED: helm is not installed");
    }
    found
}
