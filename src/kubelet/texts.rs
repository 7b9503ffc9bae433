//! Errors as Go programs print them: plugins' authors know these texts. Pure.
use tonic::{Code, Status};

/// How grpc-go prints a status.
pub(crate) fn status(status: &Status) -> String {
    let code = match status.code() {
        Code::Ok => "OK".to_owned(),
        Code::Cancelled => "Canceled".to_owned(),
        code => format!("{code:?}"),
    };
    format!("rpc error: code = {code} desc = {}", status.message())
}

/// What is behind tonic's "transport error".
pub(crate) fn cause(error: &tonic::transport::Error) -> String {
    let cause = std::error::Error::source(error).map(ToString::to_string);
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
}
