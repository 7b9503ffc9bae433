//! Makes this program a plugin of kubectl. kubectl runs `kubectl-petiole` for `kubectl petiole`, and asks
//! `kubectl_complete-petiole` for completions; both are links to this program.
use clap::Command;
use petiole_cli::table::print;
use std::{ffi::OsStr, path::Path};

/// The name by which this program was called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Name {
    Petiole,
    Plugin,
    Completion,
}

/// Returns the name by which this process was called.
pub fn called_as() -> Name {
    name(std::env::args_os().next().as_deref())
}

/// Answers kubectl: prints how the arguments of this process are completed.
pub fn complete(command: &Command) -> anyhow::Result<()> {
    let words = std::env::args_os().skip(1);
    let words: Vec<String> = words.filter_map(|word| word.into_string().ok()).collect();
    print(&completions(command, &words))
}

fn name(program: Option<&OsStr>) -> Name {
    // Without `.exe`.
    let file = program.and_then(|program| Path::new(program).file_stem());
    match file.and_then(OsStr::to_str) {
        Some("kubectl-petiole") => Name::Plugin,
        Some("kubectl_complete-petiole") => Name::Completion,
        Some(_) | None => Name::Petiole,
    }
}

/// Returns what kubectl shows: words that begin with the last argument, one a line, and then its directive to complete no
/// file names.
fn completions(command: &Command, arguments: &[String]) -> String {
    let (word, before) = match arguments.split_last() {
        Some((word, before)) => (word.as_str(), before),
        None => ("", arguments),
    };
    let mut chosen = command;
    for argument in before {
        chosen = chosen.find_subcommand(argument).unwrap_or(chosen);
    }
    let flags = chosen.get_arguments().filter_map(|argument| {
        let long = argument.get_long().filter(|_| !argument.is_hide_set())?;
        Some(format!("--{long}"))
    });
    let subcommands = chosen
        .get_subcommands()
        .map(|subcommand| subcommand.get_name().to_owned());
    let words: Vec<String> = if word.starts_with('-') {
        flags.collect()
    } else {
        subcommands.collect()
    };
    let fit = words.into_iter().filter(|known| known.starts_with(word));
    fit.map(|word| word + "\n").collect::<String>() + ":4\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{ClusterFlags, Command as Subcommands};
    use clap::Subcommand as _;

    #[test]
    fn a_link_decides_what_the_program_is() {
        for (program, expected) in [
            ("/usr/bin/kubectl-petiole", Name::Plugin),
            ("kubectl_complete-petiole", Name::Completion),
            ("kubectl_complete-petiole.exe", Name::Completion),
            ("target/release/petiole", Name::Petiole),
        ] {
            assert_eq!(name(Some(OsStr::new(program))), expected);
        }
        assert_eq!(name(None), Name::Petiole);
    }

    #[test]
    fn subcommands_and_flags_are_completed() {
        let complete = |arguments: &[&str]| {
            let arguments: Vec<String> = arguments.iter().map(|&text| text.to_owned()).collect();
            let command = Subcommands::<ClusterFlags>::augment_subcommands(Command::new("petiole"));
            completions(&command, &arguments)
        };
        assert_eq!(complete(&["wh"]), "why\n:4\n");
        assert_eq!(complete(&["devices", "--kube"]), "--kubeconfig\n:4\n");
        assert_eq!(complete(&["devices", "x"]), ":4\n");
        assert!(complete(&[]).contains("doctor\n"));
    }
}
