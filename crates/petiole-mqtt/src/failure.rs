//! Defines why a session with a broker ended. Pure.
use std::fmt;

/// What a session was doing when it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// CONNECT was sent.
    Connect,
    /// SUBSCRIBE was sent.
    Subscribe,
    /// UNSUBSCRIBE was sent.
    Unsubscribe,
    /// PINGREQ was sent.
    Ping,
    /// Messages come when they come.
    Listen,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "CONNECT",
            Self::Subscribe => "SUBSCRIBE",
            Self::Unsubscribe => "UNSUBSCRIBE",
            Self::Ping => "PINGREQ",
            Self::Listen => "waiting for messages",
        })
    }
}

/// A reason code of MQTT 5. Those of 3.1.1 are translated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code(pub u8);

impl Code {
    pub(crate) const OLD_PROTOCOL: Self = Self(0x84);

    /// Translates a return code of MQTT 3.1.1.
    pub(crate) fn of_3_1_1(code: u8) -> Self {
        Self(match code {
            0 => 0,
            1 => 0x84,
            2 => 0x85,
            3 => 0x88,
            4 => 0x86,
            5 => 0x87,
            _ => 0x80,
        })
    }

    pub(crate) fn is_failure(self) -> bool {
        self.0 >= 0x80
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.0 {
            0x81 => "malformed packet",
            0x82 => "protocol error",
            0x84 => "unsupported protocol version",
            0x85 => "client identifier not valid",
            0x86 => "bad user name or password",
            0x87 => "not authorized",
            0x88 => "server unavailable",
            0x89 => "server busy",
            0x8A => "banned",
            0x8B => "server shutting down",
            0x8C => "bad authentication method",
            0x8D => "keep alive timeout",
            0x8E => "session taken over",
            0x8F => "topic filter invalid",
            0x95 => "packet too large",
            0x97 => "quota exceeded",
            0x98 => "administrative action",
            0x9C | 0x9D => "use another server",
            0x9F => "connection rate exceeded",
            0xA2 => "wildcard subscriptions not supported",
            code => return write!(f, "reason code 0x{code:02X}"),
        };
        f.write_str(name)
    }
}

/// Why a session ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What it was doing.
    pub step: Step,
    /// The reason.
    pub reason: Reason,
}

/// The reason of a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// The broker refused it, or ended the session, with a text of its own that may be empty.
    Refused(Code, String),
    /// These bytes are not of an MQTT broker.
    NotMqtt,
    /// The packet is none that may come now.
    Unexpected(&'static str),
    /// A packet could not be read.
    Malformed(&'static str),
    /// The broker closed the connection.
    HungUp,
    /// No answer came within so many seconds.
    Late(u64),
}

impl Failure {
    /// Returns whether the broker may be one that speaks only MQTT 3.1.1.
    pub fn is_of_protocol(&self) -> bool {
        let is_old = matches!(
            self.reason,
            Reason::Refused(Code::OLD_PROTOCOL | Code(0x80..=0x82), _) | Reason::HungUp
        );
        self.step == Step::Connect && is_old
    }

    /// Returns what a person can do.
    pub fn remedy(&self) -> &'static str {
        match (self.step, &self.reason) {
            (_, Reason::Refused(Code(0x86 | 0x8C), _)) => {
                "correct the discoveryProperties user and password, or certificate and privateKey"
            }
            (_, Reason::Refused(Code(0x87), _)) => {
                "the broker needs other credentials, or its access list must allow this"
            }
            (_, Reason::Refused(Code::OLD_PROTOCOL, _)) => "set `protocol`",
            (_, Reason::NotMqtt) => {
                "is it the port of an MQTT broker, with TLS (mqtts://) or without (mqtt://) as the address says?"
            }
            (Step::Connect, Reason::HungUp | Reason::Late(_)) => {
                "is it the port of an MQTT broker, with TLS (mqtts://) or without (mqtt://) as the address says? Its log may say more"
            }
            _ => "look at the log of the broker",
        }
    }
}

impl std::error::Error for Failure {}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = self.step;
        match &self.reason {
            Reason::Refused(code, text) => {
                let did = match step {
                    Step::Listen | Step::Ping => "ended the session",
                    Step::Connect => "refused CONNECT",
                    Step::Subscribe => "refused SUBSCRIBE",
                    Step::Unsubscribe => "refused UNSUBSCRIBE",
                };
                write!(f, "the broker {did}: {code}")?;
                if text.is_empty() {
                    Ok(())
                } else {
                    write!(f, " ({text:?})")
                }
            }
            Reason::NotMqtt => write!(f, "what answered {step} does not speak MQTT"),
            Reason::Unexpected(what) => write!(f, "at {step} the broker sent {what}"),
            Reason::Malformed(why) => write!(
                f,
                "at {step} the broker sent a packet that is unusable: {why}"
            ),
            Reason::HungUp => write!(f, "the broker closed the connection at {step}"),
            Reason::Late(seconds) => write!(f, "no answer to {step} within {seconds} s"),
        }
    }
}
