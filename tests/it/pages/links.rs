//! Checks that every link leads to a file and a heading, and that every page is linked from the README and is in the
//! book.
use super::page::{Page, pages, read, root};
use std::collections::{BTreeMap, BTreeSet};

/// The files that `just book` copies beside the pages. A link of a page to any other file would be broken in the book.
const IN_THE_BOOK: &[&str] = &[
    "LICENSE",
    "charts/petiole/values.yaml",
    "crates/petiole-dra/examples/",
    "crates/petiole-kubelet-api/examples/",
    "crates/petiole-kubelet/examples/",
    "crates/petiole-mdns/examples/",
    "crates/petiole-mqtt/examples/",
    "crates/petiole-opcua/examples/",
    "docs/",
    "examples/",
    "src/lib.rs",
];

/// Returns the targets of the links in Markdown, without code.
fn links(page: &Page) -> Vec<String> {
    let prose = page.prose();
    let without_code: String = prose.split('`').step_by(2).collect();
    let mut found = vec![];
    for part in without_code.split("](").skip(1) {
        let (target, _) = part.split_once(')').unwrap();
        found.push(target.to_owned());
    }
    found
}

/// Returns the anchors of a page's headings, as GitHub and mdBook make them.
fn anchors(page: &Page) -> BTreeSet<String> {
    let prose = page.prose();
    let headings = prose.lines().filter_map(|line| {
        let title = line.trim_start_matches('#');
        (line != title).then(|| title.trim())
    });
    headings.map(anchor).collect()
}

fn anchor(title: &str) -> String {
    let kept = title.chars().filter_map(|c| match c {
        ' ' | '-' => Some('-'),
        '_' => Some('_'),
        c if c.is_alphanumeric() => Some(c.to_ascii_lowercase()),
        _ => None,
    });
    kept.collect()
}

/// Returns the path below the root to which `target` leads from the folder of `from`.
fn resolve(from: &str, target: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop().unwrap_or_else(|| panic!("{from}: {target}"))),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Returns the links of a page to files of the repository: the path, and the anchor if there is one.
fn local_links(page: &Page) -> Vec<(String, Option<String>)> {
    let local = links(page)
        .into_iter()
        .filter(|target| !target.contains("://"));
    let resolved = local.map(|target| {
        let (path, anchor) = match target.split_once('#') {
            Some((path, anchor)) => (path, Some(anchor.to_owned())),
            None => (target.as_str(), None),
        };
        match path {
            "" => (page.path.clone(), anchor),
            path => (resolve(&page.path, path), anchor),
        }
    });
    resolved.collect()
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let pages = pages();
    let anchors: BTreeMap<&str, _> = (pages.iter())
        .map(|page| (page.path.as_str(), anchors(page)))
        .collect();
    let mut broken = vec![];
    for page in &pages {
        for (path, anchor) in local_links(page) {
            let has_anchor = anchor.as_ref().is_none_or(|anchor| {
                (anchors.get(path.as_str())).is_some_and(|known| known.contains(anchor))
            });
            if !root().join(&path).exists() || !has_anchor {
                broken.push(format!(
                    "{}: {path} {}",
                    page.path,
                    anchor.unwrap_or_default()
                ));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn every_page_is_in_the_book_and_is_reached_from_the_readme() {
    let targets = |path: &str| -> BTreeSet<String> {
        let links = local_links(&read(path)).into_iter();
        links.map(|(path, _)| path).collect()
    };
    let (mut book, mut readme) = (targets("docs/SUMMARY.md"), targets("README.md"));
    readme.insert("README.md".to_owned());
    let all: BTreeSet<String> = (pages().into_iter())
        .map(|page| page.path)
        .filter(|path| path != "docs/SUMMARY.md")
        .collect();
    book.retain(|path| path.ends_with(".md"));
    readme.retain(|path| path.ends_with(".md"));
    assert_eq!(
        book, all,
        "the pages of docs/SUMMARY.md and those there are"
    );
    assert_eq!(
        readme, all,
        "the pages that README.md links and those there are"
    );
    let is_in_the_book = |path: &String| {
        let is_beside = |copied: &&str| {
            if copied.ends_with('/') {
                path.starts_with(*copied) && !path.ends_with(".md")
            } else {
                path == copied
            }
        };
        all.contains(path) || IN_THE_BOOK.iter().any(is_beside)
    };
    let mut outside = vec![];
    for page in pages() {
        let links = local_links(&page).into_iter().map(|(path, _)| path);
        outside.extend(
            links
                .filter(|path| !is_in_the_book(path) || root().join(path).is_dir())
                .map(|path| format!("{}: {path}", page.path)),
        );
    }
    assert!(outside.is_empty(), "not in the book: {outside:#?}");
}

#[test]
fn an_anchor_is_made_as_the_renderers_make_it() {
    assert_eq!(anchor("1. The image"), "1-the-image");
    assert_eq!(anchor("Without `helm install`"), "without-helm-install");
    assert_eq!(anchor("Install, and find"), "install-and-find");
}
