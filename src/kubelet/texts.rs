//! Errors as Go programs print them: plugins' authors know these texts. Pure.
use tonic::Status;

/// How grpc-go prints a status.
pub(crate) fn status(status: &Status) -> String {
    let code = format!("{:?}", status.code());
    // The two that Go spells in another way.
    let code = match code.as_str() {
        "Ok" => "OK",
        "Cancelled" => "Canceled",
        same => same,
    };
    format!("rpc error: code = {code} desc = {}", status.message())
}

/// What is behind tonic's "transport error".
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
}
