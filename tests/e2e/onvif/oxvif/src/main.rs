//! Mock cameras of oxvif at one address, which want a WS-UsernameToken: `cameras ADDRESS COUNT`.
use oxvif::mock::{DeviceState, Fleet, MockServer};

#[tokio::main]
async fn main() {
    let mut args = std::env::args().skip(1);
    let address: std::net::Ipv4Addr = args.next().unwrap().parse().unwrap();
    let count: usize = args.next().unwrap().parse().unwrap();
    let mut fleet = Fleet::builder().discoverable(address).enforce_auth(true);
    for n in 1..=count {
        let mut state = DeviceState::default();
        state.info.serial_number = format!("OX-{n}");
        let scopes = state.scopes.clone();
        let server = MockServer::builder()
            .bind_ip(address)
            .advertise_ip(address)
            .initial_state(state);
        fleet = fleet.member(
            server,
            format!("urn:uuid:00000000-0000-4000-b000-{n:012}"),
            scopes,
        );
    }
    let fleet = fleet.start().await.unwrap();
    println!("ready {} {:?}", fleet.len(), fleet.device_urls());
    std::future::pending::<()>().await;
}
