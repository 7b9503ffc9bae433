//! Matches a text with a glob. Pure.

/// The longest text of a service, in bytes. The texts of sysfs are seldom longer.
pub(super) const TEXT_LENGTH: usize = 255;

/// A glob as `fnmatch` reads it without flags: `*` also matches slashes and leading dots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Glob(Vec<Token>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Character(char),
    AnyCharacter,
    AnyText,
    Set {
        is_negated: bool,
        ranges: Vec<(char, char)>,
    },
}

impl Token {
    fn steps(&self) -> usize {
        match self {
            Self::Character(_) | Self::AnyCharacter | Self::AnyText => 1,
            Self::Set { ranges, .. } => 1 + ranges.len(),
        }
    }

    fn takes(&self, c: char) -> bool {
        match self {
            Self::Character(own) => *own == c,
            Self::AnyCharacter => true,
            Self::AnyText => false,
            Self::Set { is_negated, ranges } => {
                ranges.iter().any(|(low, high)| (*low..=*high).contains(&c)) != *is_negated
            }
        }
    }
}

impl Glob {
    pub(super) fn new(text: &str) -> Self {
        let characters: Vec<char> = text.chars().collect();
        let mut tokens = vec![];
        let mut rest = characters.as_slice();
        while let [first, after @ ..] = rest {
            let (token, after) = match (first, after) {
                ('*', _) => (Token::AnyText, after),
                ('?', _) => (Token::AnyCharacter, after),
                ('[', _) => set(after).unwrap_or((Token::Character('['), after)),
                ('\\', [escaped, after @ ..]) => (Token::Character(*escaped), after),
                (other, _) => (Token::Character(*other), after),
            };
            if token != Token::AnyText || tokens.last() != Some(&Token::AnyText) {
                tokens.push(token);
            }
            rest = after;
        }
        Self(tokens)
    }

    /// Returns the most steps on a text of [`TEXT_LENGTH`] bytes: after a `*` each place of the text may be compared with all up
    /// to the next `*`.
    pub(super) fn steps(&self) -> usize {
        let mut parts = self.0.split(|token| *token == Token::AnyText);
        let steps = |part: &[Token]| part.iter().map(Token::steps).sum::<usize>();
        let first = parts.next().map_or(0, steps);
        let longest = parts.map(|part| 1 + steps(part)).max();
        1 + first + longest.map_or(0, |longest| TEXT_LENGTH * longest)
    }

    pub(super) fn matches(&self, text: &str) -> bool {
        self.run(text).0
    }

    /// Returns whether the glob matches, and the tokens that were compared. It backtracks to the last `*` only, so the time is
    /// at most the product of the two lengths.
    fn run(&self, text: &str) -> (bool, usize) {
        let text: Vec<char> = text.chars().collect();
        let (mut t, mut c) = (0, 0);
        let mut last_star = None;
        let mut compared = 0;
        while c < text.len() {
            compared += 1;
            match self.0.get(t) {
                Some(Token::AnyText) => {
                    last_star = Some((t, c));
                    t += 1;
                }
                Some(token) if token.takes(text[c]) => {
                    t += 1;
                    c += 1;
                }
                Some(_) | None => match last_star {
                    None => return (false, compared),
                    Some((star, from)) => {
                        last_star = Some((star, from + 1));
                        (t, c) = (star + 1, from + 1);
                    }
                },
            }
        }
        let is_end = self.0[t..].iter().all(|token| *token == Token::AnyText);
        (is_end, compared)
    }
}

/// Parses a set after its opening bracket. Returns the rest of the text too. Without a closing bracket the text is not
/// a set.
fn set(text: &[char]) -> Option<(Token, &[char])> {
    let (is_negated, mut rest) = match text {
        ['!' | '^', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    let mut ranges = vec![];
    loop {
        // A closing bracket at the first position belongs to the set.
        let (low, after) = match rest {
            [']', after @ ..] if !ranges.is_empty() => {
                return Some((Token::Set { is_negated, ranges }, after));
            }
            ['\\', low, after @ ..] | [low, after @ ..] => (*low, after),
            [] => return None,
        };
        rest = match after {
            ['-', high, after @ ..] if *high != ']' => {
                ranges.push((low, *high));
                after
            }
            _ => {
                ranges.push((low, low));
                after
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_glob_takes_no_more_steps_than_are_counted(pattern in "[ab*?]{0,24}", text in "[ab]{0,255}") {
            let glob = Glob::new(&pattern);
            prop_assert!(glob.run(&text).1 <= glob.steps(), "{:?}", glob.run(&text));
        }
    }
}
