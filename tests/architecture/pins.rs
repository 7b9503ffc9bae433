//! Checks that what builds and releases Petiole is named by its content: actions by commit, images by digest; and that every
//! fuzz target is run.
use std::{fs, path::Path};

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

fn is_digest(text: &str, length: usize) -> bool {
    let is_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    text.len() == length && text.bytes().all(is_hex)
}

/// Returns the lines that name something by a tag, which its owner can move.
fn movable(text: &str) -> Vec<&str> {
    let is_movable = |line: &&str| {
        let line = line.trim().trim_start_matches("- ");
        if let Some(action) = line.strip_prefix("uses: ") {
            let commit = action
                .split_once('@')
                .and_then(|(_, at)| at.split_once(" # v"));
            return !commit.is_some_and(|(commit, _)| is_digest(commit, 40));
        }
        let image = line
            .split_once("image: ")
            .filter(|_| line.starts_with("container: "));
        let image = image.map(|(_, image)| image).or(line.strip_prefix("FROM "));
        image.is_some_and(|image| {
            let name = image
                .trim_matches('"')
                .split([' ', '"', ','])
                .next()
                .unwrap();
            let digest = name.split_once("@sha256:").map_or("", |(_, digest)| digest);
            // What the same file builds has no colon.
            name.contains([':', '/']) && !is_digest(digest, 64)
        })
    };
    text.lines().filter(is_movable).collect()
}

#[test]
fn actions_and_images_are_named_by_digest() {
    for path in [
        ".github/workflows/ci.yml",
        ".github/workflows/nightly.yml",
        ".github/workflows/release.yml",
        "Dockerfile",
    ] {
        let text = read(path);
        assert_eq!(
            movable(&text),
            [""; 0],
            "{path}: write the digest, and the version behind it"
        );
        let installs: Vec<&str> = text
            .lines()
            .filter(|line| line.contains("cargo install"))
            .collect();
        assert!(
            installs.is_empty(),
            "{path}: .ci/tools has the version of each tool: {installs:?}"
        );
    }
    let image = |path| {
        let text = read(path);
        let (_, image) = text.split_once("rust:").unwrap();
        image.split([' ', '"']).next().unwrap().to_owned()
    };
    assert_eq!(image("Dockerfile"), image(".github/workflows/ci.yml"));
}

#[test]
fn a_tag_is_found_wherever_it_stands() {
    let commit = "d23441a48e516b6c34aea4fa41551a30e30af803";
    for (line, is_found) in [
        (
            format!("      - uses: actions/checkout@{commit} # v6.1.0"),
            false,
        ),
        (format!("      - uses: actions/checkout@{commit}"), true),
        ("        uses: actions/checkout@v6".to_owned(), true),
        ("FROM scratch AS base".to_owned(), false),
        ("FROM rust:1.95-bookworm AS builder".to_owned(), true),
        (
            format!("FROM rust:1.95@sha256:{commit}{}", &commit[..24]),
            false,
        ),
        (
            format!(
                "    container: {{image: \"rust:1.95@sha256:{commit}{}\", options: a}}",
                &commit[..24]
            ),
            false,
        ),
        (
            "    container: {image: \"rust:1.95\", options: a}".to_owned(),
            true,
        ),
    ] {
        assert_eq!(!movable(&line).is_empty(), is_found, "{line}");
    }
}

/// Returns the first words of `text` between `open` and `close`.
fn words_between<'a>(text: &'a str, open: char, close: &str) -> Vec<&'a str> {
    let parts = text.split(open).skip(1);
    parts
        .filter_map(|part| Some(part.split_once(close)?.0))
        .collect()
}

#[test]
fn every_fuzz_target_is_run_and_has_inputs_to_begin_with() {
    let run = read("fuzz/run");
    let (_, longest) = run.split_once("longest=(").unwrap();
    let run = words_between(longest.split_once(")\n").unwrap().0, '[', "]=");
    let main = read("fuzz/src/main.rs");
    let (_, targets) = main.split_once("TARGETS: [(&str, Target); ").unwrap();
    let targets = words_between(targets.split_once("];").unwrap().0, '(', ", ");
    let targets: Vec<&str> = (targets.iter())
        .map(|name| name.trim_matches('"'))
        .collect();
    assert!(targets.len() > 10);
    assert_eq!(run, targets);
    for name in targets {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
        assert!(path.join(name).is_dir(), "{name}");
    }
}
