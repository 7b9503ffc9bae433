//! Prints objects as kubectl does: as a table, as JSON or as YAML.
#[cfg(feature = "people")]
use crate::colors;
use crate::model::printable::printable;
#[cfg(feature = "people")]
use clap::ValueEnum;
use std::io::{ErrorKind, Write as _, stderr, stdout};
use tabwriter::TabWriter;

/// The rows of a table. The first one contains the names of the columns.
pub type Rows = Vec<Vec<String>>;

pub fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).into()
}

pub fn table(rows: &Rows) -> anyhow::Result<String> {
    let mut writer = TabWriter::new(Vec::new()).padding(3);
    for row in rows {
        let cells: Vec<String> = row.iter().map(|cell| printable(cell)).collect();
        writeln!(writer, "{}", cells.join("\t"))?;
    }
    Ok(String::from_utf8(writer.into_inner()?)?)
}

/// The rows of a table, of whose columns only the first ones are printed unless the output is wide.
#[cfg(feature = "people")]
pub struct Columns {
    pub narrow: usize,
    pub rows: Rows,
}

#[cfg(feature = "people")]
impl Columns {
    /// Returns the text of the table, with colours if the standard output shows them.
    pub fn text(mut self, output: Output) -> anyhow::Result<String> {
        if output != Output::Wide {
            self.rows
                .iter_mut()
                .for_each(|row| row.truncate(self.narrow));
        }
        Ok(colors::for_stdout(table(&self.rows)?))
    }
}

#[cfg(feature = "people")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    Table,
    Wide,
    Json,
    Yaml,
    /// Kinds and names
    Name,
}

/// Returns the text of an object, for the standard output. `columns` and `names` are asked for only if they are printed.
#[cfg(feature = "people")]
pub fn render<T: serde::Serialize>(
    output: Output,
    object: &T,
    columns: impl FnOnce() -> Columns,
    names: impl FnOnce() -> Vec<String>,
) -> anyhow::Result<String> {
    use anyhow::Context as _;
    match output {
        Output::Table | Output::Wide => columns().text(output),
        Output::Json => Ok(serde_json::to_string_pretty(object)? + "\n"),
        Output::Yaml => serde_saphyr::to_string(object).context("cannot print as YAML"),
        Output::Name => Ok(names().iter().map(|name| printable(name) + "\n").collect()),
    }
}

/// The error of [`print()`] when the reader of stdout has closed its end, as `head` does. It ends a command that only prints, and
/// [`exit_code`](crate::exit_code) does not count it as a failure.
#[derive(Debug, thiserror::Error)]
#[error("nobody reads stdout any more")]
pub struct ReaderGone;

/// Writes to stdout.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = stdout().lock();
    match (stdout.write_all(text.as_bytes())).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Err(ReaderGone.into()),
        Err(e) => Err(anyhow::Error::new(e).context("stdout cannot be written")),
    }
}

/// Writes to stderr. An error of that has no reader: the terminal may be closed, and `eprint` panics then.
pub fn print_error(text: &str) {
    stderr().write_all(text.as_bytes()).ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_cannot_steer_the_terminal_or_make_a_row() {
        let text = table(&vec![row(["DEVICE", "AGE"]), row(["a\x1b[2J\nb\tc", "1s"])]).unwrap();
        assert_eq!(text.lines().count(), 2);
        assert!(text.contains("a\\u{1b}[2J\\nb\\tc   1s"), "{text}");
    }
}
