//! `install.sh` of a release, as a user runs it: what it takes from where, and whose signature it wants. curl and cosign are scripts
//! here that write down how they were called.
use crate::pages::page::root;
use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output},
};
use tempfile::TempDir;

const SIGNER: &str = "https://example.com/petiole/.github/workflows/release.yml";
const PROGRAM: &str = "petiole-1.2.3-linux-amd64";

fn script(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A machine for amd64 with a release in a folder, `bin` first in its PATH, and a folder to install into.
struct Machine(TempDir);

impl Machine {
    /// `signer` is what the release says about its signature.
    fn new(signer: &str) -> Self {
        let machine = Self(tempfile::tempdir().unwrap());
        for folder in ["release", "bin", "home"] {
            fs::create_dir(machine.path(folder)).unwrap();
        }
        let text = fs::read_to_string(root().join("deploy/install.sh")).unwrap();
        assert!(text.contains("\nsigner=\n"), "as .ci/standalone expects it");
        let text = text.replace("\nsigner=\n", &format!("\nsigner={signer}\n"));
        script(&machine.path("release/install.sh"), &text);
        script(
            &machine.path(&format!("release/{PROGRAM}")),
            "#!/bin/sh\necho petiole 1.2.3\n",
        );
        script(
            &machine.path("bin/uname"),
            "#!/bin/sh\n[ \"$1\" = -m ] && echo x86_64 || echo Linux\n",
        );
        let mut sums = Command::new("sha256sum");
        let sums = sums.arg(PROGRAM).current_dir(machine.path("release"));
        let sums = sums.output().unwrap().stdout;
        fs::write(machine.path("release/SHA256SUMS"), sums).unwrap();
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Adds a program that writes its arguments to `called`, then does `what`.
    fn has(&self, program: &str, what: &str) {
        let called = self.path("called");
        let text = format!("#!/bin/sh\necho \"$*\" >>{}\n{what}\n", called.display());
        script(&self.path("bin").join(program), &text);
    }

    /// Runs the release's own script.
    fn install(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new("sh");
        command.args(["-c", r#"PATH=$0:$PATH exec sh "$@""#]);
        command.arg(self.path("bin"));
        command.arg(self.path("release/install.sh"));
        command.arg("--prefix").arg(self.path("home"));
        command.args(arguments);
        command.env_remove("PETIOLE_URL").output().unwrap()
    }

    fn installs_from_its_folder(&self) -> Output {
        self.install(&[self.path("release").to_str().unwrap()])
    }

    fn is_installed(&self) -> bool {
        self.path("home/bin/petiole").exists()
    }

    fn called(&self) -> String {
        fs::read_to_string(self.path("called")).unwrap_or_default()
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn an_address_where_anyone_can_answer_is_refused_unless_the_user_allows_it() {
    let machine = Machine::new("");
    let release = machine.path("release");
    machine.has(
        "curl",
        &format!(
            "while [ \"$1\" != --output ]; do shift; done; cp \"{}/${{3##*/}}\" \"$2\"",
            release.display()
        ),
    );
    let refused = machine.install(&["http://example.com/r"]);
    assert!(!refused.status.success());
    assert!(
        said(&refused)
            .contains("anyone on the way to http://example.com/r can replace the program"),
        "{}",
        said(&refused)
    );
    assert_eq!(machine.called(), "", "nothing is asked");
    let allowed = machine.install(&["--allow-http", "http://example.com/r"]);
    assert!(
        allowed.status.success() && machine.is_installed(),
        "{}",
        said(&allowed)
    );
}

#[test]
fn a_release_over_https_is_not_followed_to_plain_http() {
    let machine = Machine::new("");
    machine.has("curl", "exit 1");
    assert!(!machine.install(&["https://example.com/r"]).status.success());
    let called = machine.called();
    assert!(
        called.contains("--proto =https --proto-redir =https"),
        "{called}"
    );
}

#[test]
fn a_signed_release_is_installed_only_with_the_signature_of_its_publisher() {
    let machine = Machine::new(SIGNER);
    machine.has("cosign", "exit 0");
    // Who can replace the files can leave the signature out, too.
    let unsigned = machine.installs_from_its_folder();
    assert!(!unsigned.status.success() && !machine.is_installed());
    assert!(
        said(&unsigned).contains("SHA256SUMS.sigstore.json"),
        "{}",
        said(&unsigned)
    );
    fs::write(machine.path("release/SHA256SUMS.sigstore.json"), "{}").unwrap();
    let signed = machine.installs_from_its_folder();
    assert!(
        signed.status.success() && machine.is_installed(),
        "{}",
        said(&signed)
    );
    let identity = format!("--certificate-identity {SIGNER}@refs/tags/v1.2.3 ");
    let called = machine.called();
    assert!(called.contains(&identity), "{called}");
    fs::remove_file(machine.path("home/bin/petiole")).unwrap();
    machine.has(
        "cosign",
        "echo none of the expected identities matched >&2; exit 1",
    );
    let of_another = machine.installs_from_its_folder();
    assert!(!of_another.status.success() && !machine.is_installed());
    let text = said(&of_another);
    assert!(
        text.contains("has no signature of") && text.contains("none of the expected identities"),
        "{text}"
    );
}

#[test]
fn without_cosign_the_user_is_told_what_the_checksums_do_not_show() {
    if Command::new("cosign").output().is_ok() {
        eprintln!("SKIPPED: cosign is installed");
        return;
    }
    let machine = Machine::new(SIGNER);
    let output = machine.installs_from_its_folder();
    assert!(output.status.success() && machine.is_installed());
    assert!(
        said(&output).contains("only the checksums are compared"),
        "{}",
        said(&output)
    );
    let unsigned = Machine::new("");
    assert!(!said(&unsigned.installs_from_its_folder()).contains("checksums"));
}

#[test]
fn the_script_of_a_release_knows_who_signs_it() {
    if Command::new("dpkg-deb").arg("--version").output().is_err() {
        eprintln!("SKIPPED: dpkg-deb is not installed");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("petiole");
    script(&program, "#!/bin/sh\n");
    let out = folder.path().join("release");
    let mut standalone = Command::new(root().join(".ci/standalone"));
    standalone.arg(&program).arg("amd64").arg(&out);
    standalone
        .env("PETIOLE_SIGNER", SIGNER)
        .env("SOURCE_DATE_EPOCH", "1700000000");
    let output = standalone.env("DEB_COMPRESSION", "none").output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let text = fs::read_to_string(out.join("install.sh")).unwrap();
    assert!(text.contains(&format!("\nsigner={SIGNER}\n")));
}
