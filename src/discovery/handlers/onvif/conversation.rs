//! Asks one camera by HTTP. A conversation has 5 s, and no answer leads to another host.
use super::{
    super::neighbour_table::NeighbourTable,
    credentials::Store,
    details::Details,
    plan::{self, Job, Outcome},
    said::said_mac,
};
use futures::future::OptionFuture;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{Request as HttpRequest, body::Bytes, client::conn::http1, header};
use hyper_util::rt::TokioIo;
use petiole_onvif::{Answer, Facts, Failure, Inquiry, Request, Step, Wanted, limits::DOCUMENT_MAX};
use std::{io, time::Duration};
use tokio::{
    net::TcpStream,
    time::{Instant, timeout_at},
};

/// The time that a camera has for all answers together.
const CAMERA_TIMEOUT: Duration = Duration::from_secs(5);
/// The time that one of several addresses has for its first answer.
const ADDRESS_TIMEOUT: Duration = Duration::from_millis(1500);
/// The most bytes of the head of an answer. Beyond it: it counts as none.
const HEAD_MAX: usize = 16 * 1024;
/// The most headers `WWW-Authenticate` of an answer. Beyond it: further ones are ignored.
const CHALLENGES_MAX: usize = 8;

/// Asks a camera without credentials, and then with them for what it has refused, if the filters select it.
pub(super) async fn ask(
    job: &Job,
    details: &Details,
    store: &Store,
    neighbours: &NeighbourTable,
) -> Outcome {
    let end = Instant::now() + CAMERA_TIMEOUT;
    let wanted = Wanted {
        streams: details.streams,
    };
    let seed = || fastrand::u64(..);
    let inquiry = Inquiry::new(job.urls.clone(), wanted, seed());
    let facts = match converse(inquiry, end).await {
        Ok(facts) => facts,
        failed => {
            return Outcome {
                result: failed,
                mac: None,
            };
        }
    };
    let ip = facts.url.ip();
    let known = OptionFuture::from(ip.map(|ip| neighbours.mac(ip))).await;
    // Some cameras say it without credentials.
    let mac = known.flatten().or_else(|| said_mac(&facts));
    let may_know = plan::takes(details, &job.camera, &facts.url, mac.as_deref());
    let credentials = store
        .of(job.camera.uuid())
        .filter(|_| may_know && facts.wants_credentials());
    let Some(credentials) = credentials else {
        return Outcome {
            result: Ok(facts),
            mac,
        };
    };
    let result = converse(Inquiry::again(facts, credentials.clone(), seed()), end).await;
    let mac = result.as_ref().ok().and_then(said_mac).or(mac);
    Outcome { result, mac }
}

async fn converse(mut inquiry: Inquiry, end: Instant) -> Result<Facts, Failure> {
    let now = || jiff::Timestamp::now().as_second();
    loop {
        let request = match inquiry.next(now()) {
            Step::Send(request) => request,
            Step::Done(done) => return *done,
        };
        let mut limit = end;
        if inquiry.has_other_addresses() {
            limit = limit.min(Instant::now() + ADDRESS_TIMEOUT);
        }
        match timeout_at(limit, post(request)).await {
            Ok(Ok(reply)) => {
                let answer = Answer {
                    status: reply.status,
                    challenges: &reply.challenges,
                    body: &reply.body,
                };
                inquiry.answer(&answer, now());
            }
            Ok(Err(e)) => inquiry.failed(&e.to_string()),
            Err(_) => inquiry.failed("no answer in time"),
        }
    }
}

struct Reply {
    status: u16,
    challenges: Vec<String>,
    body: Bytes,
}

async fn post(request: Request) -> io::Result<Reply> {
    let url = &request.url;
    let address = url
        .socket_address()
        .ok_or_else(|| io::Error::other("its host is no address"))?;
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(HEAD_MAX)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(io::Error::other)?;
    let mut message = HttpRequest::post(url.path.as_str())
        .header(header::HOST, url.authority())
        .header(header::CONTENT_TYPE, request.content_type.as_str())
        .header(header::CONNECTION, "close");
    if let Some(authorization) = &request.authorization {
        message = message.header(header::AUTHORIZATION, authorization);
    }
    let message = message.body(Full::new(Bytes::from(request.body)));
    let message = message.map_err(io::Error::other)?;
    let answer = async {
        let response = sender
            .send_request(message)
            .await
            .map_err(io::Error::other)?;
        let status = response.status().as_u16();
        let all = response.headers().get_all(header::WWW_AUTHENTICATE);
        let challenges = all.iter().take(CHALLENGES_MAX);
        let challenges =
            challenges.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        let challenges = challenges.collect();
        let body = Limited::new(response.into_body(), DOCUMENT_MAX)
            .collect()
            .await;
        let body = body
            .map_err(|e| io::Error::other(e.to_string()))?
            .to_bytes();
        Ok(Reply {
            status,
            challenges,
            body,
        })
    };
    tokio::pin!(connection, answer);
    tokio::select! {
        biased;
        answer = &mut answer => answer,
        // It may have answered before it closed the connection.
        ended = &mut connection => {
            ended.map_err(io::Error::other)?;
            answer.await
        }
    }
}
