//! The program `kubectl-petiole` as kubectl runs it.
use std::process::{Command, Stdio};

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_kubectl-petiole"))
}

fn stdout(command: &mut Command) -> String {
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("it writes UTF-8")
}

#[test]
fn it_has_what_petiole_has_for_a_cluster() {
    let help = stdout(program().arg("--help"));
    assert!(help.contains("Usage: kubectl petiole "), "{help}");
    for subcommand in [
        "devices",
        "top",
        "web",
        "why",
        "doctor",
        "discover",
        "check",
        "tidy",
        "uninstall",
    ] {
        let line = format!("\n  {subcommand} ");
        assert!(help.contains(&line), "no {subcommand} in\n{help}");
    }
    let top = stdout(program().args(["top", "--help"]));
    assert!(top.contains("--kubeconfig") && !top.contains("--standalone"));
}

#[test]
fn it_runs_handlers_on_nodes_alone_as_the_command_of_why_says() {
    let mut without = program();
    let refused = without.args(["discover", "zeroconf", "--details", "-"]);
    let refused = refused.output().unwrap();
    let message = String::from_utf8(refused.stderr).unwrap();
    assert!(message.contains("--node <NAME>"), "{message}");
    let command = "discover zeroconf --node node-1 --details - --for 10s --kubeconfig nowhere";
    let output = program()
        .args(command.split(' '))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("nowhere does not exist"), "{message}");
}

#[test]
fn a_cluster_that_cannot_be_reached_is_an_error_with_its_reason() {
    let file = "no-such-kubeconfig";
    let output = program()
        .args(["devices", "--kubeconfig", file])
        .output()
        .unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(message.starts_with("kubectl-petiole: "), "{message}");
    assert!(message.contains(file), "{message}");
}

#[cfg(unix)]
#[test]
fn kubectl_completes_subcommands_by_a_link() {
    use std::os::unix::process::CommandExt as _;
    let mut link = program();
    link.arg0("kubectl_complete-petiole").arg("wh");
    assert_eq!(stdout(&mut link), "why\n:4\n");
}
