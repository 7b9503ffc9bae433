//! Checks the shape of files and functions: their lengths, the number of parameters, and that no parameter is a tuple.
use crate::{
    beyond,
    source::{Source, all_sources, production_sources},
};
use std::collections::BTreeMap;

/// The most lines of code in a file of the product: without comments, empty lines and tests.
const CODE_LINES_MAX: usize = 350;
/// The longest file in lines, with its comments and tests.
const FILE_LINES_MAX: usize = 600;
/// The longest body of a function in lines, without empty lines and comments.
const FUNCTION_LINES_MAX: usize = 60;
const PARAMETERS_MAX: usize = 5;
/// Nouns that fit everything that a program keeps or looks at. A reader of a second one would have to ask which is meant.
const FITS_EVERYTHING: &[&str] = &[
    "Data", "Found", "Info", "Known", "Look", "Memory", "Place", "Seen",
];

/// A function as it is written.
#[derive(Debug, PartialEq, Eq)]
struct Function {
    name: String,
    lines: usize,
    /// Each parameter as it is written, with `self`.
    parameters: Vec<String>,
    /// True if a trait says what the parameters are.
    is_of_trait: bool,
}

impl Function {
    /// Returns whether a parameter is a tuple: its parts have no names at the call.
    fn has_tuple(&self) -> bool {
        self.parameters.iter().any(|parameter| {
            let (pattern, kind) = parameter.split_once(": ").unwrap_or((parameter, ""));
            let kind = kind.trim_start_matches(['&', '*']).trim_start();
            let is_unit = kind == "()";
            pattern.starts_with('(') || kind.starts_with('(') && !is_unit
        })
    }
}

/// Returns the functions with a body. It relies on the formatting of rustfmt: a function ends with a brace that is
/// indented like its first line.
fn functions(text: &str) -> Vec<Function> {
    let lines: Vec<&str> = text.lines().collect();
    let mut functions = vec![];
    for (first, line) in lines.iter().enumerate() {
        let Some((before, after)) = line.split_once("fn ").filter(|_| is_signature(line)) else {
            continue;
        };
        let name = after.split(['(', '<']).next().unwrap_or_default();
        let indent = &line[..line.len() - line.trim_start().len()];
        let end = format!("{indent}}}");
        let is_short = line.ends_with('}');
        let last = if is_short {
            Some(first)
        } else {
            (first..lines.len()).find(|n| lines[*n] == end)
        };
        let signature = lines[first..].join("\n")[before.len()..].to_owned();
        let Some(last) = last.filter(|_| has_body(&signature)) else {
            continue;
        };
        let body = (first..last).find(|n| lines[*n].ends_with('{'));
        let body = body.map_or(last..last, |opens| opens + 1..last);
        let is_code = |line: &&&str| !line.trim().is_empty() && !line.trim().starts_with("//");
        functions.push(Function {
            name: name.to_owned(),
            lines: lines[body].iter().filter(is_code).count(),
            parameters: parameters(&signature),
            is_of_trait: is_in_impl_of_trait(&lines[..=first]),
        });
    }
    functions
}

/// Returns whether the last of these lines is in an `impl` of a trait. The line that begins an item is not indented.
fn is_in_impl_of_trait(until: &[&str]) -> bool {
    let is_outer =
        |line: &&&str| line.starts_with(char::is_alphabetic) && !line.starts_with("where");
    let item = until.iter().rfind(is_outer);
    item.is_some_and(|line| line.starts_with("impl") && line.contains(" for "))
}

/// Returns whether a line begins a function: only qualifiers precede `fn`.
fn is_signature(line: &str) -> bool {
    let Some((before, _)) = line.trim_start().split_once("fn ") else {
        return false;
    };
    let is_qualifier =
        |word: &str| word.starts_with("pub") || ["async", "const", "in", "super)"].contains(&word);
    before.split_whitespace().all(is_qualifier)
}

/// Returns whether the body comes before a semicolon, which would end the method of a trait.
fn has_body(signature: &str) -> bool {
    let mut depth = 0_i32;
    for c in signature.chars() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            ';' if depth == 0 => return false,
            '{' if depth == 0 => return true,
            _ => {}
        }
    }
    false
}

/// Returns the parameters of the function at the start of `signature`, with `self`.
fn parameters(signature: &str) -> Vec<String> {
    let mut depth = 0_i32;
    let mut found = vec![];
    let mut parameter = String::new();
    let mut is_inside = false;
    let mut previous = ' ';
    for c in signature.chars() {
        let is_arrow = c == '>' && (previous == '-' || previous == '=');
        previous = c;
        match c {
            '(' if depth == 0 && !is_inside => {
                is_inside = true;
                continue;
            }
            ')' if depth == 0 && is_inside => break,
            '(' | '[' | '{' | '<' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            '>' if !is_arrow => depth -= 1,
            ',' if depth == 0 && is_inside => {
                found.push(std::mem::take(&mut parameter));
                continue;
            }
            _ => {}
        }
        if is_inside {
            parameter.push(c);
        }
    }
    found.push(parameter);
    let trimmed = found.iter().map(|parameter| parameter.trim().to_owned());
    trimmed.filter(|parameter| !parameter.is_empty()).collect()
}

fn long_files(sources: &[Source], lines: fn(&Source) -> usize, most: usize) -> Vec<String> {
    let long = sources.iter().filter(|source| lines(source) > most);
    long.map(Source::whole_path).collect()
}

/// Returns whether the file is a `mod.rs`. Only a folder of `tests/` needs one: Cargo takes a file beside it for a test of its own.
fn is_named_by_its_folder(source: &Source) -> bool {
    let path = source.whole_path();
    let mut above = path.rsplit('/').skip(2);
    path.ends_with("/mod.rs") && above.next() != Some("tests")
}

/// Returns the functions that `is_fault` selects, as `<file>: <name>`. Clippy measures those in tests too.
fn faulty(sources: &[Source], is_fault: impl Fn(&Function) -> bool) -> Vec<String> {
    let faults = sources.iter().flat_map(|source| {
        let functions = functions(&source.code).into_iter();
        functions
            .filter(&is_fault)
            .map(|function| format!("{}: {}", source.whole_path(), function.name))
            .collect::<Vec<_>>()
    });
    faults.collect()
}

#[test]
fn files_and_functions_are_short_and_have_few_parameters_and_no_tuples() {
    let (mut files, mut folders) = (vec![], vec![]);
    for folder in ["src", "tests", "crates"] {
        let sources = all_sources(folder);
        assert!(sources.len() > 10);
        let lines = |source: &Source| source.text.lines().count();
        files.extend(long_files(&sources, lines, FILE_LINES_MAX));
        let modules = sources
            .iter()
            .filter(|source| is_named_by_its_folder(source));
        folders.extend(modules.map(Source::whole_path));
    }
    let sources = production_sources();
    files.extend(long_files(&sources, Source::lines, CODE_LINES_MAX));
    let functions = faulty(&sources, |f| f.lines > FUNCTION_LINES_MAX);
    let has_many = |f: &Function| !f.is_of_trait && f.parameters.len() > PARAMETERS_MAX;
    let parameters = faulty(&sources, has_many);
    let tuples = faulty(&sources, Function::has_tuple);
    let rule = format!("{CODE_LINES_MAX} lines of code, or {FILE_LINES_MAX} in all, are exceeded");
    let mut messages = beyond(&rule, &files, &[]);
    let rule = format!("function longer than {FUNCTION_LINES_MAX} lines");
    messages.extend(beyond(&rule, &functions, &[]));
    let rule = format!("more than {PARAMETERS_MAX} parameters");
    messages.extend(beyond(&rule, &parameters, &[]));
    messages.extend(beyond("a tuple as parameter", &tuples, &[]));
    messages.extend(beyond("a module is `x.rs`, not `x/mod.rs`", &folders, &[]));
    assert!(messages.is_empty(), "{}", messages.join("\n"));
}

/// Returns the names of the types that a file defines.
fn types(source: &Source) -> impl Iterator<Item = &str> {
    let words = source
        .code
        .split(|c: char| !(c.is_alphanumeric() || c == '_'));
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let defined = words.windows(2).filter_map(|pair| match pair {
        ["struct" | "enum" | "trait" | "type", name] => Some(*name),
        _ => None,
    });
    defined.collect::<Vec<_>>().into_iter()
}

#[test]
fn a_noun_that_fits_everything_names_one_type_at_most() {
    let mut named: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let sources = production_sources();
    for source in sources.iter().filter(|source| source.is_ours()) {
        for name in types(source).filter(|name| FITS_EVERYTHING.contains(name)) {
            named.entry(name).or_default().push(source.whole_path());
        }
    }
    assert!(!named.is_empty());
    named.retain(|_, files| files.len() > 1);
    assert!(named.is_empty(), "say of what each of them is: {named:#?}");
}

#[test]
fn functions_are_measured_without_comments_and_with_self() {
    let text = "\
impl A {
    pub(crate) async fn first<F: Fn(u8, u8) -> u8>(
        &self,
        pair: (u8, u8),
        map: BTreeMap<u8, u8>,
        f: impl Fn(u8, u8) -> u8,
    ) -> u8
    where
        F: Send,
    {
        // A comment.

        f(1, 2)
    }

    fn none() {}
}

trait B {
    fn without_body(&self, a: u8);
}

/// Has what the trait says.
impl<T> B for A<T>
where
    T: Send,
{
    fn without_body(&self, a: u8) {}
}

fn after(b: &impl for<'a> Fn(&'a u8)) {}
";
    let found = functions(text);
    let measured = |function: &Function| {
        let Function { name, lines, .. } = function;
        (name.clone(), *lines, function.parameters.len())
    };
    let of_trait = found.iter().filter(|function| function.is_of_trait);
    let of_trait: Vec<_> = of_trait.map(|function| &function.name).collect();
    assert_eq!(of_trait, ["without_body"]);
    let expected = [
        ("first", 1, 4),
        ("none", 0, 0),
        ("without_body", 0, 2),
        ("after", 0, 1),
    ];
    let expected = expected.map(|(name, lines, all)| (name.to_owned(), lines, all));
    assert_eq!(found.iter().map(measured).collect::<Vec<_>>(), expected);
}

#[test]
fn a_parameter_that_is_a_tuple_by_its_pattern_or_its_type_is_found() {
    let cases = [
        ("fn f((a, b): (u8, u8)) {}", true),
        ("fn f(&self, pair: &(u8, u8)) {}", true),
        (
            "fn f(Pair { a, b }: Pair, all: &[(u8, u8)], f: impl Fn((u8, u8))) {}",
            false,
        ),
        ("fn f(nothing: ()) {}", false),
    ];
    for (text, is_fault) in cases {
        assert_eq!(functions(text)[0].has_tuple(), is_fault, "{text}");
    }
}
