//! The Debian package for machines without a cluster: what it has in it, what `dpkg` makes of it, and that its units start what
//! they should.
use crate::pages::page::root;
use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

fn output(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let said = [output.stdout.clone(), output.stderr.clone()].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success(), "{command:?}: {said}");
    output
}

fn is_installed(program: &str) -> bool {
    let is_there = Command::new(program).arg("--version").output().is_ok();
    if !is_there {
        eprintln!("SKIPPED: {program} is not installed");
    }
    is_there
}

/// Builds the package around a small program, which says how it was called.
fn package(folder: &Path) -> PathBuf {
    let program = folder.join("petiole");
    fs::write(&program, "#!/bin/sh\nenv\n").unwrap();
    let package = folder.join("petiole.deb");
    let mut deb = Command::new(root().join(".ci/deb"));
    deb.arg(&program).arg("amd64").arg(&package);
    deb.env("SOURCE_DATE_EPOCH", "1700000000");
    output(deb.env("DEB_COMPRESSION", "none"));
    package
}

/// Unpacks the package as `dpkg` would.
fn unpacked(folder: &Path) -> PathBuf {
    let machine = folder.join("machine");
    output(
        Command::new("dpkg-deb")
            .arg("-x")
            .arg(package(folder))
            .arg(&machine),
    );
    machine
}

/// Returns the settings of a unit: the values of each key, in their order.
fn unit(machine: &Path, name: &str) -> BTreeMap<String, Vec<String>> {
    let text = fs::read_to_string(machine.join("usr/lib/systemd/system").join(name)).unwrap();
    let mut settings: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (key, value) in text.lines().filter_map(|line| line.split_once('=')) {
        (settings.entry(key.to_owned()).or_default()).push(value.to_owned());
    }
    settings
}

#[test]
fn the_same_program_makes_the_same_package() {
    if !is_installed("dpkg-deb") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let first = fs::read(package(folder.path())).unwrap();
    let second = fs::read(package(folder.path())).unwrap();
    assert!(first == second, "two packages of one program differ");
}

#[test]
fn systemd_finds_nothing_wrong_with_the_units() {
    if !is_installed("dpkg-deb") || !is_installed("systemd-analyze") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let machine = unpacked(folder.path());
    for name in ["petiole-agent.service", "petiole-kubelet.service"] {
        let file = machine.join("usr/lib/systemd/system").join(name);
        // What a unit names is in the package, and not on this machine.
        let program = machine.join("usr/bin/petiole");
        let text = fs::read_to_string(&file).unwrap();
        let text = text.replace("/usr/bin/petiole", program.to_str().unwrap());
        fs::write(&file, text.replace("Documentation=", "#")).unwrap();
        let checked = output(
            Command::new("systemd-analyze")
                .args(["verify", "--man=no"])
                .arg(&file),
        );
        let said = String::from_utf8_lossy(&checked.stderr);
        assert!(!said.contains("petiole"), "{name}: {said}");
    }
}

/// The program takes the arguments and variables of the units. `--help` ends it before it does anything, but after all
/// of them were parsed.
#[test]
fn the_program_takes_what_the_units_give_it() {
    if !is_installed("dpkg-deb") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let machine = unpacked(folder.path());
    let dockerfile = fs::read_to_string(root().join("Dockerfile")).unwrap();
    for (name, flags) in [
        (
            "petiole-agent.service",
            &[
                "--standalone",
                "--render-brokers",
                "--http-address",
                "--node-name",
            ][..],
        ),
        (
            "petiole-kubelet.service",
            &["--manifests", "--root-dir", "--node-name"],
        ),
    ] {
        let unit = unit(&machine, name);
        let command = unit["ExecStart"][0]
            .strip_prefix("/usr/bin/petiole ")
            .unwrap();
        let mut given: Vec<String> = command.split(' ').skip(1).map(str::to_owned).collect();
        // Those of the allocator are for the C library, and those of the image.
        let (of_malloc, own): (Vec<&str>, Vec<&str>) = (unit["Environment"].iter())
            .map(|line| line.as_str())
            .partition(|line| line.starts_with("MALLOC_"));
        for line in of_malloc {
            let of_image = format!("\nENV {line}\n");
            assert!(dockerfile.contains(&of_image), "{name}: {line}");
        }
        let variables: Vec<&str> = (own.iter())
            .map(|line| line.split_once('=').unwrap().0)
            .collect();
        for variable in &variables {
            let flag = variable.strip_prefix("PETIOLE_").unwrap().to_lowercase();
            given.push(format!("--{}", flag.replace('_', "-")));
        }
        let mut expected: Vec<&str> = flags.to_vec();
        given.sort();
        expected.sort_unstable();
        assert_eq!(given, expected, "{name}");
        let help = output(
            Command::new(env!("CARGO_BIN_EXE_petiole"))
                .args([command.split(' ').next().unwrap(), "--help"]),
        );
        let help = String::from_utf8(help.stdout).unwrap();
        for flag in &given {
            assert!(help.contains(flag.as_str()), "{name}: there is no {flag}");
        }
        for variable in variables {
            assert!(help.contains(variable), "{name}: nothing reads {variable}");
        }
    }
}

/// `dpkg` installs and purges the package in a folder, with its scripts, which run in this folder alone: `dpkg --root` makes
/// it their root.
#[test]
fn dpkg_installs_it_and_purges_what_it_wrote() {
    let is_root = output(Command::new("id").arg("-u")).stdout == b"0\n";
    let Some(busybox) = static_busybox().filter(|_| is_root && is_installed("dpkg")) else {
        eprintln!("SKIPPED: needs root, dpkg and a static busybox");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let package = package(folder.path());
    let machine = folder.path().join("machine");
    for made in ["bin", "var/lib/dpkg/updates", "var/lib/dpkg/info"] {
        fs::create_dir_all(machine.join(made)).unwrap();
    }
    fs::copy(busybox, machine.join("bin/busybox")).unwrap();
    for applet in ["sh", "mkdir", "rm"] {
        std::os::unix::fs::symlink("busybox", machine.join("bin").join(applet)).unwrap();
    }
    fs::write(machine.join("var/lib/dpkg/status"), "").unwrap();
    let dpkg = |arguments: &[&str]| {
        let mut command = Command::new("dpkg");
        command.arg(format!("--root={}", machine.display()));
        command.args(["--force-architecture", "--force-depends", "--log=/dev/null"]);
        output(command.args(arguments))
    };
    dpkg(&["--install", package.to_str().unwrap()]);
    assert!(machine.join("usr/bin/petiole").exists());
    assert!(machine.join("etc/petiole/configurations").is_dir());
    let state = machine.join("var/lib/akri/instances");
    fs::create_dir_all(&state).unwrap();
    let listed = dpkg(&["--contents", package.to_str().unwrap()]);
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(
        listed.lines().all(|line| line.contains("root/root")),
        "{listed}"
    );
    let pods = machine.join("run/petiole/pods");
    fs::create_dir_all(&pods).unwrap();
    for name in ["petiole-default_cam-1.yaml", "web.yaml"] {
        fs::write(pods.join(name), "").unwrap();
    }
    dpkg(&["--remove", "petiole"]);
    let left: Vec<_> = fs::read_dir(pods)
        .unwrap()
        .map(|pod| pod.unwrap().file_name())
        .collect();
    assert_eq!(
        left,
        ["web.yaml"],
        "another kubelet ends the brokers, and no other Pod"
    );
    assert!(!machine.join("usr/bin/petiole").exists());
    assert!(state.exists(), "what was written stays until a purge");
    dpkg(&["--purge", "petiole"]);
    assert!(!state.exists() && !machine.join("etc/petiole").exists());
}

fn static_busybox() -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let mut found = env::split_paths(&path).map(|dir| dir.join("busybox"));
    let busybox = found.find(|path| path.is_file())?;
    let linked = Command::new("ldd").arg(&busybox).output().ok()?;
    (!linked.status.success()).then_some(busybox)
}
