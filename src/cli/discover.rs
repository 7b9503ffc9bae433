//! Runs `petiole discover`: one handler without an agent, a cluster or a kubelet, to try a Configuration.
mod flags;
mod input;
mod report;

pub(super) use flags::Flags;

use crate::{
    discovery::{
        Discovery, DiscoveryHandler, Task,
        external::ExternalDiscovery,
        handlers::{self, Allowed},
    },
    model::device::{DeviceSet, HandlerTrouble, Scope},
    yaml,
};
use anyhow::{Context as _, bail};
use input::Input;
use petiole_base::waits::sleep_until_or_never;
use petiole_cli::{discover::Output, table::print};
#[cfg(feature = "people")]
use petiole_people::cli::discover as remote;
use report::{Listed, Naming, Report};
use std::{
    io::{Write as _, stderr},
    os::fd::AsFd as _,
    time::Duration,
};
use tokio::{net::unix::pipe, sync::watch, time::Instant};

pub(super) async fn run(flags: Flags) -> anyhow::Result<()> {
    #[cfg(feature = "people")]
    if let Some(node) = flags.node {
        let flags = remote::Flags {
            handler: flags.run,
            node,
            namespace: flags.namespace,
            connection: flags.connection,
        };
        return Box::pin(remote::run(flags)).await;
    }
    flags.run.check()?;
    let input = Input::read(&flags.run.details)?;
    if let Some(named) = input.handler.as_ref().filter(|n| **n != flags.run.handler) {
        bail!(
            "the Configuration in {} is for handler {named}, not {}",
            flags.run.details,
            flags.run.handler
        );
    }
    if !flags.run.mark.is_empty() {
        // A handler that takes no marks says so before anything is looked for.
        let handler = handler(&flags.run.handler, Allowed::all())?;
        let details = input.details_of(&[""])?;
        let prepared = handler.prepare(&details, &input.properties);
        prepared.context("--mark")?;
    }
    let discovery = discovery(&flags, &input)?;
    let naming = Naming {
        configuration: flags.named(&input).into(),
        node: flags.node_name.as_str().into(),
        template: input.template.clone(),
        broker_properties: input.broker_properties.clone(),
        scope: discovery.scope,
    };
    let (task, devices) = Task::alone();
    let shown = shown(&flags, &input, Report::new(naming), devices);
    tokio::pin!(shown);
    tokio::select! {
        shown = &mut shown => shown,
        ended = stdin_ends(), if input.is_attached => ended,
        ended = discovery.run(task) => {
            // What it has published last is shown first.
            let shown = shown.await;
            ended.with_context(|| format!("handler {}", flags.run.handler))?;
            shown
        }
    }
}

/// Prints what is found, in the format that the user has chosen.
async fn shown(
    flags: &Flags,
    input: &Input,
    report: Report,
    devices: watch::Receiver<DeviceSet>,
) -> anyhow::Result<()> {
    let text = |list: &[Listed]| match flags.run.output {
        Output::Yaml if flags.run.mark.is_empty() => Ok(yaml::to_string(&list)?),
        Output::Yaml => {
            let ids = report::marked(list, &flags.run.mark)?;
            let configuration = input.only(&flags.run.handler, &flags.named(input), &ids)?;
            Ok(yaml::to_string(&configuration)?)
        }
        Output::Json | Output::Table | Output::Wide => {
            Ok(serde_json::to_string_pretty(list)? + "\n")
        }
    };
    match flags.run.output {
        Output::Table => stream(report, devices, flags.run.look).await,
        Output::Wide => stream(report.wide(), devices, flags.run.look).await,
        Output::Json | Output::Yaml => list(report, devices, flags.run.look, text).await,
    }
}

fn discovery(flags: &Flags, input: &Input) -> anyhow::Result<Discovery> {
    if let Some(endpoint) = flags.endpoint.clone() {
        let scope = if flags.shared {
            Scope::Shared
        } else {
            Scope::Node
        };
        return Ok(ExternalDiscovery::at(
            &flags.run.handler,
            endpoint,
            scope,
            &input.details,
            &input.properties,
        ));
    }
    let allowed = Allowed {
        dev: flags.dev.dir.clone(),
        ..Allowed::all()
    };
    handler(&flags.run.handler, allowed)?
        .prepare(&input.details, &input.properties)
        .with_context(|| flags.run.details.clone())
}

fn handler(name: &str, allowed: Allowed) -> anyhow::Result<Box<dyn DiscoveryHandler>> {
    let handlers = handlers::builtin_with(allowed);
    let names: Vec<&str> = handlers.iter().map(|h| h.name()).collect();
    let names = names.join(", ");
    let named = handlers.into_iter().find(|h| h.name() == name);
    named.with_context(|| format!("no handler is named {name}; there are {names}"))
}

/// Prints each change until the time is over, the user stops the command, or the handler ends.
async fn stream(
    mut report: Report,
    mut devices: watch::Receiver<DeviceSet>,
    look: Option<Duration>,
) -> anyhow::Result<()> {
    let end = look.map(|look| Instant::now() + look);
    let (mut is_silent, mut has_found) = (true, false);
    let mut reported: Vec<HandlerTrouble> = vec![];
    print(&report.header())?;
    loop {
        tokio::select! {
            changed = devices.changed() => if changed.is_err() { return Ok(()) },
            () = sleep_until_or_never(end) => return something(has_found, look, &reported),
            stopped = tokio::signal::ctrl_c() => return Ok(stopped?),
        }
        let set = devices.borrow_and_update().clone();
        for trouble in set.troubles.iter().filter(|t| !reported.contains(t)) {
            writeln!(stderr(), "{}", trouble.message())?;
        }
        reported.clone_from(&set.troubles);
        let changes = report.changes(&set);
        print(&changes)?;
        if is_silent && set.complete && set.devices.is_empty() {
            let until = if end.is_some() { "" } else { " until Ctrl-C" };
            writeln!(stderr(), "nothing found yet; looking on{until}")?;
        }
        is_silent &= changes.is_empty() && !set.complete;
        has_found |= !set.devices.is_empty();
    }
}

/// Returns an error that says why nothing was found.
fn something(
    has_found: bool,
    look: Option<Duration>,
    troubles: &[HandlerTrouble],
) -> anyhow::Result<()> {
    if has_found {
        return Ok(());
    }
    let time = look.map_or_else(String::new, |look| format!(" in {} s", look.as_secs_f64()));
    match troubles.first() {
        Some(trouble) => bail!("no device was found{time}: {}", trouble.message()),
        None => bail!(
            "no device was found{time}: check that it is on, that it is in this machine or in a network of it, and what the details leave out"
        ),
    }
}

/// Waits for the whole set and prints it.
async fn list(
    report: Report,
    mut devices: watch::Receiver<DeviceSet>,
    look: Option<Duration>,
    text: impl Fn(&[Listed]) -> anyhow::Result<String>,
) -> anyhow::Result<()> {
    let end = look.map(|look| Instant::now() + look);
    let complete = async {
        match look {
            Some(_) => std::future::pending().await,
            None => (devices
                .wait_for(|set| set.complete || !set.troubles.is_empty())
                .await)
                .map(drop),
        }
    };
    tokio::select! {
        complete = complete => if complete.is_err() { return Ok(()) },
        () = sleep_until_or_never(end) => {}
        stopped = tokio::signal::ctrl_c() => stopped?,
    }
    let set = devices.borrow().clone();
    if let (false, Some(trouble)) = (set.complete, set.troubles.first()) {
        bail!("{}", trouble.message());
    }
    print(&text(&report.list(&set))?)?;
    something(!set.devices.is_empty(), look, &set.troubles)
}

/// Waits for the end of stdin.
async fn stdin_ends() -> anyhow::Result<()> {
    let stdin = std::io::stdin().as_fd().try_clone_to_owned()?;
    let mut stdin = pipe::Receiver::from_owned_fd(stdin).context("stdin is no pipe")?;
    tokio::io::copy(&mut stdin, &mut tokio::io::sink()).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::names::BUILT_IN_HANDLERS;
    use std::collections::BTreeSet;

    #[test]
    fn who_finds_nothing_says_so_and_why() {
        let said = |has_found| something(has_found, Some(Duration::from_secs(10)), &[]);
        assert!(said(true).is_ok());
        let message = said(false).unwrap_err().to_string();
        let expected = "no device was found in 10 s: check that it is on";
        assert!(message.starts_with(expected), "{message}");
    }

    #[test]
    fn an_unknown_handler_is_refused_with_those_there_are() {
        let message = handler("zeroConf", Allowed::all())
            .err()
            .unwrap()
            .to_string();
        let names: Vec<&str> = handlers::builtin().iter().map(|h| h.name()).collect();
        assert_eq!(
            BTreeSet::from_iter(names.iter().copied()),
            BTreeSet::from_iter(BUILT_IN_HANDLERS.iter().copied()),
            "BUILT_IN_HANDLERS of crates/petiole-model/src/api/names.rs names all"
        );
        let known = names.join(", ");
        assert_eq!(
            message,
            format!("no handler is named zeroConf; there are {known}")
        );
    }
}
