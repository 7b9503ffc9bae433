//! Asks one server over TCP, within a time limit. A failure names the step, and what to look at.
use super::super::tcp::{self, Within};
use petiole_opcua::{Answer, Client, EndpointUrl, Question, Step};
use std::{
    io,
    time::{Duration, SystemTime},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// The time that a server has for the whole conversation: lookup, connection, and all answers.
const LIMIT: Duration = Duration::from_secs(5);
/// The time to look up a name of which only its existence is of interest.
const LOOKUP_LIMIT: Duration = Duration::from_secs(2);
const READ_BYTES: usize = 8192;

/// Asks a server. The error is about the host of `url`, which the caller names.
pub(super) async fn ask(url: &EndpointUrl, questions: &[Question]) -> Result<Vec<Answer>, String> {
    let within = Within::new(LIMIT);
    let addresses = tcp::look_up(url.host(), url.port(), within).await?;
    let mut socket = tcp::connect(&addresses, "server", within).await?;
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let (mut client, hello) = Client::start(url, questions, now);
    let talked = within.all(talk(&mut socket, &mut client, hello)).await;
    talked.unwrap_or_else(|seconds| {
        let step = client.step();
        let remedy = remedy(step);
        Err(format!(
            "no whole answer to {step} within {seconds} s: {remedy}"
        ))
    })
}

/// Returns whether this machine knows an address of the host.
pub(super) async fn resolves(host: &str) -> bool {
    let found = tcp::look_up(host, 0, Within::new(LOOKUP_LIMIT)).await;
    found.is_ok_and(|addresses| !addresses.is_empty())
}

async fn talk(
    socket: &mut TcpStream,
    client: &mut Client,
    hello: Vec<u8>,
) -> Result<Vec<Answer>, String> {
    let broken = |step: Step, e: io::Error| {
        format!("the connection broke at {step} ({e}): look at the log of the server")
    };
    let (mut answers, mut bytes) = (vec![], vec![0; READ_BYTES]);
    let mut send = hello;
    loop {
        let sent = socket.write_all(&send).await;
        sent.map_err(|e| broken(client.step(), e))?;
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
        send = turn.send;
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
