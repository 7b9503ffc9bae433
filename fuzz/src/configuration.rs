//! Manifests of Configurations. An input is a YAML or JSON text.
use petiole::store::manifest;

pub fn run(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    match manifest::read(text) {
        Ok(configurations) => {
            for configuration in configurations {
                let json = serde_json::to_string(&configuration).expect("it can be written");
                let again = manifest::read(&json).expect("what was written can be read");
                assert_eq!(again, [configuration]);
            }
        }
        Err(message) => {
            assert!(!message.is_empty());
            // The text that is wrong is shown once or twice.
            assert!(
                message.len() <= 4 * text.len() + 4096,
                "{} bytes",
                message.len()
            );
        }
    }
}
