//! Checks that the comment before each block of commands names the test that runs it, or the reason why none does:
//!
//! - `<!-- run: lifecycle -->`: a suite of `tests/e2e` runs it (its text has `commands_of PAGE`), or `tests/it/pages`
//!   does;
//! - `<!-- part of: docs/cluster.md -->`: each line is one of a block of that page that is run;
//! - `<!-- not run: the reason -->`.
use super::{
    page::{Block, Page, files, pages, read, root},
    runs,
};
use std::fs;

/// Returns whether a block has commands for a reader's shell.
fn has_commands(block: &Block) -> bool {
    let is_shell = matches!(block.language.as_str(), "sh" | "bash" | "shell" | "console");
    is_shell || block.lines.iter().any(|line| line.starts_with("$ "))
}

/// Returns an error if the mark of a block is missing or wrong.
fn complaint(page: &Page, block: &Block) -> Option<String> {
    let Some(mark) = &block.mark else {
        return Some("no comment says which test runs it, or why none does".to_owned());
    };
    match mark.split_once(": ") {
        Some(("run", "tests/it/pages")) => (!runs::PAGES.contains(&page.path.as_str()))
            .then(|| "tests/it/pages does not run this page".to_owned()),
        Some(("run", suite)) => {
            let path = root().join(format!("tests/e2e/{suite}.suite.sh"));
            let text = fs::read_to_string(path).unwrap_or_default();
            let call = format!("commands_of {} {suite}", page.path);
            (!text.contains(&call)).then(|| format!("the suite {suite} has no `{call}`"))
        }
        Some(("part of", whole)) => not_part_of(block, &read(whole)),
        Some(("not run", why)) => not_a_reason(why),
        _ => Some(format!("nobody knows the mark {mark:?}")),
    }
}

/// Returns the command of a line, without its comment.
fn command(line: &str) -> &str {
    line.split(" #").next().unwrap_or_default().trim()
}

fn not_part_of(block: &Block, whole: &Page) -> Option<String> {
    let blocks = whole.blocks();
    let is_run = |block: &&Block| (block.mark.iter()).any(|mark| mark.starts_with("run: "));
    let run: Vec<&str> = (blocks.iter().filter(is_run))
        .flat_map(|block| block.lines.iter().map(|line| command(line)))
        .collect();
    let missing = block
        .lines
        .iter()
        .find(|line| !run.contains(&command(line)));
    missing.map(|line| format!("{} does not run {line:?}", whole.path))
}

/// Returns an error if a reason is not a sentence, or names a test that does not exist.
fn not_a_reason(why: &str) -> Option<String> {
    let suites: Vec<String> = files(&root().join("tests/e2e"), "sh")
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    let words = why.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '/' | '.')));
    let unknown = words.map(|word| word.trim_end_matches('.')).find(|word| {
        let step = format!("\n{word}() {{");
        let is_unknown_test =
            word.starts_with("test_") && !suites.iter().any(|text| text.contains(&step));
        is_unknown_test || (word.starts_with("tests/") && !root().join(word).exists())
    });
    match unknown {
        Some(word) => Some(format!("there is no {word}")),
        None => (why.len() < 20).then(|| "that is no reason".to_owned()),
    }
}

#[test]
fn every_block_of_commands_is_run_or_says_why_not() {
    let mut complaints = vec![];
    for page in pages() {
        for block in page.blocks().iter().filter(|block| has_commands(block)) {
            let why = complaint(&page, block);
            complaints.extend(why.map(|why| format!("{}:{}: {why}", page.path, block.line)));
        }
    }
    assert!(complaints.is_empty(), "{complaints:#?}");
}

#[test]
fn a_block_that_nobody_accounts_for_is_named() {
    let complaints = |mark: &str| {
        let page = Page {
            path: "docs/a.md".to_owned(),
            text: format!("text\n{mark}\n```sh\nls\n```\n"),
        };
        complaint(&page, &page.blocks()[0]).is_some()
    };
    for mark in [
        "",
        "<!-- run: lifecycle -->",
        "<!-- run: tests/it/pages -->",
        "<!-- part of: docs/cluster.md -->",
        "<!-- not run: no -->",
        "<!-- not run: the suite runs it in test_that_is_not_there -->",
        "<!-- tested by hand -->",
    ] {
        assert!(complaints(mark), "{mark}");
    }
    assert!(!complaints(
        "<!-- not run: it would delete the reader's files -->"
    ));
}
