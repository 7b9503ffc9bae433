//! Builds `docs/configuration.md` from the definitions in `crds/`.
use super::page::{files, root};
use serde_json::{Map, Value};
use std::{env, fmt::Write as _, fs};

const HEAD: &str = "# Reference of the resources

This page is for those who write Configurations or read Instances. It lists every field that people write or read. `just regenerate` makes
it of the definitions in `crds/`: do not edit it. `kubectl explain configuration.spec` and `kubectl explain nodedevices.spec` show all
fields and bounds. `a[].b` is the field `b` of each entry of the list `a`. Entries of `conditions` have the fields of Kubernetes.
";

/// A kind that only programs write and read, which the page therefore leaves out.
const OF_PROGRAMS: &str = "NodeDevices";

/// Returns the page.
fn page() -> String {
    let mut page = HEAD.to_owned();
    for file in files(&root().join("crds"), "yaml") {
        let text = fs::read_to_string(&file).unwrap();
        let definition: Value = serde_saphyr::from_str(&text).unwrap();
        if definition["spec"]["names"]["kind"] != OF_PROGRAMS {
            kind(&mut page, &definition["spec"]);
        }
    }
    page
}

/// Returns the text on one line of a table, in which `<instance>` is not HTML.
fn text(value: &Value) -> String {
    let text = value.as_str().unwrap_or_default();
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = words.join(" ").replace('|', "\\|");
    let parts = line.split('`').enumerate();
    let escaped: Vec<String> = parts
        .map(|(index, part)| match index % 2 {
            0 => part.replace('<', "&lt;"),
            _ => part.to_owned(), // code
        })
        .collect();
    escaped.join("`")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Writes the section of a kind.
fn kind(page: &mut String, spec: &Value) {
    let (names, version) = (&spec["names"], &spec["versions"][0]);
    let schema = &version["schema"]["openAPIV3Schema"];
    let kind = names["kind"].as_str().unwrap();
    let short: Vec<String> = (list(&names["shortNames"]).iter())
        .map(|name| format!(", short name `{}`", text(name)))
        .collect();
    write!(
        page,
        "\n## {kind}\n\n{}\n\n`apiVersion: {}/{}`; `kubectl get {}`{}; scope: {}.\n",
        text(&schema["description"]),
        text(&spec["group"]),
        text(&version["name"]),
        text(&names["plural"]),
        short.concat(),
        text(&spec["scope"]),
    )
    .unwrap();
    for rule in list(&schema["x-kubernetes-validations"]) {
        write!(
            page,
            "\nOther objects are refused: \u{201c}{}\u{201d}.\n",
            text(&rule["message"])
        )
        .unwrap();
    }
    columns(page, version);
    let parts = schema["properties"].as_object().unwrap().iter();
    for (name, part) in parts.filter(|(name, _)| *name != "metadata") {
        write!(
            page,
            "\n### {kind}: {name}\n\n{}\n",
            text(&part["description"])
        )
        .unwrap();
        page.push_str("\n| field | type | default | description |\n|---|---|---|---|\n");
        let is_of_people = kind == "Configuration" && name == "spec";
        fields(page, "", part, is_of_people);
    }
}

/// Writes the columns of `kubectl get` for a kind, and its selectable fields.
fn columns(page: &mut String, version: &Value) {
    let columns = list(&version["additionalPrinterColumns"]);
    if !columns.is_empty() {
        page.push_str("\n| column of `kubectl get` | field |\n|---|---|\n");
        for column in columns {
            let name = text(&column["name"]).to_uppercase();
            let path = text(&column["jsonPath"]);
            let wide = match column["priority"].as_i64() {
                Some(1..) => ", with `-o wide`",
                _ => "",
            };
            let path = path.trim_start_matches('.');
            writeln!(page, "| {name}{wide} | `{path}` |").unwrap();
        }
    }
    let selectable: Vec<String> = (list(&version["selectableFields"]).iter())
        .map(|field| format!("`{}`", text(&field["jsonPath"]).trim_start_matches('.')))
        .collect();
    if !selectable.is_empty() {
        write!(
            page,
            "\n`--field-selector` works with {}.\n",
            selectable.join(", ")
        )
        .unwrap();
    }
}

/// Writes a row for each field of an object, and then the rows of that field's own fields. The bounds are there if people write the
/// object.
fn fields(page: &mut String, path: &str, object: &Value, is_of_people: bool) {
    let Some(properties) = object["properties"].as_object() else {
        return;
    };
    for (name, field) in properties {
        let is_required = list(&object["required"])
            .iter()
            .any(|required| required == name);
        let default = match (&field["default"], is_required) {
            (Value::Null, true) => "required".to_owned(),
            (Value::Null, false) => String::new(),
            (default, _) => format!("`{default}`"),
        };
        let path = format!("{path}{name}");
        let mut sentences = vec![text(&field["description"])];
        if is_of_people {
            sentences.extend(bounds(field));
        }
        let twin = earlier_twin(properties, name);
        let is_repeated = twin.is_some();
        sentences.extend(twin.map(|twin| format!("It has the fields of `{twin}`.")));
        let sentences = sentences.join(" ");
        writeln!(
            page,
            "| `{path}` | {} | {default} | {sentences} |",
            type_of(field)
        )
        .unwrap();
        if !is_repeated {
            fields(page, &format!("{path}."), field, is_of_people);
        }
        if name != "conditions" {
            fields(page, &format!("{path}[]."), &field["items"], is_of_people);
        }
    }
}

/// Returns the name of an earlier field of the object that has the same fields.
fn earlier_twin<'a>(properties: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    let fields = &properties[name]["properties"];
    let mut earlier = properties.iter().take_while(|(other, _)| *other != name);
    let twin = earlier.find(|(_, field)| fields.is_object() && field["properties"] == *fields);
    twin.map(|(twin, _)| twin.as_str())
}

fn type_of(field: &Value) -> String {
    match field["type"].as_str().unwrap() {
        "array" => format!("list of {}s", type_of(&field["items"])),
        "object" if field["additionalProperties"].is_object() => {
            format!("map of {}s", type_of(&field["additionalProperties"]))
        }
        "object" if field["x-kubernetes-preserve-unknown-fields"] == true => {
            "object, with any fields".to_owned()
        }
        name => name.to_owned(),
    }
}

/// Returns a sentence for each bound and rule of a field.
fn bounds(field: &Value) -> Vec<String> {
    let number = |key: &str| field[key].as_f64().map(|number| format!("{number}"));
    let mut sentences = vec![];
    match (number("minimum"), number("maximum")) {
        (Some(least), Some(most)) => sentences.push(format!("{least} to {most}.")),
        (Some(least), None) => sentences.push(format!("At least {least}.")),
        (None, Some(most)) => sentences.push(format!("At most {most}.")),
        (None, None) => {}
    }
    let of = |part: &str| field[part]["maxLength"].as_f64();
    for (bound, what) in [
        (number("maxLength"), "characters"),
        (number("maxItems"), "entries"),
        (number("maxProperties"), "entries"),
    ] {
        sentences.extend(bound.map(|bound| format!("At most {bound} {what}.")));
    }
    for part in ["items", "additionalProperties"] {
        sentences.extend(of(part).map(|most| format!("At most {most} characters each.")));
    }
    sentences.extend(
        field["pattern"]
            .as_str()
            .map(|pattern| format!("Pattern: `{}`.", pattern.replace('|', "\\|"))),
    );
    for rule in list(&field["x-kubernetes-validations"]) {
        sentences.push(format!(
            "Other values are refused: \u{201c}{}\u{201d}.",
            text(&rule["message"])
        ));
    }
    sentences
}

#[test]
fn the_reference_is_what_the_definitions_say() {
    let path = root().join("docs/configuration.md");
    let now = page();
    if env::var_os("PETIOLE_UPDATE_GOLDEN").is_some() {
        fs::write(&path, &now).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    let line = now
        .lines()
        .zip(kept.lines())
        .position(|(now, kept)| now != kept);
    assert!(
        now == kept,
        "docs/configuration.md differs from crds/ from line {} on: just regenerate",
        line.unwrap_or(now.lines().count().min(kept.lines().count())) + 1
    );
}
