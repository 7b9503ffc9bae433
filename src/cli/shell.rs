//! Runs `petiole completions` and `petiole man`, which describe the command line to a shell and to man(1).
use super::Cli;
use anyhow::Context as _;
use clap::{Args, CommandFactory as _};
use clap_complete::Shell;
use std::{
    fs,
    io::{Write as _, stdout},
    path::PathBuf,
};

#[derive(Debug, Args)]
pub struct CompletionsFlags {
    shell: Shell,
}

pub(super) fn completions(flags: &CompletionsFlags) -> anyhow::Result<()> {
    let mut script = vec![];
    clap_complete::generate(flags.shell, &mut Cli::command(), "petiole", &mut script);
    Ok(stdout().write_all(&script)?)
}

#[derive(Debug, Args)]
pub struct ManFlags {
    /// Write a page for each subcommand to this folder instead of printing the main page
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(super) fn man(flags: &ManFlags) -> anyhow::Result<()> {
    match &flags.dir {
        Some(dir) => {
            let at = || dir.display().to_string();
            fs::create_dir_all(dir).with_context(at)?;
            clap_mangen::generate_to(Cli::command(), dir).with_context(at)
        }
        None => {
            let mut page = vec![];
            clap_mangen::Man::new(Cli::command()).render(&mut page)?;
            Ok(stdout().write_all(&page)?)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_subcommand_has_a_man_page() {
        let dir = tempfile::tempdir().unwrap();
        let flags = ManFlags {
            dir: Some(dir.path().join("man1")),
        };
        man(&flags).unwrap();
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
