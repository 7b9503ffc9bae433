//! Runs the commands that need neither root nor a cluster, as the pages have them, in one shell for each page.
//!
//! It differs from a reader's shell in three points: `petiole` is the program that cargo has built for tests,
//! `/tmp/box` is a temporary folder, and `petiole discover` looks for 1 s.
use super::page::{read, root};
use std::{
    path::Path,
    process::{Command, Stdio},
};

/// The pages whose blocks are run here.
pub(crate) const PAGES: &[&str] = &["README.md", "docs/handlers.md", "docs/standalone.md"];
const MARK: &str = "run: tests/it/pages";

/// The commands with visible output: the command, the number of matching lines, and the pattern of `grep -E`.
const SHOWN: &[(&str, usize, &str)] = &[
    (
        "petiole get instances --state /tmp/box/state -o wide",
        2,
        "^debug-echo-[0-9a-f]{6} ",
    ),
    (
        "petiole get configurations --state /tmp/box/state",
        1,
        "^debug-echo +debugEcho +2 +2 +True +Working$",
    ),
    (
        "petiole get node --root-dir /tmp/box/kubelet",
        2,
        "akri.sh/debug-echo-[0-9a-f]{6} +2 +2",
    ),
    (
        "petiole get pods --root-dir /tmp/box/kubelet",
        2,
        "debug-echo-.* 1/1 +Running",
    ),
    (
        "cat /tmp/box/kubelet/logs/*/broker.log",
        2,
        "^DEBUG_ECHO_DESCRIPTION=foo[01]$",
    ),
    (
        "petiole agent --standalone --once --node-name box --configurations /tmp/box/once -o wide",
        2,
        "^debug-echo-[0-9a-f]{6} +debug-echo +true +\\[box\\] +.* true +foo[01]$",
    ),
    (
        "petiole agent --standalone --once --node-name box --configurations /tmp/box/once -o json | jq -r \".items[].spec.brokerProperties.DEBUG_ECHO_DESCRIPTION\"",
        2,
        "^foo[01]$",
    ),
    (
        "petiole get instances --state /tmp/box/state",
        0,
        "^debug-echo-",
    ),
];

/// The beginning of each script: `shows` waits until a command prints what the page says.
const SHELL: &str = r#"
set -euo pipefail
set -m # jobs are %1, %2, as at a terminal
trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT
shows() { # TIMES PATTERN COMMAND
  local said
  for _ in $(seq 300); do
    said=$(eval "$3" 2>&1 || true)
    if [ "$(grep -cE -- "$2" <<<"$said" || true)" = "$1" ]; then return 0; fi
    sleep 0.1
  done
  printf '%s\nprinted, without %s lines of %s:\n%s\n' "$3" "$1" "$2" "$said"
  return 1
}
# Runs the command on standard input. In the network of this machine there may be nothing to find.
finds_or_says_so() {
  local said
  said=$(bash -euo pipefail 2>&1) && return 0
  grep -q 'no device was found' <<<"$said" && return 0
  printf '%s\n' "$said"
  return 1
}
"#;

/// Returns the line of the script for a line of a page.
fn line(line: &str) -> String {
    let command = line.split(" #").next().unwrap_or_default().trim_end();
    match SHOWN.iter().find(|(shown, ..)| *shown == command) {
        Some((_, times, pattern)) => format!("shows {times} '{pattern}' '{command}'"),
        None => {
            let short = line
                .replace("target/debug/petiole ", "petiole ")
                .replace("--for 10s", "--for 1s")
                .replace("--for 5s", "--for 1s");
            if command.contains("petiole discover ") {
                format!("finds_or_says_so <<'X'\n{short}\nX")
            } else {
                short
            }
        }
    }
}

fn script(path: &str, folder: &Path) -> String {
    let page = read(path);
    let blocks = page.blocks().into_iter();
    let lines: Vec<String> = blocks
        .filter(|block| block.mark.as_deref() == Some(MARK))
        .flat_map(|block| block.lines)
        .map(|text| line(&text))
        .collect();
    assert!(!lines.is_empty(), "{path} has no block with {MARK:?}");
    let text = format!("{SHELL}{}\n", lines.join("\n"));
    text.replace("/tmp/box", folder.to_str().unwrap())
}

/// Runs the commands of a page, and returns their output.
fn run(path: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_petiole")).parent().unwrap();
    let paths = std::env::var_os("PATH").unwrap();
    let paths = [program.to_owned()]
        .into_iter()
        .chain(std::env::split_paths(&paths));
    let output = Command::new("bash")
        .args(["-c", &script(path, folder.path())])
        .env("PATH", std::env::join_paths(paths).unwrap())
        .current_dir(root())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(output.status.success(), "{path}:\n{said}");
    said
}

#[test]
fn the_commands_of_the_readme_run() {
    run("README.md");
}

#[test]
fn the_commands_of_the_page_on_handlers_run() {
    run("docs/handlers.md");
}

#[test]
fn the_commands_for_one_machine_show_devices_pods_and_their_end() {
    run("docs/standalone.md");
}

#[test]
fn every_command_that_is_expected_to_show_something_is_on_a_page() {
    let pages: String = PAGES.iter().map(|path| read(path).text).collect();
    for (command, ..) in SHOWN {
        assert!(pages.contains(command), "{command}");
    }
}
