//! Defines the questions to a server, and what its answers say. Pure.
use crate::status::Status;
use std::fmt;

/// A question of the discovery services (OPC 10000-4, 5.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Question {
    /// Asks for the server itself, and for those that have registered with it if it is a discovery server.
    FindServers,
    /// Asks a discovery server for the servers that it knows by multicast DNS.
    FindServersOnNetwork,
    /// Asks a server for its endpoints and their security.
    GetEndpoints,
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FindServers => "FindServers",
            Self::FindServersOnNetwork => "FindServersOnNetwork",
            Self::GetEndpoints => "GetEndpoints",
        })
    }
}

/// What a server has answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// This answers [`Question::FindServers`].
    Servers(Vec<Application>),
    /// This answers [`Question::FindServersOnNetwork`]. It has the URLs at which the servers answer discovery.
    ServersOnNetwork(Vec<String>),
    /// This answers [`Question::GetEndpoints`].
    Endpoints(Vec<Endpoint>),
    /// The server does not answer this question, for this reason.
    Refused(Question, Status),
}

/// An application, as an `ApplicationDescription` describes it. Texts are as the server sends them, and `""` where it sends none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Application {
    /// The name of the installation, which is unique in the world by the specification.
    pub uri: String,
    /// The name of the product.
    pub product_uri: String,
    /// The name for people.
    pub name: String,
    /// What it is.
    pub kind: ApplicationType,
    /// The addresses at which it answers discovery. Their hosts are those that the server has for itself.
    pub discovery_urls: Vec<String>,
}

/// What an application is (OPC 10000-4, 7.4). Another number is one that this version of the specification does not have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ApplicationType(pub i32);

impl ApplicationType {
    /// A server.
    pub const SERVER: Self = Self(0);
    /// A client.
    pub const CLIENT: Self = Self(1);
    /// A server that is a client of others, too.
    pub const CLIENT_AND_SERVER: Self = Self(2);
    /// A discovery server, which is no device.
    pub const DISCOVERY_SERVER: Self = Self(3);

    /// Returns whether it serves devices or data of its own.
    pub fn is_server(self) -> bool {
        matches!(self, Self::SERVER | Self::CLIENT_AND_SERVER)
    }
}

impl fmt::Display for ApplicationType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (0, "Server"),
            (1, "Client"),
            (2, "ClientAndServer"),
            (3, "DiscoveryServer"),
        ];
        named(self.0, &names, f)
    }
}

/// An endpoint of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Endpoint {
    /// The address. Its host is the one that the server has for itself.
    pub url: String,
    /// Whether messages are signed and encrypted.
    pub mode: SecurityMode,
    /// The URI of the security policy: `http://opcfoundation.org/UA/SecurityPolicy#Basic256Sha256`.
    pub policy: String,
    /// The ways in which users may prove who they are.
    pub users: Vec<UserToken>,
    /// The server's own order of its endpoints by security; more is better.
    pub level: u8,
}

impl Endpoint {
    /// Returns the name of the security policy, which is the part of its URI after the `#`.
    pub fn policy_name(&self) -> &str {
        let after = self.policy.rsplit_once('#').map(|(_, name)| name);
        after.unwrap_or(&self.policy)
    }
}

/// Whether the messages of an endpoint are signed and encrypted (OPC 10000-4, 7.20). The specification allows no other number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SecurityMode(pub i32);

impl SecurityMode {
    /// Neither.
    pub const NONE: Self = Self(1);
    /// Signed.
    pub const SIGN: Self = Self(2);
    /// Both.
    pub const SIGN_AND_ENCRYPT: Self = Self(3);
}

impl Default for SecurityMode {
    fn default() -> Self {
        Self::NONE
    }
}

impl fmt::Display for SecurityMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [(1, "None"), (2, "Sign"), (3, "SignAndEncrypt")];
        named(self.0, &names, f)
    }
}

/// A way in which a user proves who it is (OPC 10000-4, 7.42). Another number is one that this version of the specification does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct UserToken(pub i32);

impl UserToken {
    /// Not at all.
    pub const ANONYMOUS: Self = Self(0);
    /// By a name and a password.
    pub const USER_NAME: Self = Self(1);
    /// By a certificate.
    pub const CERTIFICATE: Self = Self(2);
    /// By a token that another service has issued.
    pub const ISSUED_TOKEN: Self = Self(3);
}

impl fmt::Display for UserToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (0, "Anonymous"),
            (1, "UserName"),
            (2, "Certificate"),
            (3, "IssuedToken"),
        ];
        named(self.0, &names, f)
    }
}

/// Writes the name of a number, or the number where it has none.
fn named(code: i32, names: &[(i32, &str)], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match names.iter().find(|(named, _)| *named == code) {
        Some((_, name)) => f.write_str(name),
        None => write!(f, "{code}"),
    }
}
