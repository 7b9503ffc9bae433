//! libmdns NAME TYPE PORT KEY=VALUE: announces a service by libmdns until a signal ends the process.
use std::{env, thread};

fn main() {
    let all: Vec<String> = env::args().skip(1).collect();
    let [name, kind, port, txt @ ..] = all.as_slice() else {
        panic!("libmdns NAME TYPE PORT KEY=VALUE");
    };
    let port = port.parse().expect("a port");
    let txt: Vec<&str> = txt.iter().map(String::as_str).collect();
    let responder = libmdns::Responder::new();
    let _service = responder.register(kind, name, port, &txt);
    loop {
        thread::park();
    }
}
