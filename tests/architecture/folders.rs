//! The order of the files within each folder: no cycles, and no import from a file back to its parent module.
use crate::{
    beyond,
    source::{Source, crates},
};
use std::collections::{BTreeMap, BTreeSet};

/// A module imports from another one; both are paths such as `agent/slots`.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Import {
    from: String,
    to: String,
}

/// Returns all imports between modules.
fn imports(sources: &[Source]) -> BTreeSet<Import> {
    let modules: BTreeSet<&str> = sources.iter().map(Source::module_path).collect();
    let mut imports = BTreeSet::new();
    for source in sources {
        let from = source.module_path();
        for path in source.paths() {
            let target = resolved(from, &path.path, &modules);
            if let Some(to) = target.filter(|to| to != from) {
                let from = from.to_owned();
                imports.insert(Import { from, to });
            }
        }
    }
    imports
}

/// Returns the module that `path` names in the module `from`.
fn resolved(from: &str, path: &str, modules: &BTreeSet<&str>) -> Option<String> {
    let mut words = path.split("::").peekable();
    let mut module: Vec<&str> = match words.peek()? {
        &"crate" => {
            words.next();
            vec![]
        }
        _ => from.split('/').collect(),
    };
    while let Some(word) = words.next_if(|word| ["self", "super"].contains(word)) {
        if word == "super" {
            module.pop();
        }
    }
    let is_relative = !["crate", "self", "super"].contains(&path.split("::").next()?);
    let base = module.len();
    for word in words {
        module.push(word);
        if !modules.contains(module.join("/").as_str()) {
            module.pop();
            break;
        }
    }
    // The first word of a relative path is a child module, or a name that was imported before.
    if is_relative && module.len() == base {
        return None;
    }
    Some(module.join("/")).filter(|module| modules.contains(module.as_str()))
}

/// Returns the modules that their own children import from.
fn imported_by_children(imports: &BTreeSet<Import>) -> Vec<String> {
    let back = imports
        .iter()
        .filter(|import| import.from.starts_with(&format!("{}/", import.to)));
    let parents: BTreeSet<String> = back.map(|import| import.to.clone()).collect();
    parents.into_iter().collect()
}

/// Returns the folders whose direct children import each other in a cycle.
fn cyclic(imports: &BTreeSet<Import>) -> Vec<String> {
    let mut by_folder: BTreeMap<String, BTreeMap<&str, BTreeSet<&str>>> = BTreeMap::new();
    for Import { from, to } in imports {
        let (from, to): (Vec<&str>, Vec<&str>) =
            (from.split('/').collect(), to.split('/').collect());
        let shared = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
        if shared == from.len() || shared == to.len() {
            continue;
        }
        let folder = by_folder.entry(from[..shared].join("/")).or_default();
        folder.entry(from[shared]).or_default().insert(to[shared]);
    }
    let is_cyclic = |graph: &BTreeMap<&str, BTreeSet<&str>>| {
        graph.keys().any(|start| reaches(graph, start, start))
    };
    let cyclic = by_folder.into_iter().filter(|(_, graph)| is_cyclic(graph));
    let name = |folder: String| match folder.as_str() {
        "" => "the top folder".to_owned(),
        _ => folder,
    };
    cyclic.map(|(folder, _)| name(folder)).collect()
}

fn reaches(graph: &BTreeMap<&str, BTreeSet<&str>>, start: &str, end: &str) -> bool {
    let mut seen = BTreeSet::new();
    let mut open = vec![start];
    while let Some(node) = open.pop() {
        for next in graph.get(node).into_iter().flatten() {
            if *next == end {
                return true;
            }
            if seen.insert(*next) {
                open.push(next);
            }
        }
    }
    false
}

#[test]
fn the_files_of_a_folder_have_no_cycles_and_no_imports_from_their_parent() {
    let by_crate: Vec<_> = crates().iter().map(|sources| imports(sources)).collect();
    assert!(by_crate.len() > 1 && by_crate[0].len() > 100);
    assert!(by_crate.iter().all(|imports| !imports.is_empty()));
    let cyclic: Vec<String> = by_crate.iter().flat_map(cyclic).collect();
    let parents: Vec<String> = by_crate.iter().flat_map(imported_by_children).collect();
    let mut messages = beyond("files in a cycle", &cyclic, &[]);
    messages.extend(beyond("a child imports from its parent", &parents, &[]));
    for import in by_crate.iter().flatten() {
        if messages
            .iter()
            .any(|m| m.ends_with(&format!(": {}", import.to)))
            && import.from.starts_with(&format!("{}/", import.to))
        {
            messages.push(format!("  {} imports from {}", import.from, import.to));
        }
    }
    assert!(messages.is_empty(), "{}", messages.join("\n"));
}

fn example(files: &[(&str, &str)]) -> BTreeSet<Import> {
    let sources: Vec<Source> = files
        .iter()
        .map(|(path, text)| Source::new(path, text))
        .collect();
    imports(&sources)
}

#[test]
fn a_cycle_is_found_through_sub_folders_and_the_parent_is_no_part_of_it() {
    let found = example(&[
        ("a.rs", "mod b;\nuse b::run;"),
        ("a/b.rs", "use super::c::Value;"),
        ("a/c.rs", ""),
        ("a/c/plan.rs", "use crate::a::{b::Task, d};"),
        ("a/d.rs", ""),
    ]);
    assert_eq!(cyclic(&found), ["a"]);
    assert_eq!(imported_by_children(&found), [""; 0]);
    let found = example(&[("a.rs", "use crate::b::X;"), ("b.rs", "use super::a::Y;")]);
    assert_eq!(cyclic(&found), ["the top folder"]);
}

#[test]
fn an_import_from_the_parent_is_found_however_it_is_written() {
    for text in [
        "use super::Node;",
        "use crate::a::{b::X, Node};",
        "fn f(_: super::Node) {}",
    ] {
        let found = example(&[("a.rs", ""), ("a/b.rs", ""), ("a/c.rs", text)]);
        assert_eq!(imported_by_children(&found), ["a"], "{text}");
    }
    let found = example(&[("a.rs", ""), ("a/b.rs", "use super::c;"), ("a/c.rs", "")]);
    assert_eq!(imported_by_children(&found), [""; 0]);
    let found = example(&[("a.rs", ""), ("a/b.rs", "use super::*;")]);
    assert_eq!(imported_by_children(&found), ["a"]);
    let found = example(&[("a.rs", ""), ("a/b.rs", "pub(in crate::a) fn f() {}")]);
    assert_eq!(imported_by_children(&found), [""; 0]);
}
