//! Tests of valid CDI files, as vendors write them, and of invalid ones.
use super::*;
use proptest::prelude::*;

const SMALLEST: &str = "{cdiVersion: 0.3.0, kind: vendor.com/device, devices: [{name: a, containerEdits: {env: [A=b]}}]}";

/// Every field that the schema of 1.1.0 has.
const WHOLE: &str = r#"
cdiVersion: 1.1.0
kind: vendor.com/net.device
annotations: {vendor.com/model: X}
containerEdits:
  env: [A=b, C=]
  mounts:
    - {hostPath: /a, containerPath: /b, options: [ro, bind], type: none}
devices:
  - name: "0:a"
    annotations: {model: Why}
    containerEdits:
      env: [FOO=BAR]
      deviceNodes:
        - {path: /dev/a, hostPath: /dev/b, type: c, major: 1, minor: 3, fileMode: 438, permissions: rw, uid: 0, gid: 0}
        - {path: /dev/c, permissions: none}
      netDevices:
        - {hostInterfaceName: eth1, name: net0}
      hooks:
        - {hookName: createContainer, path: /bin/true, args: [hello], env: [A=b], timeout: 3}
      intelRdt: {closID: a, l3CacheSchema: x, memBwSchema: MB, schemata: [z], enableMonitoring: true}
      additionalGids: [5]
"#;

#[test]
fn the_smallest_and_the_fullest_file_are_read() {
    let smallest = Spec::parse(SMALLEST).unwrap();
    assert_eq!(smallest.kind.to_string(), "vendor.com/device");
    let expected = Described {
        name: "a".to_owned(),
        annotations: BTreeMap::new(),
    };
    assert_eq!(smallest.devices, [expected]);
    let whole = Spec::parse(WHOLE).unwrap();
    assert_eq!(whole.devices[0].name, "0:a");
    assert_eq!(whole.devices[0].annotations["model"], "Why");
}

#[test]
fn text_without_quotes_and_octal_modes_are_read_as_runtimes_do() {
    let text = "
cdiVersion: 0.6.0
kind: vendor.com/device
devices:
  - name: 0
    annotations: {slot: 3, hot: true, uid: 7}
    containerEdits: {deviceNodes: [{path: /dev/a, fileMode: 0660}]}
";
    let read = &Spec::parse(text).unwrap().devices[0];
    assert_eq!(read.name, "0");
    assert_eq!(read.annotations["slot"], "3");
    assert_eq!(read.annotations["hot"], "true");
    assert_eq!(read.annotations["uid"], "7");
}

#[test]
fn json_is_read_whatever_its_white_space() {
    let json = "{\n\t\"cdiVersion\": \"0.5.0\",\n\t\"kind\": \"pflex.io/block\",\n\t\"devices\": [\n\t\t{\n\t\t\t\"name\": \"pflex1\",\n\t\t\t\"containerEdits\": {\n\t\t\t\t\"deviceNodes\": [\n\t\t\t\t\t{\"path\": \"/dev/pflex1\"}\n\t\t\t\t]\n\t\t\t}\n\t\t}\n\t]\n}\n";
    assert_eq!(Spec::parse(json).unwrap().devices[0].name, "pflex1");
}

fn smallest(from: &str, to: &str) -> String {
    assert!(SMALLEST.contains(from), "{from}");
    SMALLEST.replace(from, to)
}

fn edits(edits: &str) -> String {
    smallest("{env: [A=b]}", edits).replace("0.3.0", "1.0.0")
}

fn refuses<const N: usize>(cases: [(String, &str); N]) {
    for (text, place) in cases {
        let refused = Spec::parse(&text).unwrap_err();
        assert!(refused.why.contains(place), "{text}\n said {}", refused.why);
    }
}

#[test]
fn a_file_without_what_it_must_have_is_refused_with_its_place() {
    refuses([
        ("".to_owned(), "keys and values"),
        ("{".to_owned(), "neither YAML nor JSON"),
        ("[]".to_owned(), "keys and values"),
        (
            smallest("cdiVersion", "version"),
            "missing field `cdiVersion`",
        ),
        (smallest("0.3.0", "0.9.0"), "cdiVersion \"0.9.0\""),
        (smallest("0.3.0", "2.0.0"), "0.3.0 to 1.1.0"),
        (smallest("0.3.0", "'1.1'"), "cdiVersion \"1.1\""),
        (
            smallest("vendor.com/device", "device"),
            "kind \"device\": must be vendor/class",
        ),
        (smallest("vendor.com/device", "a/b/c"), "the class"),
        (smallest("vendor.com/device", "-a/b"), "the vendor"),
        (smallest("kind:", "knd: x, kind:"), "unknown field knd"),
        (
            smallest("name: a,", "name: a, x: 1,"),
            "unknown field devices.0.x",
        ),
        (smallest("name: a,", "name: [a],"), "devices[0].name"),
        (smallest("name: a,", "name: a b,"), "device \"a b\""),
        (smallest("name: a,", ""), "missing field `name`"),
        (
            smallest("{name: a, containerEdits: {env: [A=b]}}", ""),
            "devices is empty",
        ),
        (
            smallest("{env: [A=b]}", "{}"),
            "device \"a\": containerEdits is empty",
        ),
        (
            smallest(", containerEdits: {env: [A=b]}", ""),
            "missing field `containerEdits`",
        ),
        (
            smallest("[{", "[{name: a, containerEdits: {env: [B=c]}}, {"),
            "device \"a\" is there twice",
        ),
        (
            smallest("name: a,", "name: a, annotations: {a b: b},").replace("0.3.0", "0.6.0"),
            "annotation \"a b\"",
        ),
    ]);
}

#[test]
fn edits_that_no_runtime_would_make_are_refused_with_their_place() {
    refuses([
        (edits("{env: [A]}"), "env \"A\""),
        (edits("{env: [=b]}"), "env \"=b\""),
        (
            edits("{deviceNodes: [{hostPath: /dev/a}]}"),
            "missing field `path`",
        ),
        (edits("{deviceNodes: [{path: ''}]}"), "path is empty"),
        (edits("{deviceNodes: [{path: /a, type: d}]}"), "type \"d\""),
        (
            edits("{deviceNodes: [{path: /a, permissions: rx}]}"),
            "permissions \"rx\"",
        ),
        (
            edits("{deviceNodes: [{path: /a, major: -1}]}"),
            "-1 is negative",
        ),
        (
            edits("{mounts: [{hostPath: '', containerPath: /a}]}"),
            "hostPath or",
        ),
        (
            edits("{hooks: [{hookName: before, path: /a}]}"),
            "hooks \"before\"",
        ),
        (
            edits("{hooks: [{hookName: poststop, path: ''}]}"),
            "path is empty",
        ),
        (edits("{intelRdt: {closID: a/b}}"), "closID \"a/b\""),
        (edits("{additionalGids: [-1]}"), "additionalGids"),
        (
            edits(
                "{netDevices: [{hostInterfaceName: a, name: b}, {hostInterfaceName: c, name: b}]}",
            )
            .replace("1.0.0", "1.1.0"),
            "is there twice",
        ),
    ]);
}

#[test]
fn what_came_with_a_later_version_is_refused_in_a_file_of_an_earlier_one() {
    refuses([
        (
            edits("{netDevices: [{hostInterfaceName: a, name: b}]}"),
            "netDevices came with 1.1.0",
        ),
        (edits("{intelRdt: {schemata: [a]}}"), "came with 1.1.0"),
        (
            edits("{intelRdt: {enableCMT: true}}").replace("1.0.0", "1.1.0"),
            "enableMonitoring since 1.1.0",
        ),
        (
            edits("{intelRdt: {}}").replace("1.0.0", "0.6.0"),
            "intelRdt came with 0.7.0",
        ),
        (
            edits("{additionalGids: [1]}").replace("1.0.0", "0.6.0"),
            "came with 0.7.0",
        ),
        (
            smallest("name: a,", "name: a, annotations: {a: b},"),
            "annotations came with 0.6.0",
        ),
        (
            smallest("vendor.com/device", "vendor.com/a.b"),
            "dot came with 0.6.0",
        ),
        (smallest("name: a,", "name: 0a,"), "came with 0.5.0"),
        (
            smallest(
                "{env: [A=b]}",
                "{mounts: [{hostPath: /a, containerPath: /b, type: none}]}",
            ),
            "mounts.type came with 0.4.0",
        ),
    ]);
}

#[test]
fn a_newer_minor_version_may_have_fields_that_nobody_here_knows() {
    let newer = SMALLEST
        .replace("0.3.0", "1.2.0")
        .replace("kind:", "later: [x], kind:");
    assert_eq!(Spec::parse(&newer).unwrap().devices.len(), 1);
}

#[test]
fn a_file_that_is_refused_still_tells_its_kind() {
    let refused = Spec::parse("{kind: a/b, devices: 3}").unwrap_err();
    assert_eq!(refused.kind.as_deref(), Some("a/b"));
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "\\PC*", name in "\\PC*") {
        drop(Spec::parse(&text));
        drop(Spec::parse(&SMALLEST.replace("name: a", &format!("name: {name}"))));
        drop(Spec::parse(&SMALLEST.replace("vendor.com/device", &name)));
        drop(Spec::parse(&SMALLEST.replace("0.3.0", &text)));
    }

    #[test]
    fn kinds_round_trip(text in "[a-zA-Z][a-zA-Z0-9._-]{0,5}[a-z0-9]/[a-z]([a-zA-Z0-9._-]{0,5}[a-z0-9])?") {
        prop_assert_eq!(text.parse::<Kind>().unwrap().to_string(), text);
    }
}
