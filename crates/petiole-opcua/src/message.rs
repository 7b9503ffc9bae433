//! Reads and writes the bodies of messages: requests, and the answers to them (OPC 10000-4, 5.5 and 5.6; encoded by OPC 10000-6). Pure.
use crate::{
    answer::{Answer, Application, ApplicationType, Endpoint, Question, SecurityMode, UserToken},
    binary::{Malformed, Reader, Writer},
    chunk::{CHUNK_MAX, CHUNKS_MAX, Kind, MESSAGE_MAX, Place, write},
    status::Status,
};

/// The most applications of an answer. Beyond it: the answer is not used.
pub const APPLICATIONS_MAX: usize = 1024;
/// The most endpoints of a server. Beyond it: the answer is not used.
pub const ENDPOINTS_MAX: usize = 256;
/// The most servers of one answer about the network. Beyond it: we do not ask for further ones, and do not use an answer with more.
pub const RECORDS_MAX: usize = 512;
/// The most addresses, capabilities or user tokens of one application or endpoint. Beyond it: the answer is not used.
pub const STRINGS_MAX: usize = 64;

/// The security policy of a channel whose messages are neither signed nor encrypted.
pub(crate) const NO_SECURITY: &str = "http://opcfoundation.org/UA/SecurityPolicy#None";
/// The time that a channel may take, in milliseconds. The conversation is over long before.
const LIFETIME: u32 = 60_000;
/// The time after which a server need not answer any more, in milliseconds.
const TIMEOUT: u32 = 5_000;

/// The numbers of the types of messages in OPC UA Binary (`Opc.Ua.NodeIds.csv`: `…_Encoding_DefaultBinary`).
pub(crate) mod number {
    pub(crate) const SERVICE_FAULT: u16 = 397;
    pub(crate) const FIND_SERVERS: [u16; 2] = [422, 425];
    pub(crate) const GET_ENDPOINTS: [u16; 2] = [428, 431];
    pub(crate) const OPEN: [u16; 2] = [446, 449];
    pub(crate) const CLOSE: u16 = 452;
    pub(crate) const FIND_SERVERS_ON_NETWORK: [u16; 2] = [12_208, 12_209];
}

impl Question {
    /// Returns the numbers of the request and of the answer.
    pub(crate) fn numbers(self) -> [u16; 2] {
        match self {
            Self::FindServers => number::FIND_SERVERS,
            Self::FindServersOnNetwork => number::FIND_SERVERS_ON_NETWORK,
            Self::GetEndpoints => number::GET_ENDPOINTS,
        }
    }
}

/// A secure channel, as its server calls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Channel {
    pub(crate) id: u32,
    pub(crate) token: u32,
}

/// The numbers that tell a request from others, and its time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stamp {
    /// The number of the chunk, and of the request: each of ours is one chunk.
    pub(crate) request: u32,
    /// The time, in steps of 100 ns since 1601.
    pub(crate) time: i64,
}

pub(crate) fn hello(url: &str) -> Vec<u8> {
    let mut body = Writer::default();
    body.u32(0); // the version of the protocol
    for most in [CHUNK_MAX, CHUNK_MAX, MESSAGE_MAX, CHUNKS_MAX] {
        body.u32(u32::try_from(most).unwrap_or(u32::MAX));
    }
    body.string(url);
    write(Kind::Hello, Place::Last, &body.0)
}

pub(crate) fn open(stamp: Stamp) -> Vec<u8> {
    const ISSUE: i32 = 0;
    const NONE: i32 = 1;
    let mut body = Writer::default();
    body.u32(0); // there is no channel yet
    body.string(NO_SECURITY);
    body.null(); // our certificate
    body.null(); // the thumbprint of the server's
    sequence(&mut body, stamp);
    request(&mut body, number::OPEN[0], stamp);
    body.u32(0);
    body.i32(ISSUE);
    body.i32(NONE);
    body.null();
    body.u32(LIFETIME);
    write(Kind::Open, Place::Last, &body.0)
}

pub(crate) fn ask(question: Question, url: &str, channel: Channel, stamp: Stamp) -> Vec<u8> {
    let mut body = in_channel(channel, stamp);
    request(&mut body, question.numbers()[0], stamp);
    match question {
        Question::FindServers | Question::GetEndpoints => {
            body.string(url);
            body.null(); // any locale
            body.null(); // all servers, or endpoints of all transports
        }
        Question::FindServersOnNetwork => {
            body.u32(0); // from the first record on
            body.length(RECORDS_MAX);
            body.null(); // whatever their capabilities
        }
    }
    write(Kind::Message, Place::Last, &body.0)
}

pub(crate) fn close(channel: Channel, stamp: Stamp) -> Vec<u8> {
    let mut body = in_channel(channel, stamp);
    request(&mut body, number::CLOSE, stamp);
    write(Kind::Close, Place::Last, &body.0)
}

pub(crate) fn in_channel(channel: Channel, stamp: Stamp) -> Writer {
    let mut body = Writer::default();
    body.u32(channel.id);
    body.u32(channel.token);
    sequence(&mut body, stamp);
    body
}

fn sequence(body: &mut Writer, stamp: Stamp) {
    body.u32(stamp.request);
    body.u32(stamp.request);
}

/// Writes the type of a request, and its header.
fn request(body: &mut Writer, number: u16, stamp: Stamp) {
    body.type_id(number);
    body.null_node_id(); // there is no session
    body.time(stamp.time);
    body.u32(stamp.request);
    body.u32(0); // no diagnostics
    body.null();
    body.u32(TIMEOUT);
    body.null_node_id();
    body.byte(0);
}

/// Reads an Acknowledge. Returns the largest chunk that the server takes.
pub(crate) fn acknowledged(reader: &mut Reader<'_>) -> Result<u32, Malformed> {
    reader.u32()?;
    reader.u32()
}

/// Reads an Error, or the body of a chunk that aborts a message.
pub(crate) fn error(reader: &mut Reader<'_>) -> Result<(Status, String), Malformed> {
    Ok((Status(reader.u32()?), reader.string()?))
}

/// Reads what precedes the body of an OpenSecureChannel.
pub(crate) fn skip_security(reader: &mut Reader<'_>) -> Result<(), Malformed> {
    reader.u32()?;
    for _policy_certificate_thumbprint in 0..3 {
        reader.skip_bytes()?;
    }
    Ok(())
}

/// What a server has said to a request.
#[derive(Debug)]
pub(crate) enum Response<T> {
    Said(T),
    Fault(Status),
    /// A message of another type.
    Other,
}

/// Reads the type and the header of a response, and the rest if it is of the type with this number.
fn response<'a, T>(
    reader: &mut Reader<'a>,
    number: u16,
    read: impl FnOnce(&mut Reader<'a>) -> Result<T, Malformed>,
) -> Result<Response<T>, Malformed> {
    let id = reader.node_id()?;
    let is_fault = id == Some(u32::from(number::SERVICE_FAULT));
    if !is_fault && id != Some(u32::from(number)) {
        return Ok(Response::Other);
    }
    reader.skip_time()?;
    reader.u32()?;
    let status = Status(reader.u32()?);
    if is_fault || status.is_bad() {
        return Ok(Response::Fault(status));
    }
    reader.skip_diagnostics()?;
    reader.strings("texts of diagnostics", STRINGS_MAX)?;
    reader.skip_extension_object()?;
    read(reader).map(Response::Said)
}

pub(crate) fn opened(reader: &mut Reader<'_>) -> Result<Response<Channel>, Malformed> {
    response(reader, number::OPEN[1], |reader| {
        reader.u32()?;
        Ok(Channel {
            id: reader.u32()?,
            token: reader.u32()?,
        })
    })
}

pub(crate) fn answer(
    question: Question,
    reader: &mut Reader<'_>,
) -> Result<Response<Answer>, Malformed> {
    response(reader, question.numbers()[1], |reader| match question {
        Question::FindServers => {
            let applications = reader.array("applications", APPLICATIONS_MAX, application)?;
            Ok(Answer::Servers(applications))
        }
        Question::FindServersOnNetwork => {
            reader.skip_time()?;
            let servers = reader.array("servers", RECORDS_MAX, server_on_network)?;
            Ok(Answer::ServersOnNetwork(servers))
        }
        Question::GetEndpoints => {
            let endpoints = reader.array("endpoints", ENDPOINTS_MAX, endpoint)?;
            Ok(Answer::Endpoints(endpoints))
        }
    })
}

fn application(reader: &mut Reader<'_>) -> Result<Application, Malformed> {
    let application = Application {
        uri: reader.string()?,
        product_uri: reader.string()?,
        name: reader.localized_text()?,
        kind: ApplicationType(reader.i32()?),
        discovery_urls: vec![],
    };
    reader.string()?; // the gateway to it
    reader.string()?; // the profile of discovery
    let discovery_urls = reader.strings("discovery URLs", STRINGS_MAX)?;
    Ok(Application {
        discovery_urls,
        ..application
    })
}

fn server_on_network(reader: &mut Reader<'_>) -> Result<String, Malformed> {
    reader.u32()?; // the number of the record
    reader.string()?; // the name for people
    let discovery_url = reader.string()?;
    reader.strings("capabilities", STRINGS_MAX)?;
    Ok(discovery_url)
}

fn endpoint(reader: &mut Reader<'_>) -> Result<Endpoint, Malformed> {
    let url = reader.string()?;
    application(reader)?;
    reader.skip_bytes()?; // the certificate
    let mode = SecurityMode(reader.i32()?);
    let policy = reader.string()?;
    let users = reader.array("user tokens", STRINGS_MAX, user_token)?;
    reader.string()?; // the profile of the transport
    let level = reader.byte()?;
    Ok(Endpoint {
        url,
        mode,
        policy,
        users,
        level,
    })
}

fn user_token(reader: &mut Reader<'_>) -> Result<UserToken, Malformed> {
    reader.string()?;
    let token = UserToken(reader.i32()?);
    for _issued_type_issuer_policy in 0..3 {
        reader.string()?;
    }
    Ok(token)
}
