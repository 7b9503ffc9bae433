//! Asks a server who it is, and prints its answers: `cargo run --package petiole-opcua --example ask -- opc.tcp://localhost:4840/`
use petiole_opcua::{Client, EndpointUrl, Question};
use std::{
    error::Error,
    io::{Read as _, Write as _, stdout},
    net::TcpStream,
    time::SystemTime,
};

fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1);
    let url: EndpointUrl = url.ok_or("usage: ask opc.tcp://HOST:PORT/")?.parse()?;
    let questions = [
        Question::FindServers,
        Question::GetEndpoints,
        Question::FindServersOnNetwork,
    ];
    let now = SystemTime::UNIX_EPOCH.elapsed()?;
    let (mut client, hello) = Client::start(&url, &questions, now);
    let mut socket = TcpStream::connect((url.host(), url.port()))?;
    socket.write_all(&hello)?;
    let mut bytes = [0; 8192];
    loop {
        let count = socket.read(&mut bytes)?;
        if let (0, Some(failure)) = (count, client.hung_up()) {
            return Err(failure.into());
        }
        let turn = client.receive(&bytes[..count])?;
        socket.write_all(&turn.send)?;
        for answer in turn.answers {
            writeln!(stdout(), "{answer:#?}")?;
        }
        if turn.is_over {
            return Ok(());
        }
    }
}
