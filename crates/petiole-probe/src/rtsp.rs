//! Asks by RTSP (RFC 2326) for the methods of a server. Pure.
use crate::{facts::Facts, message::Message};

pub(crate) const PROTOCOL: &str = "RTSP/";

pub(crate) fn request(path: &str, authority: &str) -> Vec<u8> {
    format!("OPTIONS rtsp://{authority}{path} RTSP/1.0\r\nCSeq: 1\r\nUser-Agent: petiole\r\n\r\n")
        .into_bytes()
}

/// Reads an answer. A server that wants to know who asks is one, too.
pub(crate) fn answer(message: &Message) -> Facts {
    let mut facts = Facts::default();
    facts.set("STATUS", &message.status.to_string());
    facts.set("SERVER", message.header("server").unwrap_or_default());
    facts.set("METHODS", message.header("public").unwrap_or_default());
    facts
}
