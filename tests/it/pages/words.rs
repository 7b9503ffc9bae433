//! Checks that the pages stay short. A fact has one page, and other pages link to it.
use super::page::{Page, pages};

/// The most words of one page, and of all together.
const OF_ONE: usize = 2_500;
const OF_ALL: usize = 25_150;

/// The most words of a page with measurements, which programs write. They are for development, and are counted apart.
const OF_NUMBERS: usize = 900;
const NUMBERS: &[&str] = &[
    "docs/performance-cluster.md",
    "docs/performance.md",
    "docs/scale.md",
];

/// These pages are made of the constants and of the definitions, and are as long as those are many.
const GENERATED: &[&str] = &["docs/limits.md", "docs/configuration.md"];

/// Returns the number of words: what has a letter or a digit.
fn words(page: &Page) -> usize {
    let has_letters = |word: &&str| word.contains(char::is_alphanumeric);
    page.text.split_whitespace().filter(has_letters).count()
}

#[test]
fn the_pages_are_short() {
    let is_counted = |page: &Page| {
        let is_of_people = page.path == "README.md" || page.path.starts_with("docs/");
        is_of_people && !GENERATED.contains(&page.path.as_str())
    };
    let mut total = 0;
    let mut counts = vec![];
    for page in pages().into_iter().filter(is_counted) {
        let count = words(&page);
        let is_of_numbers = NUMBERS.contains(&page.path.as_str());
        let most = if is_of_numbers { OF_NUMBERS } else { OF_ONE };
        assert!(
            count <= most,
            "{}: {count} words, {most} at most",
            page.path
        );
        if !is_of_numbers {
            total += count;
            counts.push((count, page.path));
        }
    }
    counts.sort();
    assert!(
        total <= OF_ALL,
        "{total} words, {OF_ALL} at most: say less, or raise OF_ALL of tests/it/pages/words.rs: {counts:?}"
    );
}
