//! Prints the devices of Home Assistant's discovery messages at a broker without TLS: `listen localhost:1883`.
#![allow(clippy::print_stdout, reason = "it is a program")]
use petiole_mqtt::{Directory, Event, Login, Protocol, Rule, Session};
use std::{
    error::Error,
    io::{Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

fn main() -> Result<(), Box<dyn Error>> {
    let broker = std::env::args().nth(1).ok_or("listen HOST:PORT")?;
    let mut socket = TcpStream::connect(broker)?;
    socket.set_read_timeout(Some(Duration::from_secs(1)))?;
    let login = Login {
        protocol: Protocol::V5,
        client_id: "listen".to_owned(),
        user: None,
        password: None,
    };
    let prefix = "homeassistant".to_owned();
    let mut directory = Directory::new(Rule::HomeAssistant { prefix });
    // A program that runs for longer passes the time since its start.
    let now = Duration::ZERO;
    let mut session = Session::start(&login, now);
    for filter in directory.filters() {
        session.subscribe(filter);
    }
    let mut bytes = vec![0; 65536];
    loop {
        socket.write_all(&session.turn(now)?.send)?;
        let Ok(count @ 1..) = socket.read(&mut bytes) else {
            return Ok(());
        };
        session.receive(&bytes[..count], |event| {
            if let Event::Message { topic, payload } = event {
                directory.hear(topic, payload);
            }
        })?;
        for (topic, is_watched) in directory.take_topics() {
            if is_watched {
                session.subscribe(topic);
            } else {
                session.unsubscribe(&topic);
            }
        }
        for id in directory.take_changes() {
            match directory.device(&id) {
                Some(found) => println!("{id}: {:?}", found.facts.iter().collect::<Vec<_>>()),
                None => println!("{id} is not available"),
            }
        }
    }
}
