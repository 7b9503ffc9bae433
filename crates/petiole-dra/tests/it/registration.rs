//! Registration, health, and the life of the sockets.
use crate::{
    api::Api,
    node::{LIMIT, prepare, registration_socket, socket, start},
};
use petiole_dra::{
    health::{DeviceHealth, Health},
    plugin::Registered,
    proto::health::{
        NodeWatchResourcesRequest, NodeWatchResourcesResponse,
        dra_resource_health_client::DraResourceHealthClient,
    },
};
use petiole_kubelet_api::{
    plugin_registration::{
        InfoRequest, PluginInfo, RegistrationStatus, registration_client::RegistrationClient,
    },
    uds,
};
use std::{path::Path, time::Duration};
use tokio::{sync::watch, time::timeout};
use tonic::{Request, codegen::http::uri::PathAndQuery};

async fn info(path: &Path) -> PluginInfo {
    let mut client = RegistrationClient::new(uds::dial(path).await.unwrap());
    client.get_info(InfoRequest {}).await.unwrap().into_inner()
}

fn report(health: Health) -> Vec<DeviceHealth> {
    vec![DeviceHealth {
        pool: "p".to_owned(),
        device: "x".to_owned(),
        health,
        valid_for: Duration::from_secs(60),
        message: String::new(),
    }]
}

#[tokio::test]
async fn the_kubelet_is_told_what_the_driver_serves_and_says_what_came_of_it() {
    let (dir, api) = (tempfile::tempdir().unwrap(), Api::new());
    let mut driver = start(dir.path(), &api, None, None).await;
    let registration = registration_socket(dir.path(), None);
    let told = info(&registration).await;
    assert_eq!((&*told.r#type, &*told.name), ("DRAPlugin", "d.example"));
    assert_eq!(told.endpoint, socket(dir.path()).to_str().unwrap());
    assert_eq!(
        told.supported_versions,
        ["v1.DRAPlugin", "v1beta1.DRAPlugin"]
    );
    let mut client = RegistrationClient::new(uds::dial(&registration).await.unwrap());
    for (plugin_registered, error, expected) in [
        (
            false,
            "no such version",
            Registered::Refused("no such version".to_owned()),
        ),
        (true, "", Registered::Yes),
    ] {
        let status = RegistrationStatus {
            plugin_registered,
            error: error.to_owned(),
        };
        client.notify_registration_status(status).await.unwrap();
        let seen = driver.registered.wait_for(|state| *state == expected);
        timeout(LIMIT, seen).await.unwrap().unwrap();
    }
    driver.end().await;
}

#[tokio::test]
async fn health_is_streamed_by_both_versions_until_the_driver_ends() {
    let (dir, api) = (tempfile::tempdir().unwrap(), Api::new());
    let (reports, last) = watch::channel(report(Health::Healthy));
    let driver = start(dir.path(), &api, None, Some(last)).await;
    let told = info(&registration_socket(dir.path(), None)).await;
    assert_eq!(
        told.supported_versions[2..],
        ["v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"]
    );
    let mut client = DraResourceHealthClient::new(uds::dial(&socket(dir.path())).await.unwrap());
    let new = client
        .node_watch_resources(NodeWatchResourcesRequest {})
        .await;
    let mut new = new.unwrap().into_inner();
    let mut grpc = tonic::client::Grpc::new(uds::dial(&socket(dir.path())).await.unwrap());
    grpc.ready().await.unwrap();
    let codec =
        tonic_prost::ProstCodec::<NodeWatchResourcesRequest, NodeWatchResourcesResponse>::default();
    let path = PathAndQuery::from_static("/v1alpha1.DRAResourceHealth/NodeWatchResources");
    let old = grpc
        .server_streaming(Request::new(NodeWatchResourcesRequest {}), path, codec)
        .await;
    let mut old = old.unwrap().into_inner();
    let mut seen = vec![];
    for stream in [&mut new, &mut old] {
        let first = timeout(LIMIT, stream.message())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        seen.push(first.devices[0].health);
    }
    reports.send_replace(report(Health::Unhealthy));
    for stream in [&mut new, &mut old] {
        let next = timeout(LIMIT, stream.message())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        seen.push(next.devices[0].health);
        assert_eq!(next.devices[0].health_check_timeout_seconds, 60);
    }
    assert_eq!(seen, [1, 1, 2, 2]);
    // Open streams do not keep the driver from ending.
    driver.end().await;
    assert!(
        timeout(LIMIT, new.message())
            .await
            .unwrap()
            .unwrap()
            .is_none()
    );
}

#[tokio::test]
async fn two_versions_run_side_by_side_and_each_removes_its_own_sockets() {
    let (dir, api) = (tempfile::tempdir().unwrap(), Api::new());
    let old = start(dir.path(), &api, Some("pod-1"), None).await;
    let new = start(dir.path(), &api, Some("pod-2"), None).await;
    let sockets = ["pod-1", "pod-2"].map(|pod| registration_socket(dir.path(), Some(pod)));
    let endpoints = [
        info(&sockets[0]).await.endpoint,
        info(&sockets[1]).await.endpoint,
    ];
    assert_ne!(endpoints[0], endpoints[1]);
    old.end().await;
    assert!(!sockets[0].exists() && !Path::new(&endpoints[0]).exists());
    assert!(sockets[1].exists() && Path::new(&endpoints[1]).exists());
    new.end().await;
    assert!(!sockets[1].exists() && !Path::new(&endpoints[1]).exists());
}

#[tokio::test]
async fn a_process_that_ends_late_leaves_the_sockets_of_the_next_one() {
    let (dir, api) = (tempfile::tempdir().unwrap(), Api::new());
    api.put_claim("good", "u1", &["x"]);
    let first = start(dir.path(), &api, None, None).await;
    let next = start(dir.path(), &api, None, None).await;
    first.end().await;
    assert!(prepare(dir.path(), &[("good", "u1")]).await["u1"].is_ok());
    assert_eq!(next.recorder.calls(), ["prepare u1"]);
    next.end().await;
    assert!(!socket(dir.path()).exists());
}

#[tokio::test]
async fn a_driver_whose_socket_is_removed_ends_with_an_error_that_names_it() {
    let (dir, api) = (tempfile::tempdir().unwrap(), Api::new());
    for socket in [socket(dir.path()), registration_socket(dir.path(), None)] {
        let driver = start(dir.path(), &api, None, None).await;
        std::fs::remove_file(&socket).unwrap();
        let error = driver.failed().await.to_string();
        assert!(error.contains(socket.to_str().unwrap()), "{error}");
    }
}
