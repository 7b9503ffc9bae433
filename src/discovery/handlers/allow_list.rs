//! What a flag allows Configurations to offer or to have asked. Pure.
use std::{collections::BTreeSet, str::FromStr};

/// The entry that allows everything, on the command line.
const ALL: &str = "*";

/// Everything, or what is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllowList<T> {
    All,
    Only(BTreeSet<T>),
}

/// An entry of the list, as written on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<T>(Option<T>);

impl<T> Entry<T> {
    /// Returns what the entry names; `None` if it allows everything.
    pub(super) fn named(self) -> Option<T> {
        self.0
    }
}

impl<T: FromStr> FromStr for Entry<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, T::Err> {
        match text.trim() {
            ALL => Ok(Self(None)),
            _ => text.parse().map(|named| Self(Some(named))),
        }
    }
}

impl<T: Ord> FromIterator<Entry<T>> for AllowList<T> {
    fn from_iter<I: IntoIterator<Item = Entry<T>>>(entries: I) -> Self {
        let named: Option<BTreeSet<T>> = entries.into_iter().map(Entry::named).collect();
        named.map_or(Self::All, Self::Only)
    }
}

impl<T: Ord + Clone> AllowList<T> {
    /// Returns the list of a flag; without the flag everything is allowed or nothing.
    pub fn of_flag(entries: Option<&[Entry<T>]>, is_all_usual: bool) -> Self {
        match entries {
            Some(entries) => entries.iter().cloned().collect(),
            None if is_all_usual => Self::All,
            None => Self::Only(BTreeSet::new()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(texts: &[&str]) -> AllowList<u8> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn a_star_among_the_entries_allows_everything() {
        assert_eq!(list(&[]), AllowList::Only([].into()));
        assert_eq!(list(&["2", "1", "2"]), AllowList::Only([1, 2].into()));
        assert_eq!(list(&["1", " *"]), AllowList::All);
        assert!("1*".parse::<Entry<u8>>().is_err());
    }

    #[test]
    fn without_the_flag_the_usual_counts_and_an_empty_flag_allows_nothing() {
        let nothing = AllowList::Only(BTreeSet::<u8>::new());
        assert_eq!(AllowList::of_flag(None, false), nothing);
        assert_eq!(AllowList::<u8>::of_flag(None, true), AllowList::All);
        assert_eq!(AllowList::of_flag(Some(&[]), true), nothing);
    }
}
