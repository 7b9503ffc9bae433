//! Reads the pages and the parts of them that tests check.
use std::{
    fs,
    path::{Path, PathBuf},
};

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A page of Markdown.
pub(crate) struct Page {
    /// The path below the root of the repository, such as `docs/limits.md`.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// A fenced block of a page.
pub(crate) struct Block {
    /// The number of the line with the opening fence.
    pub(crate) line: usize,
    /// The word after the opening fence.
    pub(crate) language: String,
    /// The comment on the line before the block.
    pub(crate) mark: Option<String>,
    pub(crate) lines: Vec<String>,
}

/// Returns every page of the repository for readers.
pub(crate) fn pages() -> Vec<Page> {
    let mut paths: Vec<String> = [
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "charts/petiole/README.md",
        "crates/petiole-dra/README.md",
        "crates/petiole-kubelet-api/README.md",
        "crates/petiole-kubelet/README.md",
        "crates/petiole-mdns/README.md",
        "crates/petiole-mqtt/README.md",
        "crates/petiole-onvif/README.md",
        "crates/petiole-opcua/README.md",
        "crates/petiole-probe/README.md",
    ]
    .map(str::to_owned)
    .to_vec();
    paths.extend(files(&root().join("docs"), "md").map(|file| {
        let name = file.file_name().unwrap().to_str().unwrap().to_owned();
        format!("docs/{name}")
    }));
    paths.sort();
    paths.iter().map(|path| read(path)).collect()
}

pub(crate) fn read(path: &str) -> Page {
    let text = fs::read_to_string(root().join(path));
    Page {
        text: text.unwrap_or_else(|e| panic!("{path}: {e}")),
        path: path.to_owned(),
    }
}

/// Returns the files of `folder` with this extension, in the order of their names.
pub(crate) fn files(folder: &Path, extension: &str) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(folder).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|e| e == extension));
    paths.sort();
    paths.into_iter()
}

impl Page {
    /// Returns the fenced blocks.
    pub(crate) fn blocks(&self) -> Vec<Block> {
        let mut blocks: Vec<Block> = vec![];
        let (mut is_open, mut before) = (false, "");
        for (index, line) in self.text.lines().enumerate() {
            match line.trim_start().strip_prefix("```") {
                Some(_) if is_open => is_open = false,
                Some(language) => {
                    is_open = true;
                    let mark = before.trim().strip_prefix("<!-- ");
                    blocks.push(Block {
                        line: index + 1,
                        language: language.trim().to_owned(),
                        mark: mark
                            .and_then(|mark| mark.strip_suffix(" -->"))
                            .map(str::to_owned),
                        lines: vec![],
                    });
                }
                None if is_open => {
                    let block = blocks.last_mut().unwrap();
                    block.lines.push(line.trim_end().to_owned());
                }
                None => {}
            }
            before = line;
        }
        assert!(!is_open, "{}: a block is not closed", self.path);
        blocks
    }

    /// Returns the page without its fenced blocks.
    pub(crate) fn prose(&self) -> String {
        let mut is_open = false;
        let mut prose = String::new();
        for line in self.text.lines() {
            let is_fence = line.trim_start().starts_with("```");
            if !is_open && !is_fence {
                prose.push_str(line);
                prose.push('\n');
            }
            is_open ^= is_fence;
        }
        prose
    }

    /// Returns the text below the heading `## title`, up to the next one of its level.
    pub(crate) fn section(&self, title: &str) -> &str {
        let start = format!("\n## {title}\n");
        let (_, part) = (self.text.split_once(&start))
            .unwrap_or_else(|| panic!("{}: no section {title}", self.path));
        part.split_once("\n## ").map_or(part, |(part, _)| part)
    }
}

/// Returns the texts between backticks in the rows of tables.
pub(crate) fn code_of_tables(text: &str) -> Vec<&str> {
    let rows = text.lines().filter(|line| line.starts_with('|'));
    rows.flat_map(|row| row.split('`').skip(1).step_by(2))
        .collect()
}

/// Returns the texts between backticks in the first cell of each row.
pub(crate) fn first_cells(text: &str) -> Vec<&str> {
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    rows.flat_map(|row| {
        let cell = row.split(" | ").next().unwrap_or_default();
        cell.split('`').skip(1).step_by(2)
    })
    .collect()
}
