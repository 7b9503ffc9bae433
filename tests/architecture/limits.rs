//! Writes the tables of `docs/limits.md` from the constants of all crates: the value of each, and what its comment says.
//!
//! A limit is a constant whose comment has a sentence that begins with `Beyond it:`. Every whole number that is called
//! a limit by its name must have one. `PETIOLE_UPDATE_GOLDEN=1 cargo test --test architecture limits` writes the page.
use crate::{
    beyond,
    source::{Source, production_sources},
};
use std::{env, fs, iter, path::Path};

const PAGE: &str = "docs/limits.md";
/// The mark of a table in the page. The words after it are the beginnings of paths: below `src/`, or of another crate, below
/// the root of the repository.
const MARK: &str = "<!-- constants of ";
const BEYOND: &str = " Beyond it: ";
/// The section whose numbers were measured.
const MEASURED: &str = "## Of memory";

/// Constants that are called limits and bound no input: what we send or show ourselves, and steps of our own.
const NO_INPUT: &[&str] = &[
    "agent/plugins/plan.rs: SOCKET_NAME_LIMIT",
    "agent/plugins/plan.rs: SOCKET_PATH_LIMIT",
    "controller/index.rs: LABEL_LIMIT",
    "controller/services/plan.rs: NAME_LIMIT",
    "controller/status/verdict.rs: NAMED_MAX",
    "crates/petiole-kubelet-api/src/uds/rewriter.rs: MOST_HELD",
    "crates/petiole-mdns/src/network.rs: HOP_LIMIT",
    "crates/petiole-mdns/src/querier/state.rs: NOTES_MAX",
    "crates/petiole-mdns/src/query.rs: PACKET_MAX",
    "crates/petiole-mdns/src/query.rs: POINTED_MAX",
    "crates/petiole-model/src/api/broker.rs: NAME_LIMIT",
    "crates/petiole-model/src/model/resource_name.rs: SUBDOMAIN_LIMIT",
    "crates/petiole-people/src/inspect/devices.rs: MESSAGE_MAX",
    "crates/petiole-people/src/inspect/doctor/line.rs: LINE_MAX",
    "crates/petiole-people/src/inspect/why/finding.rs: WORDS_MAX",
    "crates/petiole-people/src/inspect/why/plan.rs: TROUBLES_MAX",
    "crates/petiole-people/src/inspect/why/plan/nodes.rs: TROUBLES_MAX",
    "crates/petiole-people/src/inspect/why/plan/resource.rs: TROUBLES_MAX",
    "crates/petiole-people/src/inspect/why/plan/resource.rs: TYPOS_MAX",
    "crates/petiole-people/src/inspect/why/plan/unscheduled.rs: NAMED_MAX",
    "crates/petiole-people/src/live/state.rs: CHANGES_MAX",
    "crates/petiole-telemetry/src/http.rs: NAMED_MAX",
    "discovery/external/listing.rs: SHOWN_MAX",
    "merge/events.rs: MOST",
    "merge/stale.rs: REMOVED_MAX",
];

struct Constant {
    /// The path of its file, as in a mark.
    path: String,
    name: String,
    kind: String,
    value: String,
    /// Its comment on one line.
    docs: String,
}

impl Constant {
    fn place(&self) -> String {
        format!("{}: {}", self.path, self.name)
    }

    /// Returns whether the name calls a whole number a limit.
    fn is_called_a_limit(&self) -> bool {
        let integers = ["usize", "u8", "u16", "u32", "u64", "i32", "i64"];
        let mut words = self.name.split('_');
        integers.contains(&self.kind.as_str())
            && words.any(|word| ["MAX", "MOST", "LIMIT"].contains(&word))
    }

    /// Returns what is bounded, which is the first sentence of the comment, and what happens beyond it.
    fn bound(&self) -> Option<(&str, &str)> {
        let (what, beyond) = self.docs.split_once(BEYOND)?;
        let (what, _) = what
            .strip_suffix('.')?
            .split_once(". ")
            .unwrap_or((what, ""));
        Some((what.trim_end_matches('.'), beyond.strip_suffix('.')?))
    }

    /// Returns the value with its unit: the first one that the comment names.
    fn shown(&self, all: &[Self]) -> Option<String> {
        let value = value(&self.value, self, all)?;
        if self.kind == "Duration" {
            return Some(match value % 1000 {
                0 => format!("{} s", value / 1000),
                _ => format!("{value} ms"),
            });
        }
        let (what, _) = self.bound()?;
        let unit = what
            .split(|c: char| !c.is_ascii_lowercase())
            .find(|word| ["bytes", "characters", "seconds", "steps"].contains(word));
        Some(match unit {
            Some("bytes") if value % (1 << 20) == 0 => format!("{} MiB", value >> 20),
            Some("bytes") if value % 1024 == 0 && value > 8192 => format!("{} KiB", value >> 10),
            Some(unit) => format!("{} {unit}", grouped(value)),
            None => grouped(value),
        })
    }

    fn row(&self, all: &[Self]) -> String {
        let (what, beyond) = self.bound().unwrap_or_default();
        let shown = self.shown(all);
        let shown = shown.unwrap_or_else(|| panic!("{}: no value is known", self.place()));
        // The value has the unit.
        let what = what
            .replace(", in bytes", "")
            .replace(", in characters", "");
        let cells = [&what, &shown, beyond].map(|cell| cell.replace('|', "\\|"));
        format!("| {} | `{}` |", cells.join(" | "), self.name)
    }
}

/// Returns the constants of a file outside its tests. It relies on the formatting of rustfmt.
fn constants(source: &Source) -> Vec<Constant> {
    let production = source.text.split("\nmod tests {").next().unwrap();
    let mut lines = production.lines().map(str::trim);
    let mut found = vec![];
    let mut docs = vec![];
    while let Some(line) = lines.next() {
        if let Some(text) = line.strip_prefix("/// ") {
            docs.push(text);
        } else if let Some((_, declared)) = line
            .split_once("const ")
            .filter(|(before, _)| before.is_empty() || before.starts_with("pub"))
        {
            let mut whole = declared.to_owned();
            while !whole.ends_with(';') {
                let Some(next) = lines.next() else { break };
                whole.push_str(next);
            }
            let declared = whole.trim_end_matches(';').split_once(": ");
            if let Some((name, (kind, value))) =
                declared.and_then(|(name, rest)| Some((name, rest.split_once(" = ")?)))
            {
                found.push(Constant {
                    path: if source.is_ours() {
                        source.path.clone()
                    } else {
                        source.whole_path()
                    },
                    name: name.to_owned(),
                    kind: kind.to_owned(),
                    value: value.to_owned(),
                    docs: docs.join(" "),
                });
            }
            docs.clear();
        } else if !line.starts_with("#[") {
            docs.clear();
        }
    }
    found
}

/// Returns the constants of all crates. Those that only the fuzz targets see repeat others.
fn all_constants() -> Vec<Constant> {
    let sources = production_sources().into_iter();
    let real = sources.filter(|source| !source.path.ends_with("fuzzing.rs"));
    real.flat_map(|source| constants(&source)).collect()
}

/// Returns the value of an expression in `of`; that of a `Duration` is in milliseconds. Other expressions than those
/// that limits are written with have none.
fn value(expression: &str, of: &Constant, all: &[Constant]) -> Option<u128> {
    let text = expression.trim();
    let of_part = |part: &str| value(part, of, all);
    // From the loosest to the tightest; each associates to the left.
    for operators in [[" << ", " >> "], [" + ", " - "], [" * ", " / "]] {
        let last = operators.into_iter().filter_map(|operator| {
            let at = text.rfind(operator)?;
            Some((at, operator))
        });
        if let Some((at, operator)) = last.max() {
            let (left, right) = (
                of_part(&text[..at])?,
                of_part(&text[at + operator.len()..])?,
            );
            return match operator.trim() {
                "<<" => left.checked_shl(u32::try_from(right).ok()?),
                ">>" => left.checked_shr(u32::try_from(right).ok()?),
                "+" => left.checked_add(right),
                "-" => left.checked_sub(right),
                "*" => left.checked_mul(right),
                _ => left.checked_div(right),
            };
        }
    }
    let units = [
        ("secs", 1000),
        ("millis", 1),
        ("mins", 60_000),
        ("hours", 3_600_000),
    ];
    for (unit, milliseconds) in units {
        if let Some(argument) = text.strip_prefix(&format!("Duration::from_{unit}(")) {
            return Some(of_part(argument.strip_suffix(')')?)? * milliseconds);
        }
    }
    if let Some(word) = text
        .strip_prefix('"')
        .and_then(|t| t.strip_suffix("\".len()"))
    {
        return u128::try_from(word.len()).ok();
    }
    let digits = text.replace('_', "");
    digits.parse().ok().or_else(|| named(text, of, all))
}

/// Returns the value of the constant that a path names in the file of `of`.
fn named(path: &str, of: &Constant, all: &[Constant]) -> Option<u128> {
    let (module, name) = path.rsplit_once("::").unwrap_or(("", path));
    let module = module.rsplit("::").next().unwrap_or_default();
    let file = format!("{module}.rs");
    let is_there = |constant: &&Constant| match module {
        "" => constant.path == of.path,
        _ => constant.path.rsplit('/').next() == Some(&file),
    };
    let same = || all.iter().filter(|constant| constant.name == name);
    let mut found = same().filter(is_there).chain(same());
    let constant = found.next()?;
    value(&constant.value, constant, all)
}

/// Returns the number with commas from five digits on.
fn grouped(number: u128) -> String {
    let (rest, last) = (number / 1000, number % 1000);
    match number {
        ..10_000 => number.to_string(),
        1_000_000..10_000_000 => format!("{},{:03},{last:03}", rest / 1000, rest % 1000),
        _ => format!("{},{last:03}", grouped(rest)),
    }
}

/// Returns the beginnings of paths in the mark of a table.
fn marked(line: &str) -> Option<Vec<&str>> {
    let words = line.strip_prefix(MARK)?.strip_suffix(" -->")?;
    Some(words.split_whitespace().collect())
}

/// Returns the length of the longest of these beginnings.
fn fit(path: &str, beginnings: &[&str]) -> usize {
    let fitting = beginnings.iter().filter(|start| path.starts_with(**start));
    fitting.map(|start| start.len()).max().unwrap_or(0)
}

/// Returns the page with new tables. A constant is in the table whose mark has the longest beginning of its path.
fn page(old: &str, all: &[Constant]) -> String {
    let marks: Vec<Vec<&str>> = old.lines().filter_map(marked).collect();
    let best = |path: &str| {
        marks
            .iter()
            .map(|starts| fit(path, starts))
            .max()
            .unwrap_or(0)
    };
    let mut lines = vec![];
    let mut is_old_table = false;
    for line in old.lines() {
        is_old_table &= line.starts_with('|');
        if !is_old_table {
            lines.push(line.to_owned());
        }
        if let Some(starts) = marked(line) {
            is_old_table = true;
            let is_here = |constant: &&Constant| {
                let here = fit(&constant.path, &starts);
                constant.bound().is_some() && here > 0 && here == best(&constant.path)
            };
            let head = "| what | bound | beyond it | constant |\n|---|---|---|---|";
            let rows = all.iter().filter(is_here).map(|constant| constant.row(all));
            lines.extend(iter::once(head.to_owned()).chain(rows));
        }
    }
    lines.join("\n") + "\n"
}

/// Returns the lines of the page's text that have a number. A number belongs into a table.
fn with_numbers(page: &str) -> Vec<&str> {
    let mut section = "";
    let mut found = vec![];
    for line in page.lines() {
        if line.starts_with('#') {
            section = line;
        }
        let is_text = !line.starts_with('|') && section != MEASURED;
        if is_text && line.contains(|c: char| c.is_ascii_digit()) {
            found.push(line);
        }
    }
    found
}

#[test]
fn every_limit_is_on_the_page_with_its_value_and_what_happens_beyond_it() {
    let all = all_constants();
    let silent = all
        .iter()
        .filter(|c| c.is_called_a_limit() && c.bound().is_none());
    let silent: Vec<String> = silent.map(Constant::place).collect();
    let messages = beyond("no comment of a limit", &silent, NO_INPUT);
    assert!(
        messages.is_empty(),
        "{}\nWrite the comment of a limit as `/// The most NOUNS of a THING, in bytes. Why so many. Beyond it: what happens.` and run `just \
         regenerate`. If it bounds nothing that others send, add it to NO_INPUT in tests/architecture/limits.rs.",
        messages.join("\n")
    );
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let old = fs::read_to_string(&path).unwrap();
    let new = page(&old, &all);
    if env::var_os("PETIOLE_UPDATE_GOLDEN").is_some() {
        fs::write(&path, &new).unwrap();
    }
    for constant in all.iter().filter(|constant| constant.bound().is_some()) {
        assert!(
            new.contains(&constant.row(&all)),
            "no table of {PAGE} has {}: add the beginning of its path to a comment `{MARK}… -->` there",
            constant.place()
        );
    }
    let kept = fs::read_to_string(&path).unwrap();
    let differs = new
        .lines()
        .zip(kept.lines())
        .find(|(new, kept)| new != kept);
    assert!(
        new == kept,
        "{PAGE} differs from the constants: PETIOLE_UPDATE_GOLDEN=1 cargo test --test architecture limits\n{differs:#?}"
    );
    let numbers = with_numbers(&new);
    assert!(
        numbers.is_empty(),
        "{PAGE} has numbers outside the tables, which nobody checks: {numbers:#?}"
    );
}

#[test]
fn a_value_is_computed_as_the_compiler_does_or_not_at_all() {
    let constant = |path: &str, name: &str, value: &str| Constant {
        path: path.to_owned(),
        name: name.to_owned(),
        kind: "usize".to_owned(),
        value: value.to_owned(),
        docs: "The most bytes of it. Beyond it: it is cut.".to_owned(),
    };
    let all = [
        constant("a/b.rs", "MAX", "4 << 20"),
        constant("a/c.rs", "MAX", "10"),
    ];
    let of = |text: &str| value(text, &all[1], &all);
    for (text, expected) in [
        ("10_064", Some(10_064)),
        ("253 - \"requests.\".len()", Some(244)),
        ("64 * 1024 * 1024", Some(64 << 20)),
        ("100 - 10 - 1", Some(89)),
        ("super::b::MAX - 64 * 1024", Some((4 << 20) - (64 << 10))),
        ("MAX / 4 * 3", Some(6)),
        ("Duration::from_millis(1500)", Some(1500)),
        ("Duration::from_secs(5)", Some(5000)),
        ("MAX.pow(2)", None),
        ("(1 + 2) * 3", None),
        ("size_of::<u8>()", None),
        ("UNKNOWN", None),
    ] {
        assert_eq!(of(text), expected, "{text}");
    }
    assert_eq!(all[0].shown(&all).unwrap(), "4 MiB");
    assert_eq!(all[1].shown(&all).unwrap(), "10 bytes");
    let mut steps = constant("a/d.rs", "MAX", "200_000");
    steps.docs = "The most steps on 255 bytes. Beyond it: none.".to_owned();
    assert_eq!(steps.shown(&all).unwrap(), "200,000 steps");
    assert_eq!([9999, 2_034_005].map(grouped), ["9999", "2,034,005"]);
}

#[test]
fn a_table_has_the_constants_of_its_folders_and_old_rows_go() {
    let text = "\
/// The most cats, in bytes. They have 9 lives.
/// Beyond it: they are left out.
pub const CATS_MAX: u64 = 64 * 1024;
/// The most dogs.
const DOGS_MAX: usize = 1;
";
    let all = constants(&Source::new("zoo/cats.rs", text));
    let called: Vec<bool> = all.iter().map(Constant::is_called_a_limit).collect();
    assert_eq!(called, [true, true]);
    assert!(all[1].bound().is_none());
    let old = "# A\n<!-- constants of zoo/ -->\n| old |\n\nTen.\n<!-- constants of zoo/cats -->\n";
    let head = "| what | bound | beyond it | constant |\n|---|---|---|---|\n";
    let row = "| The most cats | 64 KiB | they are left out | `CATS_MAX` |\n";
    let new = format!(
        "# A\n<!-- constants of zoo/ -->\n{head}\nTen.\n<!-- constants of zoo/cats -->\n{head}{row}"
    );
    assert_eq!(page(old, &all), new);
    assert_eq!(page(&new, &all), new);
    assert_eq!(
        with_numbers("## A\nup to 10\n| 11 |\n## Of memory\n12\n"),
        ["up to 10"]
    );
}
