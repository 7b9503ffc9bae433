//! Asks one server over TCP, within a time limit. A failure names the step, and what to look at.
use super::super::tcp::{self, Opening};
use petiole_opcua::{Answer, Client, EndpointUrl, Question, Step};
use std::{
    io,
    time::{Duration, SystemTime},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::lookup_host,
    time::timeout,
};

/// The time that a server has for the whole conversation: lookup, connection, and all answers.
const LIMIT: Duration = Duration::from_secs(5);
/// The time to look up a name of which only its existence is of interest.
const LOOKUP_LIMIT: Duration = Duration::from_secs(2);
const READ_BYTES: usize = 8192;

/// The step at which a conversation is.
#[derive(Clone, Copy)]
enum Doing {
    Open(Opening),
    Talk(Step),
}

/// Asks a server. The error is about the host of `url`, which the caller names.
pub(super) async fn ask(url: &EndpointUrl, questions: &[Question]) -> Result<Vec<Answer>, String> {
    let mut doing = Doing::Open(Opening::LookUp);
    let talked = timeout(LIMIT, talk(url, questions, &mut doing)).await;
    talked.unwrap_or_else(|_late| Err(late(doing)))
}

/// Returns whether this machine knows an address of the host.
pub(super) async fn resolves(host: &str) -> bool {
    let found = timeout(LOOKUP_LIMIT, lookup_host((host, 0))).await;
    let addresses = found.ok().and_then(Result::ok);
    addresses.is_some_and(|mut addresses| addresses.next().is_some())
}

async fn talk(
    url: &EndpointUrl,
    questions: &[Question],
    doing: &mut Doing,
) -> Result<Vec<Answer>, String> {
    let addresses = tcp::look_up(url.host(), url.port()).await?;
    *doing = Doing::Open(Opening::Connect);
    let mut socket = tcp::connect(&addresses, "server").await?;
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let (mut client, hello) = Client::start(url, questions, now);
    *doing = Doing::Talk(client.step());
    let broken = |step: Step, e: io::Error| {
        format!("the connection broke at {step} ({e}): look at the log of the server")
    };
    let sent = socket.write_all(&hello).await;
    sent.map_err(|e| broken(client.step(), e))?;
    let mut answers = vec![];
    let mut bytes = vec![0; READ_BYTES];
    loop {
        let count = socket.read(&mut bytes).await;
        let count = count.map_err(|e| broken(client.step(), e))?;
        if let (0, Some(failure)) = (count, client.hung_up()) {
            return Err(format!("{failure}: look at the log of the server"));
        }
        let turn = client.receive(&bytes[..count]);
        let turn = turn.map_err(|failure| format!("{failure}: {}", remedy(failure.step)))?;
        answers.extend(turn.answers);
        if turn.is_over {
            // All is answered. A server that does not take the farewell any more has answered all the same.
            drop(socket.write_all(&turn.send).await);
            return Ok(answers);
        }
        *doing = Doing::Talk(client.step());
        let sent = socket.write_all(&turn.send).await;
        sent.map_err(|e| broken(client.step(), e))?;
    }
}

/// Returns what to look at when a server has said something else than an answer.
fn remedy(step: Step) -> &'static str {
    match step {
        Step::Hello => "is it the port of an OPC UA server, and does it serve this address?",
        Step::Open => "the server must allow discovery without security (SecurityPolicy None)",
        Step::Ask(_) | Step::Closed => "look at the log of the server",
    }
}

fn late(doing: Doing) -> String {
    match doing {
        Doing::Open(opening) => opening.late(LIMIT),
        Doing::Talk(step) => {
            let (seconds, remedy) = (LIMIT.as_secs(), remedy(step));
            format!("no whole answer to {step} within {seconds} s: {remedy}")
        }
    }
}
