//! Defines status codes of OPC UA, with the names of those that discovery can bring. Pure.
use std::fmt;

/// A status code (OPC 10000-4, 7.39). It is shown by its name, if it has one here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status(pub u32);

/// The names, by the upper half of the code; the lower half has flags.
const NAMES: &[(u16, &str)] = &[
    (0x8001, "BadUnexpectedError"),
    (0x8002, "BadInternalError"),
    (0x8003, "BadOutOfMemory"),
    (0x8004, "BadResourceUnavailable"),
    (0x8005, "BadCommunicationError"),
    (0x8006, "BadEncodingError"),
    (0x8007, "BadDecodingError"),
    (0x8008, "BadEncodingLimitsExceeded"),
    (0x8009, "BadUnknownResponse"),
    (0x800A, "BadTimeout"),
    (0x800B, "BadServiceUnsupported"),
    (0x800C, "BadShutdown"),
    (0x800D, "BadServerNotConnected"),
    (0x800E, "BadServerHalted"),
    (0x8010, "BadTooManyOperations"),
    (0x8013, "BadSecurityChecksFailed"),
    (0x801F, "BadUserAccessDenied"),
    (0x8022, "BadSecureChannelIdInvalid"),
    (0x803D, "BadNotSupported"),
    (0x8040, "BadNotImplemented"),
    (0x804F, "BadServerUriInvalid"),
    (0x8054, "BadSecurityModeRejected"),
    (0x8055, "BadSecurityPolicyRejected"),
    (0x807D, "BadTcpServerTooBusy"),
    (0x807E, "BadTcpMessageTypeInvalid"),
    (0x807F, "BadTcpSecureChannelUnknown"),
    (0x8080, "BadTcpMessageTooLarge"),
    (0x8081, "BadTcpNotEnoughResources"),
    (0x8082, "BadTcpInternalError"),
    (0x8083, "BadTcpEndpointUrlInvalid"),
    (0x8084, "BadRequestInterrupted"),
    (0x8085, "BadRequestTimeout"),
    (0x8086, "BadSecureChannelClosed"),
    (0x80B8, "BadRequestTooLarge"),
    (0x80B9, "BadResponseTooLarge"),
    (0x80BE, "BadProtocolVersionUnsupported"),
];

impl Status {
    /// Returns whether the code says that something went wrong.
    pub fn is_bad(self) -> bool {
        self.0 >> 31 == 1
    }

    /// Returns the name of the code, if it is one that discovery can bring.
    pub fn name(self) -> Option<&'static str> {
        let named = NAMES
            .iter()
            .find(|(code, _)| u32::from(*code) == self.0 >> 16);
        named.map(|(_, name)| *name)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "status 0x{:08X}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_shown_by_its_name_or_as_a_number() {
        assert_eq!(Status(0x8055_0000).to_string(), "BadSecurityPolicyRejected");
        assert_eq!(Status(0x80FF_0001).to_string(), "status 0x80FF0001");
        assert!(Status(0x8055_0000).is_bad() && !Status(0).is_bad());
        assert!(!Status(0x4000_0000).is_bad(), "it is only uncertain");
    }

    #[test]
    fn each_code_has_one_name() {
        let is_sorted = NAMES.windows(2).all(|pair| pair[0].0 < pair[1].0);
        assert!(is_sorted);
    }
}
