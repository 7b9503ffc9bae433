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
    /// To [`Question::FindServers`].
    Servers(Vec<Application>),
    /// To [`Question::FindServersOnNetwork`].
    ServersOnNetwork(Vec<ServerOnNetwork>),
    /// To [`Question::GetEndpoints`].
    Endpoints(Vec<Endpoint>),
    /// The server does not answer this question, for this reason.
    Refused(Question, Status),
}

impl Answer {
    /// Returns the question that it answers.
    pub fn question(&self) -> Question {
        match self {
            Self::Servers(_) => Question::FindServers,
            Self::ServersOnNetwork(_) => Question::FindServersOnNetwork,
            Self::Endpoints(_) => Question::GetEndpoints,
            Self::Refused(question, _) => *question,
        }
    }
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

/// What an application is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ApplicationType {
    /// A server.
    #[default]
    Server,
    /// A client.
    Client,
    /// A server that is a client of others, too.
    ClientAndServer,
    /// A discovery server, which is no device.
    DiscoveryServer,
    /// A number that this version of the specification does not have.
    Other(i32),
}

impl ApplicationType {
    pub(crate) fn from_code(code: i32) -> Self {
        match code {
            0 => Self::Server,
            1 => Self::Client,
            2 => Self::ClientAndServer,
            3 => Self::DiscoveryServer,
            other => Self::Other(other),
        }
    }

    /// Returns whether it serves devices or data of its own.
    pub fn is_server(self) -> bool {
        matches!(self, Self::Server | Self::ClientAndServer)
    }
}

impl fmt::Display for ApplicationType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server => f.write_str("Server"),
            Self::Client => f.write_str("Client"),
            Self::ClientAndServer => f.write_str("ClientAndServer"),
            Self::DiscoveryServer => f.write_str("DiscoveryServer"),
            Self::Other(code) => write!(f, "{code}"),
        }
    }
}

/// A server that a discovery server knows by multicast DNS.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerOnNetwork {
    /// The number of the record, from which the next question goes on.
    pub record: u32,
    /// The name for people.
    pub name: String,
    /// Where it answers discovery.
    pub discovery_url: String,
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

/// Whether the messages of an endpoint are signed and encrypted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SecurityMode {
    /// Neither.
    #[default]
    None,
    /// Signed.
    Sign,
    /// Both.
    SignAndEncrypt,
    /// A number that the specification does not allow.
    Other(i32),
}

impl SecurityMode {
    pub(crate) fn from_code(code: i32) -> Self {
        match code {
            1 => Self::None,
            2 => Self::Sign,
            3 => Self::SignAndEncrypt,
            other => Self::Other(other),
        }
    }
}

impl fmt::Display for SecurityMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Sign => f.write_str("Sign"),
            Self::SignAndEncrypt => f.write_str("SignAndEncrypt"),
            Self::Other(code) => write!(f, "{code}"),
        }
    }
}

/// A way in which a user proves who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum UserToken {
    /// Not at all.
    Anonymous,
    /// By a name and a password.
    UserName,
    /// By a certificate.
    Certificate,
    /// By a token that another service has issued.
    IssuedToken,
    /// A number that this version of the specification does not have.
    Other(i32),
}

impl UserToken {
    pub(crate) fn from_code(code: i32) -> Self {
        match code {
            0 => Self::Anonymous,
            1 => Self::UserName,
            2 => Self::Certificate,
            3 => Self::IssuedToken,
            other => Self::Other(other),
        }
    }
}

impl fmt::Display for UserToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anonymous => f.write_str("Anonymous"),
            Self::UserName => f.write_str("UserName"),
            Self::Certificate => f.write_str("Certificate"),
            Self::IssuedToken => f.write_str("IssuedToken"),
            Self::Other(code) => write!(f, "{code}"),
        }
    }
}
