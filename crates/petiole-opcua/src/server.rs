//! The other side of the conversation, for tests: a server that answers the questions, as it should or with faults. Pure.
use crate::{
    answer::{Application, Endpoint, Question},
    binary::{Reader, Writer},
    chunk::{CHUNK_MAX, Chunk, Incoming, Kind, Place, write},
    message::{Channel, NO_SECURITY, Stamp, in_channel, number},
    status::Status,
};

const CHANNEL: Channel = Channel { id: 7, token: 9 };

/// A server for one connection. Clone it for each.
#[derive(Debug, Clone, Default)]
pub struct Server {
    /// The answer to FindServers.
    pub applications: Vec<Application>,
    /// The answer to FindServersOnNetwork.
    pub on_network: Vec<String>,
    /// The answer to GetEndpoints.
    pub endpoints: Vec<Endpoint>,
    /// What it does wrong.
    pub quirks: Quirks,
}

/// What a server does otherwise than others.
#[derive(Debug, Clone, Default)]
pub struct Quirks {
    /// The status with which it refuses a question.
    pub refuses: Option<(Question, Status)>,
    /// The status with which it refuses the first message.
    pub refuses_hello: Option<Status>,
    /// The status with which it refuses a channel without security.
    pub refuses_open: Option<Status>,
    /// The bytes of a message in each of its chunks; 0 is all.
    pub chunk: usize,
    /// It gives up on a message after its first chunk, with this status.
    pub aborts: Option<Status>,
}

impl Server {
    /// Returns the answers to whole chunks of a client. It panics at what is no message.
    pub fn receive(&self, bytes: &[u8]) -> Vec<u8> {
        let mut incoming = Incoming::default();
        incoming.add(bytes);
        let mut answers = vec![];
        while let Some(chunk) = incoming.next().expect("a client sends chunks") {
            answers.extend(self.answer(&chunk));
        }
        answers
    }

    fn answer(&self, chunk: &Chunk) -> Vec<u8> {
        let mut reader = Reader::new(&chunk.body);
        match chunk.kind {
            Kind::Hello => self.acknowledge(),
            Kind::Open => self.open(&mut reader).expect("an OpenSecureChannel"),
            Kind::Message => self.say(&mut reader).expect("a question"),
            Kind::Acknowledge | Kind::Error | Kind::Close => vec![],
        }
    }

    fn acknowledge(&self) -> Vec<u8> {
        let mut body = Writer::default();
        if let Some(status) = self.quirks.refuses_hello {
            body.u32(status.0);
            body.string("no");
            return write(Kind::Error, Place::Last, &body.0);
        }
        for value in [0, 65_535, 65_535, 0, 0] {
            body.u32(value);
        }
        write(Kind::Acknowledge, Place::Last, &body.0)
    }

    fn open(&self, reader: &mut Reader<'_>) -> Option<Vec<u8>> {
        reader.u32().ok()?;
        assert_eq!(reader.string().ok()?, NO_SECURITY);
        reader.skip_bytes().ok()?;
        reader.skip_bytes().ok()?;
        let stamp = stamp(reader)?;
        assert_eq!(reader.node_id().ok()?, Some(u32::from(number::OPEN[0])));
        let mut body = Writer::default();
        body.u32(CHANNEL.id);
        body.string(NO_SECURITY);
        body.null();
        body.null();
        body.u32(stamp.request);
        body.u32(stamp.request);
        match self.quirks.refuses_open {
            Some(status) => header(&mut body, number::SERVICE_FAULT, status),
            None => {
                header(&mut body, number::OPEN[1], Status(0));
                for value in [0, CHANNEL.id, CHANNEL.token] {
                    body.u32(value);
                }
                body.time(0);
                body.u32(60_000);
                body.null();
            }
        }
        Some(write(Kind::Open, Place::Last, &body.0))
    }

    fn say(&self, reader: &mut Reader<'_>) -> Option<Vec<u8>> {
        assert_eq!(reader.u32().ok()?, CHANNEL.id);
        assert_eq!(reader.u32().ok()?, CHANNEL.token);
        let stamp = stamp(reader)?;
        let asked = reader.node_id().ok()?;
        let questions = [
            Question::FindServers,
            Question::FindServersOnNetwork,
            Question::GetEndpoints,
        ];
        let question = questions
            .into_iter()
            .find(|question| asked == Some(u32::from(question.numbers()[0])))?;
        let mut body = Writer::default();
        if let Some((_, status)) = self
            .quirks
            .refuses
            .filter(|(refused, _)| *refused == question)
        {
            header(&mut body, number::SERVICE_FAULT, status);
            return Some(self.chunks(&body.0, stamp));
        }
        header(&mut body, question.numbers()[1], Status(0));
        match question {
            Question::FindServers => array(&mut body, &self.applications, application),
            Question::FindServersOnNetwork => {
                body.time(0);
                array(&mut body, &self.on_network, |body, url| {
                    server_on_network(body, url);
                });
            }
            Question::GetEndpoints => array(&mut body, &self.endpoints, endpoint),
        }
        Some(self.chunks(&body.0, stamp))
    }

    fn chunks(&self, message: &[u8], stamp: Stamp) -> Vec<u8> {
        const HEADERS: usize = 24;
        let size = match self.quirks.chunk {
            0 => CHUNK_MAX - HEADERS,
            size => size,
        };
        let mut chunks = message.chunks(size).peekable();
        let mut bytes = vec![];
        while let Some(chunk) = chunks.next() {
            let mut body = in_channel(CHANNEL, stamp);
            body.0.extend_from_slice(chunk);
            let place = if chunks.peek().is_some() {
                Place::More
            } else {
                Place::Last
            };
            bytes.extend(write(Kind::Message, place, &body.0));
            if let Some(status) = self.quirks.aborts {
                let mut body = in_channel(CHANNEL, stamp);
                body.u32(status.0);
                body.string("enough");
                bytes.extend(write(Kind::Message, Place::Abort, &body.0));
                break;
            }
        }
        bytes
    }
}

fn stamp(reader: &mut Reader<'_>) -> Option<Stamp> {
    reader.u32().ok()?;
    let request = reader.u32().ok()?;
    Some(Stamp { request, time: 0 })
}

/// Writes the type of a response, and its header.
fn header(body: &mut Writer, number: u16, status: Status) {
    body.type_id(number);
    body.time(0);
    body.u32(0);
    body.u32(status.0);
    body.byte(0);
    body.null();
    body.null_node_id();
    body.byte(0);
}

fn array<T>(body: &mut Writer, elements: &[T], write: impl Fn(&mut Writer, &T)) {
    body.length(elements.len());
    for element in elements {
        write(body, element);
    }
}

fn application(body: &mut Writer, application: &Application) {
    const LOCALE_AND_TEXT: u8 = 3;
    body.string(&application.uri);
    body.string(&application.product_uri);
    body.byte(LOCALE_AND_TEXT);
    body.string("en");
    body.string(&application.name);
    body.i32(application.kind.0);
    body.null();
    body.null();
    array(body, &application.discovery_urls, |body, url| {
        body.string(url)
    });
}

fn server_on_network(body: &mut Writer, discovery_url: &str) {
    body.u32(5);
    body.string("a name");
    body.string(discovery_url);
    array(body, &["DA"], |body, capability| body.string(capability));
}

fn endpoint(body: &mut Writer, endpoint: &Endpoint) {
    body.string(&endpoint.url);
    application(body, &Application::default());
    body.string("a certificate");
    body.i32(endpoint.mode.0);
    body.string(&endpoint.policy);
    array(body, &endpoint.users, |body, user| {
        body.string("an id");
        body.i32(user.0);
        (0..3).for_each(|_| body.null());
    });
    body.null();
    body.byte(endpoint.level);
}
