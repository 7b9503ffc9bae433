//! The conversation with one device: which request to send next, and what its answers say. Pure.
//!
//! The device is asked without credentials first. What it refuses then is asked again by [`Inquiry::again`], by the scheme
//! that its refusal asks for. So a caller decides between the two whether the device may see the credentials at all, and a
//! device with wrong ones sees two attempts and not one for each call: many lock the account after five.
use crate::{
    answers::{self, Information, Interface},
    http_digest::{Authenticated, Challenge},
    requests::Call,
    token,
    url::Url,
    xml::{self, Element},
};
use fastrand::Rng;
use jiff::Timestamp;
use std::{collections::VecDeque, fmt};

/// The most requests of a conversation. Beyond it: it ends with what is known.
pub const REQUESTS_MAX: usize = 32;

/// A user of a device.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The name.
    pub user: String,
    /// The password. It is only sent as a digest.
    pub password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(..)")
    }
}

/// What to ask a device for, beside its time, its network interfaces and its serial number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Ask for the streams of the first profiles.
    pub streams: bool,
}

/// An HTTP request. It is a POST.
#[derive(Clone, PartialEq, Eq)]
pub struct Request {
    /// Its destination. It must not be sent to another host, whatever the answer is.
    pub url: Url,
    /// The header `Content-Type`.
    pub content_type: String,
    /// The header `Authorization`.
    pub authorization: Option<String>,
    /// The body.
    pub body: String,
}

/// An HTTP answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer<'a> {
    /// The status code.
    pub status: u16,
    /// The headers `WWW-Authenticate`.
    pub challenges: &'a [String],
    /// The body.
    pub body: &'a [u8],
}

/// The next step of a conversation.
pub enum Step {
    /// Send this, and give the answer.
    Send(Request),
    /// Nothing more is to be sent.
    Done(Box<Result<Facts, Failure>>),
}

/// What a device has said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// The address of its service.
    pub url: Url,
    /// Its network interfaces.
    pub interfaces: Vec<Interface>,
    /// What its manufacturer says.
    pub information: Option<Information>,
    /// Its streams.
    pub streams: Vec<Stream>,
    /// True if it refused the credentials.
    pub has_refused_credentials: bool,
    /// The calls that were answered with another error, or not at all.
    pub failed: Vec<Failure>,
    /// The calls that it refuses without credentials.
    open: Vec<Call>,
    /// The seconds by which the device's clock is ahead.
    ahead: i64,
    media: Option<Url>,
}

/// A stream of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stream {
    /// The token of its media profile.
    pub profile: String,
    /// Its address.
    pub uri: String,
}

impl Facts {
    /// Returns whether the device wants credentials for something that was asked for.
    pub fn wants_credentials(&self) -> bool {
        !self.open.is_empty()
    }
}

/// Why a device could not be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The address that was tried last.
    pub url: String,
    /// The name of the call.
    pub call: &'static str,
    /// The reason.
    pub why: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { url, call, why } = self;
        write!(f, "{call} at {url}: {why}")
    }
}

/// How a request is authenticated.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Scheme {
    None,
    Digest(Challenge),
    Token,
}

/// A conversation with a device.
#[derive(Debug)]
pub struct Inquiry {
    random: Rng,
    /// The addresses to try; empty once one of them has answered.
    candidates: VecDeque<Url>,
    calls: VecDeque<Call>,
    facts: Option<Facts>,
    failure: Failure,
    credentials: Option<Credentials>,
    scheme: Scheme,
    /// True if this call was refused with an answer to its own challenge, and with a token.
    has_tried: [bool; 2],
    requests: usize,
}

impl Inquiry {
    /// Begins a conversation without credentials. The first of `candidates` that answers is the device's address.
    pub fn new(candidates: Vec<Url>, wanted: Wanted, seed: u64) -> Self {
        let mut calls = VecDeque::from([Call::NetworkInterfaces, Call::DeviceInformation]);
        if wanted.streams {
            calls.push_back(Call::Capabilities);
        }
        Self {
            random: Rng::with_seed(seed),
            candidates: candidates.into(),
            calls,
            facts: None,
            failure: Failure {
                url: "no address".to_owned(),
                call: Call::SystemDateAndTime.name(),
                why: "the device says no address of its service by http".to_owned(),
            },
            credentials: None,
            scheme: Scheme::None,
            has_tried: [false; 2],
            requests: 0,
        }
    }

    /// Asks once more for what the device refused, with credentials.
    pub fn again(mut facts: Facts, credentials: Credentials, seed: u64) -> Self {
        let calls = std::mem::take(&mut facts.open);
        let mut inquiry = Self::new(vec![], Wanted::default(), seed);
        inquiry.calls = calls.into();
        inquiry.facts = Some(facts);
        inquiry.credentials = Some(credentials);
        inquiry
    }

    /// Returns the next step. `now` is the time of this machine, in seconds since 1970.
    pub fn next(&mut self, now: i64) -> Step {
        self.requests += 1;
        let is_over = self.requests > REQUESTS_MAX;
        let Some(facts) = &mut self.facts else {
            return match self.candidates.front().filter(|_| !is_over) {
                Some(url) => {
                    let url = url.clone();
                    Step::Send(self.request(&Call::SystemDateAndTime, url, now))
                }
                None => Step::Done(Box::new(Err(self.failure.clone()))),
            };
        };
        let Some(call) = self.calls.front().filter(|_| !is_over).cloned() else {
            return Step::Done(Box::new(Ok(facts.clone())));
        };
        let url = match (&call, &facts.media) {
            (Call::Profiles | Call::StreamUri(_), Some(media)) => media.clone(),
            _ => facts.url.clone(),
        };
        Step::Send(self.request(&call, url, now))
    }

    fn request(&mut self, call: &Call, url: Url, now: i64) -> Request {
        let (mut security, mut authorization) = (String::new(), None);
        if let Some(Credentials { user, password }) = &self.credentials {
            match &mut self.scheme {
                Scheme::None => {}
                Scheme::Digest(challenge) => {
                    authorization = Some(challenge.answer(&Authenticated {
                        user,
                        password,
                        method: "POST",
                        path: &url.path,
                        client_nonce: &format!("{:016x}", self.random.u64(..)),
                    }));
                }
                Scheme::Token => {
                    let ahead = self.facts.as_ref().map_or(0, |facts| facts.ahead);
                    let created = Timestamp::from_second(now.saturating_add(ahead));
                    let created = created.unwrap_or_default().to_string();
                    let nonce = self.random.u128(..).to_be_bytes();
                    security = token::security(user, password, &nonce, &created);
                }
            }
        }
        Request {
            url,
            content_type: call.content_type(),
            authorization,
            body: call.envelope(&security),
        }
    }

    /// Takes the answer to the last request. `now` is as for [`Inquiry::next`].
    pub fn answer(&mut self, answer: &Answer<'_>, now: i64) {
        let root = xml::read(answer.body);
        let fault = root.as_ref().and_then(answers::fault);
        let is_refused =
            answer.status == 401 || fault.as_ref().is_some_and(|fault| fault.is_unauthorized);
        let why = fault.map_or_else(
            || format!("the answer has the status {}", answer.status),
            |fault| fault.reason,
        );
        let is_good = (200..300).contains(&answer.status);
        match (&mut self.facts, self.calls.front().cloned(), root) {
            (None, _, root) => {
                let root = root.filter(|_| is_good);
                let response = root
                    .as_ref()
                    .and_then(|r| r.find("GetSystemDateAndTimeResponse"));
                match response {
                    Some(response) => {
                        self.found(answers::time(response).map_or(0, |time| time - now))
                    }
                    // Some devices refuse even this call. They are devices, too.
                    None if is_refused => self.found(0),
                    None if is_good => self.failed("the answer is none of a device"),
                    None => self.failed(&why),
                }
            }
            (Some(_), Some(call), _) if is_refused => self.refused(call, answer.challenges),
            (Some(facts), Some(call), Some(root)) if is_good => {
                self.calls.pop_front();
                self.calls.extend(take(facts, &call, &root));
                self.has_tried = [false; 2];
            }
            (Some(_), Some(_), _) => {
                self.note(why);
                self.calls.pop_front();
                self.has_tried = [false; 2];
            }
            (Some(_), None, _) => {}
        }
    }

    /// Returns whether other addresses follow if the present one does not answer.
    pub fn has_other_addresses(&self) -> bool {
        self.candidates.len() > 1
    }

    /// Takes the failure of the last request: nothing came, or no HTTP.
    pub fn failed(&mut self, why: &str) {
        if self.facts.is_some() {
            self.note(why.to_owned());
            self.calls.clear();
        } else if let Some(url) = self.candidates.pop_front() {
            self.failure.url = url.to_string();
            self.failure.why = why.to_owned();
        }
    }

    fn note(&mut self, why: String) {
        if let (Some(facts), Some(call)) = (&mut self.facts, self.calls.front()) {
            facts.failed.push(Failure {
                url: facts.url.to_string(),
                call: call.name(),
                why,
            });
        }
    }

    fn found(&mut self, ahead: i64) {
        let Some(url) = self.candidates.pop_front() else {
            return;
        };
        self.candidates.clear();
        self.facts = Some(Facts {
            url,
            interfaces: vec![],
            information: None,
            streams: vec![],
            has_refused_credentials: false,
            failed: vec![],
            open: vec![],
            ahead,
            media: None,
        });
    }

    /// Chooses the scheme in which the call is repeated, or gives it up.
    fn refused(&mut self, call: Call, challenges: &[String]) {
        let Some(facts) = &mut self.facts else {
            return;
        };
        if self.credentials.is_none() {
            facts.open.push(call);
            self.calls.pop_front();
            return;
        }
        let [has_tried_digest, has_tried_token] = &mut self.has_tried;
        match Challenge::of(challenges).filter(|_| !*has_tried_digest) {
            Some(challenge) => {
                *has_tried_digest = true;
                self.scheme = Scheme::Digest(challenge);
            }
            None if !*has_tried_token => {
                *has_tried_token = true;
                self.scheme = Scheme::Token;
            }
            None => {
                facts.has_refused_credentials = true;
                self.calls.clear();
            }
        }
    }
}

/// Takes over an answer. Returns the calls that follow from it.
fn take(facts: &mut Facts, call: &Call, root: &Element) -> Vec<Call> {
    match call {
        Call::SystemDateAndTime => {}
        Call::NetworkInterfaces => facts.interfaces = answers::interfaces(root),
        Call::DeviceInformation => facts.information = answers::information(root),
        Call::Capabilities => {
            // The credentials are for this host alone.
            let media = answers::media(root).filter(|media| !media.is_tls);
            facts.media = media.map(|media| Url {
                host: facts.url.host.clone(),
                ..media
            });
            return vec![Call::Profiles; usize::from(facts.media.is_some())];
        }
        Call::Profiles => {
            let profiles = answers::profiles(root).into_iter();
            return profiles.map(Call::StreamUri).collect();
        }
        Call::StreamUri(token) => {
            let profile = answers::plain(token);
            let stream = answers::stream(root).map(|uri| Stream { profile, uri });
            facts.streams.extend(stream);
        }
    }
    vec![]
}

#[cfg(test)]
mod tests;
