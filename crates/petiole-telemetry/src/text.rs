//! Formats the fields and the message of a text log. The values come from anyone on the LAN, so control characters are
//! escaped: they could steer a terminal or imitate another line of the log.
use petiole_model::model::printable::printable;
use std::fmt::Debug;
use tracing::field::Field;
use tracing_subscriber::{
    field::MakeExt as _,
    fmt::{
        FormatFields,
        format::{Writer, debug_fn},
    },
};

/// Returns a formatter that writes `message name=value name=value`.
pub(super) fn fields() -> impl for<'w> FormatFields<'w> + Send + Sync + 'static {
    let write = |writer: &mut Writer<'_>, field: &Field, value: &dyn Debug| {
        let value = printable(&format!("{value:?}"));
        match field.name() {
            "message" => write!(writer, "{value}"),
            name => write!(writer, "{name}={value}"),
        }
    };
    debug_fn(write).delimited(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{self, Write},
        sync::{Arc, Mutex},
    };
    use tracing_subscriber::fmt;

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(events: impl FnOnce()) -> String {
        let log = Log::default();
        let writer = log.clone();
        let logs = fmt().fmt_fields(fields()).with_ansi(false).without_time();
        let logs = logs.with_writer(move || writer.clone()).finish();
        tracing::subscriber::with_default(logs, events);
        String::from_utf8(log.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn a_value_cannot_make_a_line_of_its_own_or_steer_the_terminal() {
        let name = "cam\r\nINFO all is well \x1b[2J";
        let text = logged(|| {
            let _span = tracing::info_span!("discovery", configuration = %name).entered();
            tracing::warn!(device = %name, shown = name, "it said {name}");
        });
        assert_eq!(text.lines().count(), 1, "{text}");
        assert_eq!(
            text.matches("cam\\r\\nINFO all is well \\u{1b}[2J").count(),
            4,
            "{text}"
        );
        assert!(!text.contains('\x1b'), "{text}");
    }

    #[test]
    fn an_event_is_its_message_and_its_fields() {
        let text = logged(|| tracing::info!(slots = 2, name = %"a b", "listed"));
        assert_eq!(
            text,
            " INFO petiole_telemetry::text::tests: listed slots=2 name=a b\n"
        );
    }
}
