//! The order of a conversation: hello, open a channel, ask each question, close. Pure.
use crate::{
    answer::{Answer, Question},
    binary::{Malformed, Reader},
    chunk::{CHUNKS_MAX, Chunk, Incoming, Kind, MESSAGE_MAX, Place},
    failure::{Failure, Reason, Step},
    message::{self, Channel, Response, Stamp},
    url::EndpointUrl,
};
use std::{collections::VecDeque, time::Duration};

/// The steps of 100 ns from 1601, where the times of OPC UA begin, to 1970.
const EPOCH: i64 = 116_444_736_000_000_000;

/// One conversation with one server.
#[derive(Debug)]
pub struct Client {
    url: String,
    time: i64,
    /// The number of the last request.
    request: u32,
    incoming: Incoming,
    step: Step,
    channel: Channel,
    /// The largest chunk that the server takes.
    most: u32,
    /// The questions after the present one.
    questions: VecDeque<Question>,
    /// The bodies of the chunks of a message that is not whole yet, and their number.
    message: Vec<u8>,
    chunks: usize,
    steps: usize,
}

/// What follows from the bytes of a server.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// The bytes to send.
    pub send: Vec<u8>,
    /// The answers that are whole now, in the order of the questions.
    pub answers: Vec<Answer>,
    /// True after the last answer: send the bytes, which close the channel, and close the connection.
    pub is_over: bool,
}

impl Client {
    /// Begins a conversation. Returns the bytes to send first. `now` is the time since 1970, which a server may log.
    pub fn start(url: &EndpointUrl, questions: &[Question], now: Duration) -> (Self, Vec<u8>) {
        let now = i64::try_from(now.as_nanos() / 100).unwrap_or_default();
        let client = Self {
            url: url.as_str().to_owned(),
            time: EPOCH.saturating_add(now),
            request: 0,
            incoming: Incoming::default(),
            step: Step::Hello,
            channel: Channel { id: 0, token: 0 },
            most: 0,
            questions: questions.iter().copied().collect(),
            message: vec![],
            chunks: 0,
            steps: 0,
        };
        let hello = message::hello(&client.url);
        (client, hello)
    }

    /// Takes over what the server has sent. After a failure, and after the conversation is over, nothing has an effect any more.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<Turn, Failure> {
        let mut turn = Turn::default();
        if self.step != Step::Closed {
            self.incoming.add(bytes);
        }
        while self.step != Step::Closed {
            let step = self.step;
            let taken = self.incoming.next();
            let taken = taken.and_then(|chunk| match chunk {
                Some(chunk) => self.take(chunk, &mut turn).map(|()| true),
                None => Ok(false),
            });
            match taken {
                Ok(true) => {}
                Ok(false) => break,
                Err(reason) => {
                    self.step = Step::Closed;
                    return Err(Failure { step, reason });
                }
            }
        }
        turn.is_over = self.step == Step::Closed;
        Ok(turn)
    }

    /// Returns why the conversation has failed, if the server closes the connection now.
    pub fn hung_up(&self) -> Option<Failure> {
        (self.step != Step::Closed).then_some(Failure {
            step: self.step,
            reason: Reason::HungUp,
        })
    }

    /// Returns the step that the conversation is at.
    pub fn step(&self) -> Step {
        self.step
    }

    /// Returns how many values were read so far: each is at least a byte of the server.
    pub fn steps(&self) -> usize {
        self.steps
    }

    fn take(&mut self, chunk: Chunk, turn: &mut Turn) -> Result<(), Reason> {
        let mut reader = Reader::new(&chunk.body);
        let taken = match (self.step, chunk.kind) {
            (_, Kind::Error) => {
                let (status, text) = message::error(&mut reader).map_err(Reason::Malformed)?;
                Err(Reason::Refused(status, text))
            }
            (Step::Hello, Kind::Acknowledge) => self.acknowledged(&mut reader, turn),
            (Step::Open, Kind::Open) => self.opened(&mut reader, turn),
            (Step::Ask(question), Kind::Message) => {
                self.message(question, &mut reader, chunk.place, turn)
            }
            (_, other) => Err(Reason::Unexpected(other.name())),
        };
        self.steps += reader.steps;
        taken
    }

    fn acknowledged(&mut self, reader: &mut Reader<'_>, turn: &mut Turn) -> Result<(), Reason> {
        self.most = message::acknowledged(reader).map_err(Reason::Malformed)?;
        self.step = Step::Open;
        let stamp = self.stamp();
        self.send(message::open(stamp), turn)
    }

    fn opened(&mut self, reader: &mut Reader<'_>, turn: &mut Turn) -> Result<(), Reason> {
        let mut read = || {
            message::skip_security(reader)?;
            let request = sequence(reader)?;
            Ok((request, message::opened(reader)?))
        };
        let (request, response) = read().map_err(Reason::Malformed)?;
        if request != self.request {
            return Err(Reason::Unexpected("the answer to another request"));
        }
        match response {
            Response::Said(channel) => self.channel = channel,
            Response::Fault(status) => return Err(Reason::Refused(status, String::new())),
            Response::Other => return Err(Reason::Unexpected("a message of another type")),
        }
        self.next(turn)
    }

    /// Takes over a chunk of the answer to a question.
    fn message(
        &mut self,
        question: Question,
        reader: &mut Reader<'_>,
        place: Place,
        turn: &mut Turn,
    ) -> Result<(), Reason> {
        let mut read = || {
            let channel = reader.u32()?;
            reader.u32()?; // the token; it is not renewed in the short life of a channel
            Ok((channel, sequence(reader)?))
        };
        let (channel, request) = read().map_err(Reason::Malformed)?;
        if channel != self.channel.id || request != self.request {
            return Err(Reason::Unexpected("the answer to another request"));
        }
        self.chunks += 1;
        for (what, count, most) in [
            ("chunks", self.chunks, CHUNKS_MAX),
            (
                "bytes",
                self.message.len() + reader.rest().len(),
                MESSAGE_MAX,
            ),
        ] {
            if count > most {
                return Err(Reason::Malformed(Malformed::TooMany { what, count, most }));
            }
        }
        let answer = match place {
            Place::More => {
                self.message.extend_from_slice(reader.rest());
                return Ok(());
            }
            Place::Abort => {
                let (status, _) = message::error(reader).map_err(Reason::Malformed)?;
                Answer::Refused(question, status)
            }
            Place::Last => {
                self.message.extend_from_slice(reader.rest());
                self.answer(question)?
            }
        };
        self.message = vec![];
        self.chunks = 0;
        turn.answers.push(answer);
        self.next(turn)
    }

    /// Reads the whole message.
    fn answer(&mut self, question: Question) -> Result<Answer, Reason> {
        let mut reader = Reader::new(&self.message);
        let response = message::answer(question, &mut reader);
        self.steps += reader.steps;
        match response.map_err(Reason::Malformed)? {
            Response::Said(answer) => Ok(answer),
            Response::Fault(status) => Ok(Answer::Refused(question, status)),
            Response::Other => Err(Reason::Unexpected("a message of another type")),
        }
    }

    /// Asks the next question, or closes the channel.
    fn next(&mut self, turn: &mut Turn) -> Result<(), Reason> {
        let stamp = self.stamp();
        let bytes = match self.questions.pop_front() {
            Some(question) => {
                self.step = Step::Ask(question);
                message::ask(question, &self.url, self.channel, stamp)
            }
            None => {
                self.step = Step::Closed;
                message::close(self.channel, stamp)
            }
        };
        self.send(bytes, turn)
    }

    fn stamp(&mut self) -> Stamp {
        self.request += 1;
        Stamp {
            request: self.request,
            time: self.time,
        }
    }

    fn send(&self, bytes: Vec<u8>, turn: &mut Turn) -> Result<(), Reason> {
        if u32::try_from(bytes.len()).is_ok_and(|count| count > self.most) {
            return Err(Reason::SmallBuffer(self.most));
        }
        turn.send.extend(bytes);
        Ok(())
    }
}

/// Reads the numbers of a chunk. Returns that of its request. The other one, which grows by one with each chunk, guards signed
/// messages against being repeated or left out; over TCP and without signatures it says nothing.
fn sequence(reader: &mut Reader<'_>) -> Result<u32, Malformed> {
    reader.u32()?;
    reader.u32()
}

#[cfg(test)]
mod tests;
