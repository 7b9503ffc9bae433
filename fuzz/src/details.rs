//! `discoveryDetails` of every handler. An input is a text, which each of them is given.
use petiole::discovery::{Properties, handlers::builtin};

pub fn run(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    for handler in builtin() {
        match handler.prepare(text, &Properties::new()) {
            Ok(discovery) => {
                let again = handler
                    .prepare(text, &Properties::new())
                    .expect("they were good before");
                assert_eq!(again.scope, discovery.scope);
            }
            Err(error) => {
                let message = error.to_string();
                assert!(message.starts_with("discoveryDetails: "));
                // The text that is wrong is shown once or twice.
                assert!(
                    message.len() <= 4 * text.len() + 4096,
                    "{} bytes",
                    message.len()
                );
            }
        }
    }
}
