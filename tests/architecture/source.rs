//! Reads source files, without comments and tests, and finds the paths in them.
use std::{
    fs,
    path::{Path, PathBuf},
};

/// The sources of the package `petiole`.
const SRC: &str = "src";
/// The crates that are on the module map beside that package. Their folders are modules of the map, as those of `src` are.
const MAPPED: &[&str] = &["crates/petiole-model/src", "crates/petiole-people/src"];
/// Crates that are one module of the map each.
const MODULES: &[(&str, &str)] = &[
    ("crates/petiole-cli/src", "cli"),
    ("crates/petiole-cluster/src", "cluster"),
    ("crates/petiole-telemetry/src", "telemetry"),
];

/// One source file.
pub(crate) struct Source {
    /// The folder of its crate, such as `src` or `crates/petiole-mdns/src`.
    root: String,
    /// The path below that folder, such as `agent/slots/plan.rs`.
    pub(crate) path: String,
    pub(crate) docs: String,
    /// The whole text.
    pub(crate) text: String,
    /// The code without comments and without `mod tests`. Each comment is an empty line, so that line numbers stay right.
    pub(crate) code: String,
}

/// A path in the code, such as `crate::model::slot::Slot`, and its offset.
pub(crate) struct CodePath {
    pub(crate) offset: usize,
    pub(crate) path: String,
}

impl Source {
    /// A file of `src/`.
    pub(crate) fn new(path: &str, text: &str) -> Self {
        Self::of(SRC, path, text)
    }

    pub(crate) fn of(root: &str, path: &str, text: &str) -> Self {
        let production = text.split("\nmod tests {").next().unwrap();
        let is_comment = |line: &&str| line.trim_start().starts_with("//");
        let blanked = |line| if is_comment(&line) { "" } else { line };
        Self {
            root: root.to_owned(),
            path: path.to_owned(),
            docs: text
                .lines()
                .take_while(|line| line.starts_with("//!"))
                .collect(),
            text: text.to_owned(),
            code: production
                .lines()
                .map(blanked)
                .collect::<Vec<_>>()
                .join("\n"),
        }
    }

    /// Returns the number of lines of code.
    pub(crate) fn lines(&self) -> usize {
        let lines = self.code.lines();
        lines.filter(|line| !line.trim().is_empty()).count()
    }

    /// Returns whether it is of the package `petiole`.
    pub(crate) fn is_ours(&self) -> bool {
        self.root == SRC
    }

    /// Returns the path below the root of the repository.
    pub(crate) fn whole_path(&self) -> String {
        format!("{}/{}", self.root, self.path)
    }

    /// Returns whether it is on the module map.
    pub(crate) fn is_mapped(&self) -> bool {
        self.is_ours() || MAPPED.contains(&self.root.as_str()) || self.crate_module().is_some()
    }

    /// Returns the module of the map that its whole crate is.
    pub(crate) fn crate_module(&self) -> Option<&'static str> {
        let found = MODULES.iter().find(|(root, _)| *root == self.root);
        found.map(|(_, module)| *module)
    }

    /// Returns the top-level module.
    pub(crate) fn module(&self) -> &str {
        let folder = || self.path.split('/').next().unwrap().trim_end_matches(".rs");
        self.crate_module().unwrap_or_else(folder)
    }

    /// Returns the path of the module that this file defines, such as `agent/slots`.
    pub(crate) fn module_path(&self) -> &str {
        self.path.trim_end_matches(".rs")
    }

    /// Returns whether the file contains tests only.
    pub(crate) fn is_test(&self) -> bool {
        let mut parts = self.path.trim_end_matches(".rs").split('/');
        parts.any(|part| part == "tests" || part.ends_with("_tests"))
    }

    /// Returns whether the file must be pure: `model/`, every `plan.rs`, a handler's `details.rs` and `service.rs`, and
    /// every file whose header says `Pure.`.
    pub(crate) fn is_pure(&self) -> bool {
        let name = self.path.rsplit('/').next().unwrap();
        let is_handler = self.path.starts_with("discovery/handlers/");
        self.module() == "model"
            || name == "plan.rs"
            || is_handler && matches!(name, "details.rs" | "service.rs")
            || self.docs.contains("Pure.")
    }

    pub(crate) fn at(&self, offset: usize) -> String {
        let line = self.code[..offset].matches('\n').count() + 1;
        format!("{}:{line}", self.whole_path())
    }

    /// Returns every path of the code: those of `use` declarations in full, and those that are written in place.
    pub(crate) fn paths(&self) -> Vec<CodePath> {
        let mut paths = vec![];
        let mut rest = 0;
        while let Some(start) = next_path(&self.code, rest) {
            let end = read_path(&self.code, start, "", &mut paths);
            // `pub(in crate::agent)` names a module and imports nothing from it.
            if self.code[..start].ends_with("(in ") {
                paths.pop();
            }
            rest = end.max(start + 1);
        }
        paths
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns the start of the next `word::` that is not itself inside a path.
fn next_path(code: &str, from: usize) -> Option<usize> {
    let mut at = from;
    while let Some(colons) = code[at..].find("::").map(|i| at + i) {
        let start = code[..colons].rfind(|c| !is_word(c)).map_or(0, |i| i + 1);
        if start >= from && start < colons {
            return Some(start);
        }
        at = colons + 2;
    }
    None
}

/// Reads a path, or a tree of them in braces, and adds each one to `paths`. Returns its end.
fn read_path(code: &str, start: usize, prefix: &str, paths: &mut Vec<CodePath>) -> usize {
    let mut path = prefix.to_owned();
    let mut at = start;
    loop {
        let word: String = code[at..].chars().take_while(|c| is_word(*c)).collect();
        at += word.len();
        path.push_str(&word);
        let Some(after) = code[at..].strip_prefix("::") else {
            break;
        };
        at += 2;
        path.push_str("::");
        if after.starts_with('{') {
            return read_tree(code, at + 1, &path, paths);
        }
    }
    paths.push(CodePath {
        offset: start,
        path,
    });
    // Another name for it is no path.
    let alias = code[at..].strip_prefix(" as ");
    at + alias.map_or(0, |alias| {
        4 + alias.find(|c| !is_word(c)).unwrap_or(alias.len())
    })
}

fn read_tree(code: &str, start: usize, prefix: &str, paths: &mut Vec<CodePath>) -> usize {
    let mut at = start;
    while let Some(c) = code[at..].chars().next() {
        match c {
            '}' => return at + 1,
            c if is_word(c) => at = read_path(code, at, prefix, paths),
            c => at += c.len_utf8(),
        }
    }
    at
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = vec![];
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(files_below(&path))
        } else {
            files.push(path)
        }
    }
    files.sort();
    files
}

/// Returns all Rust files below a folder of the repository.
pub(crate) fn all_sources(folder: &str) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let rust = |path: &PathBuf| path.extension().is_some_and(|e| e == "rs");
    let source = |path: PathBuf| {
        let name = path.strip_prefix(&root).unwrap().to_str().unwrap();
        Source::of(folder, name, &fs::read_to_string(&path).unwrap())
    };
    let files = files_below(&root).into_iter();
    files.filter(rust).map(source).collect()
}

/// Returns the files of each crate that are not tests: of `petiole` first, then of those in `crates/`.
pub(crate) fn crates() -> Vec<Vec<Source>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates");
    let names = fs::read_dir(folder).unwrap();
    let mut roots: Vec<String> = names
        .map(|entry| format!("crates/{}/src", entry.unwrap().file_name().display()))
        .collect();
    roots.sort();
    roots.insert(0, SRC.to_owned());
    let sources = |root: &String| {
        let mut sources = all_sources(root);
        sources.retain(|source| !source.is_test());
        sources
    };
    roots.iter().map(sources).collect()
}

/// Returns the files of all crates that are not tests.
pub(crate) fn production_sources() -> Vec<Source> {
    crates().into_iter().flatten().collect()
}
