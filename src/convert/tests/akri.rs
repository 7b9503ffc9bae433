//! Tests of what Akri's users have.
use super::*;

#[test]
fn akris_configurations_are_checked_and_stay() {
    let akri = |name: &str, handler: &str| {
        of(&format!(
            "{{apiVersion: akri.sh/v0, kind: Configuration, metadata: {{name: {name}, namespace: d, resourceVersion: '7'}}, spec: {{capacity: 2, discoveryHandler: {{name: {handler}}}}}}}"
        ))
    };
    let debug = akri("echo", "debugEcho, discoveryDetails: 'descriptions: [a]'");
    let works = "Configuration d/echo: works as it is, with the same names.";
    assert!(notes(&debug)[0].starts_with(works), "{debug:?}");
    assert_eq!(debug.refused, 0);
    assert!(debug.manifests.is_empty());
    for (name, handler, place) in [
        ("a.b", "vendor", "no dots"),
        (
            "rule",
            "udev, discoveryDetails: 'udevRules: [\"\"]'",
            "it is empty",
        ),
        ("field", "vendor, detials: x", "detials"),
        (
            "secret",
            "onvif, discoveryProperties: [{name: u, valueFrom: {secretKeyRef: {name: s, namespace: other, key: k}}}]",
            "must be the Configuration's own",
        ),
    ] {
        let refused = refused(&akri(name, handler));
        assert!(refused[0].contains(place), "{name}: {refused:?}");
    }
    let values = of("{udev: {configuration: {enabled: true}}}");
    assert!(
        refused(&values)[0].contains("no file of a device plugin"),
        "{values:?}"
    );
}
