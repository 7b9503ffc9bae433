//! Checks that the pages stay short. A fact has one page, and other pages link to it.
use super::page::{Page, pages};

/// The most words of all pages together, and of one page.
const OF_ALL: usize = 25_000;
const OF_ONE: usize = 2_500;

/// The test `limits` of `tests/architecture` makes this page of the constants, as long as they are many.
const GENERATED: &str = "docs/limits.md";

fn words(page: &Page) -> usize {
    let has_letters = |word: &&str| word.contains(char::is_alphanumeric);
    page.text.split_whitespace().filter(has_letters).count()
}

#[test]
fn the_pages_are_short() {
    let of_users = |page: &Page| page.path == "README.md" || page.path.starts_with("docs/");
    let mut counted: Vec<(usize, String)> = (pages().into_iter())
        .filter(|page| of_users(page) && page.path != GENERATED)
        .map(|page| (words(&page), page.path))
        .collect();
    counted.sort();
    let total: usize = counted.iter().map(|(count, _)| count).sum();
    let longest = counted.last().unwrap();
    assert!(longest.0 <= OF_ONE, "{longest:?}");
    assert!(total <= OF_ALL, "{total} words: {counted:?}");
}
