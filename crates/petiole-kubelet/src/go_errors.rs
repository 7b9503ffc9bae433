//! Formats errors as Go programs print them, because the authors of plugins know these texts. Pure.
use std::error::Error as _;
use tonic::{Code, Status};

/// Formats a status as grpc-go does. A status of code Unknown with a source does not come from the plugin: its
/// connection was closed.
pub(crate) fn status(status: &Status) -> String {
    if status.code() == Code::Unknown && status.source().is_some() {
        return "rpc error: code = Unavailable desc = error reading from server: EOF".to_owned();
    }
    let code = format!("{:?}", status.code());
    // Go spells these two codes differently.
    let code = match code.as_str() {
        "Ok" => "OK",
        "Cancelled" => "Canceled",
        same => same,
    };
    format!("rpc error: code = {code} desc = {}", status.message())
}

/// Returns the cause of tonic's "transport error".
pub(crate) fn cause(error: &dyn std::error::Error) -> String {
    let cause = error.source().map(ToString::to_string);
    cause.unwrap_or_else(|| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_spelt_as_in_go() {
        for (found, want) in [
            (Status::cancelled("x"), "Canceled"),
            (Status::unknown("x"), "Unknown"),
            (Status::deadline_exceeded("x"), "DeadlineExceeded"),
        ] {
            let want = format!("rpc error: code = {want} desc = x");
            assert_eq!(status(&found), want);
        }
    }

    #[test]
    fn a_connection_that_is_gone_is_said_as_in_go() {
        let reset = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        let gone = status(&Status::from_error(Box::new(reset)));
        assert!(
            gone.ends_with("code = Unavailable desc = error reading from server: EOF"),
            "{gone}"
        );
    }
}
