//! Compares our fields with the specification's JSON schema: names, types and required fields must be equal.
use super::{super::spec::Spec, *};
use serde_json::{Map, Value, json};

fn schema() -> Value {
    let text = include_str!("../../../../tests/data/cdi-1.1.0.schema.json");
    serde_json::from_str(text).unwrap()
}

/// Returns a file that uses every field.
fn whole() -> Value {
    let edits = json!({
        "env": ["A=b"],
        "deviceNodes": [{
            "path": "/dev/a", "hostPath": "/dev/b", "type": "c", "major": 1, "minor": 3, "fileMode": 438,
            "permissions": "rw", "uid": 0, "gid": 0,
        }],
        "netDevices": [{"hostInterfaceName": "eth1", "name": "net0"}],
        "hooks": [{"hookName": "poststop", "path": "/bin/true", "args": ["a"], "env": ["A=b"], "timeout": 3}],
        "mounts": [{"hostPath": "/a", "containerPath": "/b", "options": ["ro"], "type": "none"}],
        "intelRdt": {
            "closID": "a", "l3CacheSchema": "x", "memBwSchema": "y", "schemata": ["z"], "enableMonitoring": true,
        },
        "additionalGids": [5],
    });
    json!({
        "cdiVersion": "1.1.0",
        "kind": "vendor.com/device",
        "annotations": {"a": "b"},
        "devices": [{"name": "a", "annotations": {"a": "b"}, "containerEdits": edits}],
        "containerEdits": edits,
    })
}

fn resolved<'a>(schema: &'a Value, root: &'a Value) -> &'a Value {
    // The schema of an optional struct allows the struct or null.
    let schema = schema.pointer("/anyOf/0").unwrap_or(schema);
    match schema["$ref"].as_str() {
        Some(reference) => root.pointer(&reference[1..]).unwrap(),
        None => schema,
    }
}

/// Returns the type that a schema requires. Our optional fields also accept null, which counts as the same type,
/// because runtimes treat null as absent.
fn kind(schema: &Value) -> &str {
    let types = &schema["type"];
    let first = types.as_array().map_or(types, |types| &types[0]);
    first.as_str().unwrap()
}

fn bounds(schema: &Value) -> (Option<i128>, Option<i128>) {
    let bound = |name: &str| schema[name].to_string().parse().ok();
    match schema["format"].as_str() {
        Some("uint32") => (Some(0), Some(u32::MAX.into())),
        Some("int64") => (Some(i64::MIN.into()), Some(i64::MAX.into())),
        _ => (bound("minimum"), bound("maximum")),
    }
}

/// Reduces a schema to a form in which equivalent schemas are equal.
fn shape(schema: &Value, root: &Value) -> Value {
    let schema = resolved(schema, root);
    match (kind(schema), schema["properties"].as_object()) {
        ("object", Some(properties)) => {
            let shapes: Map<String, Value> = (properties.iter())
                .map(|(name, property)| (name.clone(), shape(property, root)))
                .collect();
            let required = schema["required"].as_array().cloned().unwrap_or_default();
            let required: BTreeSet<String> = (required.iter())
                .map(|name| name.as_str().unwrap().to_owned())
                .collect();
            json!({"fields": shapes, "required": required})
        }
        ("object", None) => json!({"each": shape(&schema["additionalProperties"], root)}),
        ("array", _) => json!([shape(&schema["items"], root)]),
        ("integer", _) => json!(format!("{:?}", bounds(schema))),
        (kind, _) => json!(kind),
    }
}

#[test]
fn the_fields_their_types_and_which_must_be_there_are_those_of_the_schema() {
    let ours = schemars::schema_for!(SpecFile).to_value();
    let mut ours = shape(&ours, &ours);
    for place in ["/fields/devices/0/fields", "/fields"] {
        let rdt = format!("{place}/containerEdits/fields/intelRdt/fields");
        let fields = ours.pointer_mut(&rdt).unwrap().as_object_mut().unwrap();
        for until_1_0 in ["enableCMT", "enableMBM"] {
            assert!(fields.remove(until_1_0).is_some());
        }
    }
    let schema = schema();
    assert_eq!(ours, shape(&schema, &schema));
}

/// Returns each way to break one part of a value that the schema rejects, with a description.
fn broken(value: &Value, schema: &Value, root: &Value) -> Vec<(String, Value)> {
    let schema = resolved(schema, root);
    let others = [json!("x"), json!(true), json!([]), json!({}), json!(1)];
    let is_other = |other: &Value| match kind(schema) {
        // YAML readers of container runtimes read a number or a boolean as text here.
        "string" => other.is_array() || other.is_object(),
        "boolean" => !other.is_boolean(),
        "array" => !other.is_array(),
        "object" => !other.is_object(),
        _ => !other.is_number(),
    };
    let wrong = others.into_iter().filter(is_other);
    let mut all: Vec<_> = wrong.map(|other| (format!(" = {other}"), other)).collect();
    match kind(schema) {
        "integer" => {
            let (least, most) = bounds(schema);
            for number in [least.unwrap() - 1, most.unwrap() + 1] {
                let number: Value = serde_json::from_str(&number.to_string()).unwrap();
                all.push((format!(" = {number}"), number));
            }
            all.push((" = 1.5".to_owned(), json!(1.5)));
        }
        "array" => {
            let items = broken(&value[0], &schema["items"], root);
            all.extend(
                items
                    .into_iter()
                    .map(|(what, item)| (format!("[0]{what}"), json!([item]))),
            );
        }
        "object" => {
            let with = |name: &str, field: Value| {
                let mut object = value.clone();
                object[name] = field;
                object
            };
            if schema["additionalProperties"] == json!(false) {
                all.push((".unknown".to_owned(), with("unknown", json!("x"))));
            }
            for name in schema["required"].as_array().into_iter().flatten() {
                let mut object = value.clone();
                object
                    .as_object_mut()
                    .unwrap()
                    .remove(name.as_str().unwrap());
                all.push((format!(" without {name}"), object));
            }
            for (name, field) in value.as_object().unwrap() {
                let property = schema["properties"].get(name);
                let property = property.unwrap_or(&schema["additionalProperties"]);
                let fields = broken(field, property, root);
                all.extend(
                    fields
                        .into_iter()
                        .map(|(what, field)| (format!(".{name}{what}"), with(name, field))),
                );
            }
        }
        _ => {}
    }
    all
}

#[test]
fn what_the_schema_refuses_is_refused() {
    let (schema, whole) = (schema(), whole());
    Spec::parse(&whole.to_string()).unwrap();
    let broken = broken(&whole, &schema, &schema);
    assert!(broken.len() > 300, "{}", broken.len());
    for (what, file) in broken {
        assert!(Spec::parse(&file.to_string()).is_err(), "{what}: {file}");
    }
}
