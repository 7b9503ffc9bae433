//! Prints the services of a type as they come, change and go, until Ctrl-C:
//! `cargo run --package petiole-mdns --example browse -- _http._tcp`.
#![allow(clippy::print_stdout, reason = "the list is what it is for")]
use petiole_mdns::{Interfaces, Mdns, Name, Service, Wanted};
use std::{collections::BTreeMap, env, time::Duration};

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let kind = env::args().nth(1).unwrap_or("_http._tcp".to_owned());
    let kind = Name::from_dotted(&format!("{kind}.local")).expect("a type such as _http._tcp");
    let mut browse = Mdns::default().subscribe(Wanted {
        browsed: kind.clone(),
        base: kind,
        interfaces: Interfaces::default(),
        verify: Some(Duration::from_secs(10)),
    });
    let mut known = BTreeMap::new();
    while browse.found.changed().await.is_ok() {
        let services = browse.found.borrow_and_update().services.clone();
        for (name, service) in &services {
            if known.get(name) != Some(service) {
                print(service);
            }
        }
        for name in known.keys().filter(|name| !services.contains_key(name)) {
            println!("{name} is gone");
        }
        known = services;
    }
}

fn print(service: &Service) {
    let addresses = service
        .addresses
        .iter()
        .map(|address| address.ip.to_string());
    let addresses: Vec<String> = addresses.collect();
    println!(
        "{} is {}:{} at {}",
        service.name,
        service.host,
        service.port,
        addresses.join(", ")
    );
    for (key, value) in service.txt_entries() {
        match value {
            Some(value) => println!("    {key}={}", value.escape_ascii()),
            None => println!("    {key}"),
        }
    }
}
