//! Manifests of static Pods. An input is a YAML or JSON text.
use petiole_kubelet::fuzzing::static_pod;

const NODE: &str = "Node-1";

pub fn run(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    let read = static_pod(text, "a.yaml", NODE);
    let pod = match &read {
        Ok(pod) => pod,
        Err(message) => {
            assert!(!message.is_empty());
            assert!(
                message.len() <= 8 * text.len() + 4096,
                "{} bytes",
                message.len()
            );
            return;
        }
    };
    assert!(pod.name.ends_with("-node-1"));
    assert!(pod.uid.len() == 32 && pod.uid.bytes().all(|b| b.is_ascii_hexdigit()));
    let metadata = &pod.pod.metadata;
    assert_eq!(metadata.name.as_ref(), Some(&pod.name));
    assert_eq!(metadata.namespace.as_ref(), Some(&pod.namespace));
    assert_eq!(metadata.uid.as_ref(), Some(&pod.uid));
    // The same file is the same Pod, in another file it is another one.
    assert_eq!(static_pod(text, "a.yaml", NODE).as_ref(), Ok(pod));
    let other = static_pod(text, "b.yaml", NODE).expect("the name of the file does not matter");
    assert_ne!(other.uid, pod.uid);
    assert_eq!(other.limits, pod.limits);
    // What the kubelet shows of it can be read again.
    if pod.name.len() <= 253 {
        let json = serde_json::to_string(&pod.pod).expect("it can be written");
        let again = static_pod(&json, "a.yaml", NODE).expect("what was written can be read");
        assert_eq!(again.limits, pod.limits);
    }
}
