//! Tests the opcua handler with a server that announces itself, by real multicast packets on `lo`.
use crate::support::{
    mdns_publisher::{Announced, Publisher},
    opcua_server::OpcuaServer,
    running_discovery::RunningDiscovery,
};
use petiole_opcua::{Application, ApplicationType, Server};

#[tokio::test]
async fn a_server_that_announces_itself_is_asked_and_found_by_its_own_path_and_goes_with_its_service()
 {
    let press = OpcuaServer::start(|port| Server {
        applications: vec![Application {
            name: "press".to_owned(),
            kind: ApplicationType::SERVER,
            discovery_urls: vec![format!("opc.tcp://127.0.0.1:{port}/UA/Press")],
            ..Application::default()
        }],
        ..Server::default()
    })
    .await;
    let mut announced = Announced::new("Press", "_opcua-tcp._tcp").txt(&[b"path=/UA", b"caps=DA"]);
    announced.port = press.port;
    let service = announced.fullname();
    let publisher = Publisher::start(vec![announced]);
    let mut running = RunningDiscovery::start(
        "opcua",
        "opcuaDiscoveryMethod: {mdns: {interfaces: {allow: [lo]}}}",
    );
    let id = format!("opc.tcp://127.0.0.1:{}/UA/Press", press.port);
    let device = running.device(&id).await;
    assert_eq!(device.properties["OPCUA_APPLICATION_NAME"], "press");
    let set = running.until("complete", |set| set.complete).await;
    assert_eq!((set.devices.len(), set.problems.len()), (1, 0));
    publisher.goodbye(&service);
    running.gone(&id).await;
    running.stop().await;
}
