//! Tests of the chart: the rendered files in `tests/golden/chart`, and the values that it rejects.
//!
//! `PETIOLE_UPDATE_GOLDEN=1 cargo test --test it chart_renders` writes the files again.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
use petiole::tidy;
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// The variants with their values.
const VARIANTS: &[(&str, &[&str])] = &[
    ("default", &[]),
    ("watch-namespaces", &["watchNamespaces={cameras,printers}"]),
    ("k0s", &["kubelet.distribution=k0s"]),
    (
        "pod-monitor-wait-for-tidy",
        &[
            "monitor.kind=PodMonitor",
            "monitor.labels.release=prometheus",
            "uninstall.waitForTidy=true",
        ],
    ),
    (
        "service-monitor",
        &[
            "monitor.kind=ServiceMonitor",
            "admissionPolicies.brokers=false",
        ],
    ),
    (
        "everything-set",
        &[
            "fullnameOverride=leaf",
            "image.pullSecrets[0].name=registry",
            "resourcePrefixes={akri.sh,devices.example.org}",
            "kubelet.devicePluginDir=/plugins",
            "kubelet.podResourcesDir=/resources",
            "cdi.enabled=true,cdi.kinds={pflex.io/block,vendor.com/class}",
            "udev.enabled=true,udev.subsystems={tty,video4linux}",
            "agent.allowVariables={HTTPS_PROXY,NO_PROXY}",
            "agent.extraArgs={--some-flag=1}",
            "agent.extraEnv[0].name=A,agent.extraEnv[0].value=b",
            "agent.http.metrics.enabled=true,agent.http.metrics.host=10.0.0.1",
            "agent.podLabels.a=b,agent.podAnnotations.c=d",
            "agent.seLinuxOptions.type=container_device_plugin_t",
            "agent.nodeSelector.edge=yes",
            "controller.replicas=1",
            "controller.extraArgs={--other-flag=2}",
            "controller.extraEnv[0].name=B,controller.extraEnv[0].value=c",
            "controller.podLabels.a=b,controller.podAnnotations.c=d",
            "admissionPolicies.enabled=false",
            "uninstall.enabled=false",
            "test.enabled=false",
        ],
    ),
];

#[test]
fn every_variant_renders_as_kept() {
    let Some(helm) = helm() else { return };
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/chart");
    for (name, values) in VARIANTS {
        let output = render(&helm, values);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {errors}");
        let now = String::from_utf8(output.stdout).unwrap();
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
    for (value, named) in [
        ("controler.replicas=1", "controler"),
        ("agent.extraEnvs=1", "extraEnvs"),
        ("agent.http.hots=x", "hots"),
        ("agent.http.metrics.hots=x", "hots"),
        ("agent.tolerations[0].kye=a", "kye"),
        ("agent.resources.limit.cpu=1", "limit"),
        ("image.pullSecrets[0].nmae=a", "nmae"),
        ("uninstall.waitForTidi=true", "waitForTidi"),
        ("kubelet.distribution=openwrt", "distribution"),
        ("monitor.kind=Both", "kind"),
        ("cdi.kinds={block}", "kinds"),
        ("agent.allowVariables={A=b}", "allowVariables"),
        ("admissionPolicies.broker=true", "broker"),
        ("resourcePrefixes={kubernetes.io}", "resourcePrefixes"),
        ("resourcePrefixes={}", "resourcePrefixes"),
        ("agent.stateDir=relative", "stateDir"),
    ] {
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
    let release = tidy::Release {
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

#[test]
fn an_old_kubernetes_is_refused() {
    let Some(helm) = helm() else { return };
    let output = render_for(&helm, "1.31.9", &[]);
    assert!(!output.status.success());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains(">=1.32.0-0"), "{errors}");
}

fn render(helm: &Path, values: &[&str]) -> Output {
    render_for(helm, "1.36.0", values)
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
fn helm() -> Option<PathBuf> {
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
