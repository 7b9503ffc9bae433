//! Runs `petiole completions` and `petiole man`, which describe the command line to a shell and to man(1).
use anyhow::Context as _;
use clap::{Args, Command};
use clap_complete::Shell;
use petiole_cli::table::print;
use std::{fs, path::PathBuf};

#[derive(Debug, Args)]
pub struct CompletionsFlags {
    shell: Shell,
}

/// Prints the completions of `command`.
pub(super) fn completions(flags: &CompletionsFlags, mut command: Command) -> anyhow::Result<()> {
    let mut script = vec![];
    clap_complete::generate(flags.shell, &mut command, "petiole", &mut script);
    print(str::from_utf8(&script)?)
}

#[derive(Debug, Args)]
pub struct ManFlags {
    /// Write a page for each subcommand to this folder instead of printing the main page
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Prints the page of `command`, or writes those of its subcommands.
pub(super) fn man(flags: &ManFlags, command: Command) -> anyhow::Result<()> {
    match &flags.dir {
        Some(dir) => {
            let at = || dir.display().to_string();
            fs::create_dir_all(dir).with_context(at)?;
            clap_mangen::generate_to(command, dir).with_context(at)
        }
        None => {
            let mut page = vec![];
            clap_mangen::Man::new(command).render(&mut page)?;
            print(str::from_utf8(&page)?)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Cli, *};
    use clap::CommandFactory as _;
    use std::collections::BTreeSet;

    #[test]
    fn every_subcommand_has_a_man_page() {
        let dir = tempfile::tempdir().unwrap();
        let flags = ManFlags {
            dir: Some(dir.path().join("man1")),
        };
        man(&flags, Cli::command()).unwrap();
        let pages = fs::read_dir(dir.path().join("man1")).unwrap();
        let pages: BTreeSet<_> = pages
            .map(|page| page.unwrap().file_name().into_string().unwrap())
            .collect();
        let subcommands = Cli::command();
        let wanted = subcommands
            .get_subcommands()
            .map(|sub| format!("petiole-{}.1", sub.get_name()))
            .chain(["petiole.1".to_owned()]);
        assert_eq!(pages, wanted.collect());
    }
}
