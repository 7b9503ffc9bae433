//! One run of a container: a plain process in a process group of its own, its output in a file.
use super::manifest::expanded;
use crate::files;
use k8s_openapi::api::core::v1::Container;
use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions, create_dir_all},
    path::Path,
    process::Stdio,
    time::Duration,
};
use tokio::{
    process::{Child, Command},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

/// What a process sees beside its devices' and its own variables.
const INHERITED: [(&str, &str); 2] = [
    (
        "PATH",
        "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    ),
    ("HOME", "/"),
];

/// A container's environment: its devices' variables, and over them its own.
pub(super) fn environment(
    container: &Container,
    devices: BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, String> {
    let mut env: BTreeMap<String, String> = INHERITED
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect();
    env.extend(devices);
    for variable in container.env.iter().flatten() {
        if variable.value_from.is_some() {
            return Err(format!(
                "env {}: valueFrom needs an API server; give a value",
                variable.name
            ));
        }
        let value = expanded(variable.value.as_deref().unwrap_or_default(), &env);
        env.insert(variable.name.clone(), value);
    }
    Ok(env)
}

/// A process that runs.
pub(super) struct Process {
    child: Child,
    pid: u32,
}

impl Process {
    pub(super) fn start(
        container: &Container,
        env: &BTreeMap<String, String>,
        log: &Path,
    ) -> Result<Self, String> {
        let words = container
            .command
            .iter()
            .flatten()
            .chain(container.args.iter().flatten());
        let words: Vec<String> = words.map(|word| expanded(word, env)).collect();
        let [program, args @ ..] = words.as_slice() else {
            return Err(
                "it has no command; images are not used here, so that there is nothing to run"
                    .to_owned(),
            );
        };
        let output = open_log(log).map_err(|e| e.to_string())?;
        let errors = output
            .try_clone()
            .map_err(|e| files::at(log, &e).to_string())?;
        let mut command = Command::new(program);
        command.args(args).env_clear().envs(env).process_group(0);
        command
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .kill_on_drop(true);
        if let Some(folder) = container
            .working_dir
            .as_deref()
            .filter(|folder| Path::new(folder).is_dir())
        {
            command.current_dir(folder);
        }
        let child = command.spawn().map_err(|e| format!("{program}: {e}"))?;
        let pid = child
            .id()
            .ok_or_else(|| format!("{program}: it ended at once"))?;
        Ok(Self { child, pid })
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits for its end; after `stop` it is asked to end, and after `grace` made to. The exit code, 128 and the
    /// signal's number where a signal ended it.
    pub(super) async fn ended(mut self, stop: &CancellationToken, grace: Duration) -> i32 {
        if let Some(status) = stop.run_until_cancelled(self.child.wait()).await {
            return code(status);
        }
        self.signal(Signal::SIGTERM);
        if let Ok(status) = timeout(grace, self.child.wait()).await {
            return code(status);
        }
        self.signal(Signal::SIGKILL);
        code(self.child.wait().await)
    }

    /// To the whole group: a shell does not pass signals on.
    fn signal(&self, signal: Signal) {
        if let Ok(pid) = i32::try_from(self.pid) {
            // A group that has ended already needs no signal.
            killpg(Pid::from_raw(pid), signal).ok();
        }
    }
}

fn code(status: std::io::Result<std::process::ExitStatus>) -> i32 {
    use std::os::unix::process::ExitStatusExt as _;
    match status {
        Ok(status) => status
            .code()
            .unwrap_or_else(|| 128 + status.signal().unwrap_or(0)),
        Err(_) => -1,
    }
}

fn open_log(path: &Path) -> std::io::Result<File> {
    if let Some(folder) = path.parent() {
        create_dir_all(folder).map_err(|e| files::at(folder, &e))?;
    }
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .map_err(|e| files::at(path, &e))
}
