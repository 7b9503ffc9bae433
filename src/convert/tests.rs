mod akri;
mod smarter;

use super::*;
use proptest::prelude::*;
use serde_json::json;

fn of(text: &str) -> Converted {
    convert(yaml::from_multiple(text).unwrap(), &[])
}

fn with(arguments: &[&str]) -> Converted {
    let arguments: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
    convert(vec![], &arguments)
}

/// Returns the rest of the lines with this beginning.
fn said(converted: &Converted, beginning: &str) -> Vec<String> {
    let lines = converted.said.iter();
    let lines = lines.filter_map(|line| line.strip_prefix(beginning));
    lines.map(str::to_owned).collect()
}

fn notes(converted: &Converted) -> Vec<String> {
    said(converted, "note: ")
}

fn refused(converted: &Converted) -> Vec<String> {
    let refused = said(converted, "not converted: ");
    assert_eq!(refused.len(), converted.refused);
    refused
}

fn values(converted: &Converted) -> Vec<String> {
    said(converted, "  --set ")
}

fn manifests(converted: &Converted) -> Vec<Value> {
    let manifests = yaml::from_multiple(&converted.manifests).unwrap();
    manifests.into_iter().filter(|m| !m.is_null()).collect()
}

fn specs(converted: &Converted) -> Vec<Value> {
    let manifests = manifests(converted).into_iter();
    manifests.map(|manifest| manifest["spec"].clone()).collect()
}

/// Returns the only spec that was written for a device of generic-device-plugin, or why there is none.
fn generic(device: &str) -> Result<Value, String> {
    let converted = with(&["--device", device]);
    match &refused(&converted)[..] {
        [] => Ok(specs(&converted).remove(0)),
        [why] => Err(why.clone()),
        more => panic!("{more:?}"),
    }
}

fn details(spec: &Value) -> Value {
    let details = spec["discoveryHandler"]["discoveryDetails"].as_str();
    yaml::from_str(details.unwrap()).unwrap()
}

fn names(converted: &Converted) -> Vec<String> {
    let name = |manifest: &Value| {
        let name = |pointer| manifest.pointer(pointer).unwrap().as_str().unwrap();
        format!("{} {}", name("/metadata/name"), name("/spec/resourceName"))
    };
    manifests(converted).iter().map(name).collect()
}

const DAEMON_SET: &str = r#"
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: generic-device-plugin, namespace: kube-system}
spec:
  template:
    spec:
      nodeSelector: {devices: "yes"}
      containers:
      - image: squat/generic-device-plugin
        args:
        - --log-level=debug
        - --device
        - |
          name: serial
          groups:
          - paths: [{path: /dev/ttyUSB*}]
          - paths: [{path: /dev/ttyACM*}]
        - '--device={"name": "tun", "groups": [{"count": 1000, "paths": [{"path": "/dev/net/tun"}]}]}'
        - --device
        - "{name: sound, groups: [{count: 3, paths: [{path: /dev/snd}]}]}"
        - --device
        - |
          name: zigbee
          groups:
          - paths:
            - path: /dev/serial/by-id/usb-Stick_0001-if00-port0
              mountPath: /dev/ttyUSB0
        - --device
        - "{name: radio, groups: [{usb: [{vendor: 0bda, product: '2838'}, {vendor: 1d50, product: 60A1, serial: '7'}]}]}"
"#;

#[test]
fn a_daemon_set_becomes_configurations_with_its_resources_on_its_nodes() {
    let converted = of(DAEMON_SET);
    assert_eq!(refused(&converted), [""; 0]);
    let expected = [
        "serial squat.ai/serial",
        "tun squat.ai/tun",
        "sound squat.ai/sound",
        "zigbee squat.ai/zigbee",
        "radio squat.ai/radio",
    ];
    assert_eq!(names(&converted), expected);
    let specs = specs(&converted);
    for spec in &specs {
        assert_eq!(spec["nodeSelector"], json!({"devices": "yes"}));
        assert_eq!(spec["instances"], false);
    }
    let [serial, tun, sound, zigbee, radio] = &specs[..] else {
        panic!("{specs:?}");
    };
    let each = |paths: &str| json!({"paths": paths, "each": true});
    let groups = json!([each("/dev/ttyUSB*"), each("/dev/ttyACM*")]);
    let all = json!({"groups": groups, "permissions": "rwm"});
    assert_eq!((details(serial), &serial["capacity"]), (all, &json!(1)));
    assert_eq!(details(tun)["groups"], json!(["/dev/net/tun"]));
    assert_eq!(tun["capacity"], 1000);
    assert_eq!(tun["containerDevices"], json!({"links": true}));
    assert_eq!(details(sound)["groups"], json!(["/dev/snd/*"]));
    assert_eq!(zigbee["containerDevices"], json!({"path": "/dev/ttyUSB0"}));
    let rules = [
        r#"SUBSYSTEM=="usb", ATTR{idVendor}=="0bda", ATTR{idProduct}=="2838""#,
        r#"SUBSYSTEM=="usb", ATTR{idVendor}=="1d50", ATTR{idProduct}=="60a1", ATTR{serial}=="7""#,
    ];
    let expected = json!({"udevRules": rules, "permissions": "rw"});
    assert_eq!(
        (&radio["discoveryHandler"]["name"], details(radio)),
        (&json!("udev"), expected)
    );
    assert_eq!(
        values(&converted),
        [
            "'resourcePrefixes={akri.sh,squat.ai}'",
            "'paths.allow={/dev/net/tun,/dev/snd,/dev/ttyACM*,/dev/ttyUSB*}'",
            "'udev.enabled=true,udev.subsystems={usb}'",
        ]
    );
    let [note] = &notes(&converted)[..] else {
        panic!("{converted:?}");
    };
    assert!(note.contains("device of its own"), "{note}");
    let comment = "---\n# squat.ai/serial, from DaemonSet kube-system/generic-device-plugin\n";
    assert!(converted.manifests.starts_with(comment));
}

#[test]
fn what_a_group_of_generic_device_plugin_means_is_kept() {
    let links = || json!({"links": true});
    for (device, groups, container) in [
        (
            "paths: [{path: /dev/kfd}, {path: /dev/dri/}]",
            json!([["/dev/kfd", "/dev/dri/*"]]),
            links(),
        ),
        (
            "paths: [{path: ' /dev/a '}, {path: /dev/b, optional: true, limit: 9}]",
            json!([{"paths": ["/dev/a"], "optional": ["/dev/b"]}]),
            links(),
        ),
        // Alone, it is there or not in either case.
        (
            "paths: [{path: /dev/a, optional: true}]",
            json!(["/dev/a"]),
            links(),
        ),
        (
            "paths: [{path: /dev/a, mountPath: /dev/a}]",
            json!(["/dev/a"]),
            links(),
        ),
        (
            "paths: [{path: /dev/ttyUSB*, mountPath: /dev/modem}]",
            json!([{"paths": "/dev/ttyUSB*", "each": true}]),
            json!({"path": "/dev/modem"}),
        ),
        (
            "paths: [{path: /dev/a, mountPath: /opt/x/}, {path: /dev/b, mountPath: /opt/x/}]",
            json!([["/dev/a", "/dev/b"]]),
            json!({"path": "/opt/x/"}),
        ),
        (
            "paths: [{path: /dev/a, mountPath: /dev/b}]}, {paths: [{path: /dev/b}]",
            json!(["/dev/a", "/dev/b"]),
            json!({"path": "/dev/b"}),
        ),
    ] {
        let spec = generic(&format!("{{name: a, groups: [{{{device}}}]}}")).unwrap();
        assert_eq!(details(&spec)["groups"], groups, "{device}");
        assert_eq!(spec["containerDevices"], container, "{device}");
    }
    let rights = "{name: a, groups: [{paths: [{path: /dev/a, permissions: wr, type: Device}]}]}";
    assert_eq!(details(&generic(rights).unwrap())["permissions"], "rw");
    let further =
        with(&["--device={name: a, groups: [{paths: [{path: /dev/a, mountPath: /opt/x/}]}]}"]);
    let expected = "'agent.containerPaths={/opt/x/}'".to_owned();
    assert!(values(&further).contains(&expected), "{further:?}");
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn what_has_no_counterpart_is_refused_with_its_place_and_what_to_do() {
    for (groups, place) in [
        ("", "its groups have no count"),
        ("{}", "all groups must have paths, or all usb"),
        (
            "{usb: [{vendor: '1', product: '2'}]}, {paths: [{path: /dev/a}]}",
            "one handler",
        ),
        (
            "{count: 2, paths: [{path: /dev/a}]}, {paths: [{path: /dev/b}]}",
            "or different ones",
        ),
        (
            "{count: 10001, paths: [{path: /dev/a}]}",
            "capacity is 10001; it must be 10000 or less",
        ),
        (
            "{paths: [{path: /dev/a*}, {path: /dev/b*}]}",
            "a group pairs",
        ),
        (
            "{paths: [{path: /dev/a, optional: true}, {path: /dev/b, optional: true}]}",
            "all paths of a group are optional",
        ),
        (
            "{paths: [{path: /dev/a, permissions: r}, {path: /dev/b}]}",
            "different permissions",
        ),
        (
            "{paths: [{path: /dev/a, permissions: rx}]}",
            "permissions is \"rx\"",
        ),
        (
            "{paths: [{path: /run/a.sock, type: Mount}]}",
            "its type is Mount",
        ),
        ("{paths: [{path: /run/a}]}", "must be a path below /dev"),
        (
            "{paths: [{path: /dev/a, mountPath: /dev/b}, {path: /dev/c}]}",
            "mountPath /dev/b: a Configuration has one",
        ),
        (
            "{paths: [{path: /dev/a, mountPath: /dev/x}]}, {paths: [{path: /dev/b, mountPath: /dev/y}]}",
            "mountPath /dev/x",
        ),
        (
            "{paths: [{path: /dev/serial/by-id/a, mountPath: /dev/x/}]}",
            "not that of a link",
        ),
        (
            "{paths: [{path: /dev/snd, mountPath: /dev/x}]}",
            "mountPath",
        ),
        (
            "{paths: [{path: /dev/a, mountPath: /dev/null}]}",
            "choose another path",
        ),
        (
            "{paths: [{path: /dev/a}]}, {paths: [{path: /dev/a}]}",
            "two begin with /dev/a",
        ),
        ("{paths: [{path: /dev/a, mountpath: /dev/b}]}", "mountpath"),
        ("{paths: [{path: 7}]}", "groups[0].paths[0].path"),
        (
            "{usb: [{vendor: 403, product: '6001'}]}",
            "groups[0].usb[0].vendor",
        ),
        ("{usb: [{vendor: 0x403, product: '6001'}]}", "vendor"),
        ("{usb: [{product: '6001'}]}", "vendor is \"\""),
        (
            "{usb: [{vendor: '1', product: '2', serial: 'a*'}]}",
            "serial is \"a*\"",
        ),
    ] {
        let device = format!("{{name: cam, groups: [{groups}]}}");
        let why = generic(&device).unwrap_err();
        assert!(why.contains("the arguments: "), "{why}");
        assert!(
            why.contains("cam") && why.contains(place),
            "{device}\n said {why}"
        );
    }
    for (arguments, place) in [
        (&["--device", "{name: a"][..], "--device: "),
        (&["--device"], "--device has no value"),
        (&["--domain", "x.io"], "it reads a file"),
        (
            &[
                "--domain=A_",
                "--device={name: a, groups: [{paths: [{path: /dev/a}]}]}",
            ],
            "A_/a",
        ),
    ] {
        let converted = with(arguments);
        assert!(converted.manifests.is_empty(), "{arguments:?}");
        assert!(refused(&converted)[0].contains(place), "{converted:?}");
    }
}

#[test]
fn a_plugin_and_its_config_map_are_read_together() {
    let pod = |more: &str| {
        format!(
            "{{kind: DaemonSet, metadata: {{name: p}}, spec: {{template: {{spec: {{nodeSelector: {{a: b}}, volumes: [{{configMap: {{name: conf}}}}], containers: [{{image: x/generic-device-plugin:1{more}}}]}}}}}}}}"
        )
    };
    let data = "devices: [{name: a, groups: [{paths: [{path: /dev/a}]}]}]";
    let config_map = format!(
        "{{kind: ConfigMap, metadata: {{name: conf}}, data: {{config.yaml: '{data}', x: '{{'}}}}"
    );
    for (pod, resource) in [
        (pod(""), "squat.ai/a"),
        (pod(", args: [--config=/c.yaml, --domain, x.io]"), "x.io/a"),
    ] {
        // As `kubectl get daemonset,configmap -o yaml` prints them.
        let list = of(&format!("{{kind: List, items: [{config_map}, {pod}]}}"));
        assert_eq!(list.refused + notes(&list).len(), 0, "{list:?}");
        assert_eq!(specs(&list)[0]["resourceName"], resource);
        assert_eq!(specs(&list)[0]["nodeSelector"], json!({"a": "b"}));
        // The file alone says the same, and which Pod reads it.
        let file = of(&format!("{pod}\n---\n{data}"));
        assert_eq!(specs(&file), specs(&list));
        let alone = of(&pod);
        assert!(alone.manifests.is_empty());
        assert!(
            refused(&alone)[0].contains("add its ConfigMap"),
            "{alone:?}"
        );
    }
    let own = of(&format!("{{domain: y.io, {data}}}"));
    assert_eq!(names(&own), ["a y.io/a"]);
}

#[test]
fn each_plugin_has_its_own_config_map_and_nodes() {
    let pair = |name: &str, volume: &str| {
        let volumes = format!("[{{configMap: {{name: {volume}}}}}]");
        let data =
            format!("devices: [{{name: {name}, groups: [{{paths: [{{path: /dev/{name}}}]}}]}}]");
        format!(
            "---\n{{kind: DaemonSet, metadata: {{name: {name}}}, spec: {{template: {{spec: {{nodeSelector: {{on: {name}}}, volumes: {volumes}, containers: [{{image: x/generic-device-plugin:1, args: [--domain, {name}.io]}}]}}}}}}}}\n---\n{{kind: ConfigMap, metadata: {{name: {name}}}, data: {{c: '{data}'}}}}\n"
        )
    };
    let two = of(&format!("{}{}", pair("a", "a"), pair("b", "b")));
    assert_eq!(two.refused, 0, "{two:?}");
    assert_eq!(names(&two), ["a a.io/a", "b b.io/b"]);
    let on: Vec<_> = specs(&two)
        .iter()
        .map(|spec| spec["nodeSelector"]["on"].clone())
        .collect();
    assert_eq!(on, ["a", "b"]);
    // Plugins of one name in two namespaces, and one whose volume is projected.
    let in_namespace = |namespace: &str| {
        let pair = pair(namespace, "conf").replace(
            "metadata: {name: ",
            &format!("metadata: {{namespace: {namespace}, name: "),
        );
        pair.replace(
            &format!("kind: ConfigMap, metadata: {{namespace: {namespace}, name: {namespace}"),
            &format!("kind: ConfigMap, metadata: {{namespace: {namespace}, name: conf"),
        )
    };
    let b = in_namespace("b").replace(
        "{configMap: {name: conf}}",
        "{projected: {sources: [{configMap: {name: conf}}]}}, {configMap: {name: other}}",
    );
    let two = of(&format!("{}{b}", in_namespace("a")));
    assert_eq!(two.refused, 0, "{two:?}");
    assert_eq!(names(&two), ["a a.io/a", "b b.io/b"]);
    // Both read one file, and no plugin reads the other.
    let one = of(&format!("{}{}", pair("a", "a"), pair("b", "a")));
    assert_eq!(names(&one), ["b squat.ai/b"]);
    assert!(
        refused(&one)[0].contains("told different nodes or domains"),
        "{one:?}"
    );
}

#[test]
fn two_configurations_of_one_name_and_one_that_is_too_long_are_refused() {
    let path = "groups: [{paths: [{path: /dev/a}]}]";
    let long = "a".repeat(53);
    let devices = [("x.io", "kvm"), ("y.io", "kvm"), ("x.io", &*long)];
    let devices = devices
        .map(|(domain, name)| format!("{{domain: {domain}, devices: [{{name: {name}, {path}}}]}}"));
    let converted = of(&devices.join("\n---\n"));
    assert_eq!(names(&converted), ["kvm x.io/kvm"]);
    let refused = refused(&converted);
    assert!(
        refused[0].contains("y.io/kvm, from the file: another"),
        "{refused:?}"
    );
    assert!(
        refused[1].contains("metadata.name has 53 characters"),
        "{refused:?}"
    );
}

#[test]
fn what_is_about_no_device_plugin_is_named_and_cannot_steer_the_terminal() {
    let converted = of(
        "{kind: Service, metadata: {name: \"a\\e[2J\"}}\n---\n\n---\n{kind: DaemonSet, metadata: {name: web}, spec: {template: {spec: {containers: [{image: nginx, args: [--device=x]}]}}}}\n---\n{kind: ConfigMap, metadata: {name: c}, data: {a: b}}",
    );
    let left_out = "left out, it is about no device plugin";
    let expected = ["Service a\\u{1b}[2J", "DaemonSet web", "ConfigMap c"];
    assert_eq!(
        notes(&converted),
        expected.map(|of| format!("{of}: {left_out}"))
    );
    assert_eq!(
        refused(&converted),
        ["the input: it has no device plugin and no Configuration"]
    );
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "\\PC{0,40}", entry in "[\\^a-z_/.*$\\\\\\[{-]{0,12}") {
        for document in [text.clone(), format!("[{{devicematch: '{entry}', nummaxdevices: 1}}]"), format!("{{kind: {text}, spec: {text}}}"), format!("{{name: a, groups: [{{paths: [{{path: '/dev/{entry}', mountPath: '/{entry}'}}]}}]}}")] {
            for arguments in [vec![], vec![format!("--device={document}")]] {
                if let Ok(documents) = yaml::from_multiple(&document) {
                    drop(convert(documents, &arguments));
                }
            }
        }
    }
}
