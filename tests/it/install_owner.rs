//! Tests that `install.sh` writes as root only where no other user can. tests/e2e/standalone.suite.sh installs real releases.
use crate::pages::page::root;
use nix::unistd::geteuid;
use std::{
    fs,
    os::unix::fs::{chown, symlink},
    path::PathBuf,
    process::{Command, Output},
};

/// A release whose program is a script, and a folder to install it into.
struct Machine(tempfile::TempDir);

impl Machine {
    fn new() -> Self {
        let machine = Self(tempfile::tempdir().unwrap());
        let release = machine.path("release");
        fs::create_dir(&release).unwrap();
        let sums = ["amd64", "arm64"].map(|architecture| {
            let name = format!("petiole-1-linux-{architecture}");
            fs::write(release.join(&name), "#!/bin/sh\necho petiole 1\n").unwrap();
            let mut sum = Command::new("sha256sum");
            let sum = sum.arg(&name).current_dir(&release).output().unwrap();
            String::from_utf8(sum.stdout).unwrap()
        });
        fs::write(release.join("SHA256SUMS"), sums.concat()).unwrap();
        fs::create_dir_all(machine.path("prefix/bin")).unwrap();
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn install(&self) -> Output {
        let mut script = Command::new("sh");
        script.arg(root().join("deploy/install.sh"));
        script.arg("--prefix").arg(self.path("prefix"));
        script.arg(self.path("release")).output().unwrap()
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_link_in_the_place_of_the_staged_program_is_not_followed() {
    let machine = Machine::new();
    let theirs = machine.path("theirs");
    fs::write(&theirs, "theirs").unwrap();
    symlink(&theirs, machine.path("prefix/bin/petiole.new")).unwrap();
    let installed = machine.install();
    assert!(installed.status.success(), "{}", said(&installed));
    assert!(machine.path("prefix/bin/petiole").is_file());
    assert_eq!(fs::read_to_string(theirs).unwrap(), "theirs");
}

#[test]
fn root_installs_into_no_folder_that_another_user_can_change() {
    if !geteuid().is_root() {
        return; // only root can give a folder away
    }
    let machine = Machine::new();
    let prefix = machine.path("prefix");
    chown(&prefix, Some(12_345), None).unwrap();
    let refused = machine.install();
    let expected = format!("{} belongs to user 12345", prefix.display());
    assert!(said(&refused).contains(&expected), "{}", said(&refused));
    assert!(!prefix.join("bin/petiole").exists());
}
