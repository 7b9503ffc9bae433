//! Prepare and Unprepare.
use crate::{
    api::Api,
    node::{LIMIT, claims, prepare, socket, start, unprepare},
};
use petiole_dra::proto::dra::{
    Device, NodePrepareResourcesRequest, NodePrepareResourcesResponse,
    dra_plugin_client::DraPluginClient,
};
use petiole_kubelet_api::uds;
use tokio::{task::JoinSet, time::timeout};
use tonic::{Request, codegen::http::uri::PathAndQuery};

fn device(name: &str) -> Device {
    Device {
        request_names: vec!["r".to_owned()],
        pool_name: "p".to_owned(),
        device_name: name.to_owned(),
        cdi_device_ids: vec![format!("v/c={name}")],
        share_id: None,
    }
}

#[tokio::test]
async fn the_failure_of_a_claim_is_its_own() {
    let (dir, api) = (tempfile::tempdir().unwrap(), Api::new());
    api.put_claim("good", "u1", &["x", "y"]);
    api.put_claim("broken", "u2", &["z"]);
    api.put_claim("panicking", "u3", &["w"]);
    api.put_claim("short", "u4", &["v"]);
    api.put_claim("other", "u5", &["u"]);
    let driver = start(dir.path(), &api, None, None).await;
    let wanted = [
        ("good", "u1"),
        ("broken", "u2"),
        ("panicking", "u3"),
        ("short", "u4"),
        ("other", "of-another-time"),
        ("missing", "u6"),
        ("good", "../u7"),
    ];
    let answers = prepare(dir.path(), &wanted).await;
    assert_eq!(answers.len(), 7);
    assert_eq!(answers["u1"], Ok(vec![device("x"), device("y")]));
    for (uid, why) in [
        ("u2", "out of order"),
        ("u3", "the driver panicked"),
        ("u4", "the claim has 1 devices, and the driver prepared 0"),
        ("of-another-time", "was replaced"),
        ("u6", "cannot read ResourceClaim default/missing: not found"),
        ("../u7", "not valid"),
    ] {
        let error = answers[uid].as_ref().unwrap_err();
        assert!(error.contains(why), "{uid}: {error}");
    }
    // The kubelet calls again after its restart.
    driver.recorder.calls();
    let again = prepare(dir.path(), &[("good", "u1")]).await;
    assert_eq!(again["u1"], Ok(vec![device("x"), device("y")]));
    assert_eq!(driver.recorder.calls(), ["prepare u1"]);
    driver.end().await;
}

#[tokio::test]
async fn a_device_is_free_when_its_claim_was_unprepared_also_after_a_restart() {
    let (dir, api) = (tempfile::tempdir().unwrap(), Api::new());
    api.put_claim("stuck", "u1", &["x"]);
    api.put_claim("second", "u2", &["x", "y"]);
    let driver = start(dir.path(), &api, None, None).await;
    assert!(prepare(dir.path(), &[("stuck", "u1")]).await["u1"].is_ok());
    driver.end().await;
    let driver = start(dir.path(), &api, None, None).await;
    let second = prepare(dir.path(), &[("second", "u2")]).await;
    let error = second["u2"].as_ref().unwrap_err();
    assert!(
        error.contains("device x of pool p is still prepared for ResourceClaim default/stuck"),
        "{error}"
    );
    // What failed to be unprepared keeps its device.
    assert_eq!(
        unprepare(dir.path(), &[("stuck", "u1")]).await["u1"],
        "still in use"
    );
    assert!(prepare(dir.path(), &[("second", "u2")]).await["u2"].is_err());
    assert_eq!(driver.recorder.calls(), ["unprepare u1 x"]);
    assert_eq!(unprepare(dir.path(), &[("renamed", "u1")]).await["u1"], "");
    assert!(prepare(dir.path(), &[("second", "u2")]).await["u2"].is_ok());
    // A claim that was never prepared is unprepared like any other.
    assert_eq!(unprepare(dir.path(), &[("never", "u9")]).await["u9"], "");
    assert_eq!(
        driver.recorder.calls(),
        ["unprepare u1 x", "prepare u2", "unprepare u9 "]
    );
    driver.end().await;
}

#[tokio::test]
async fn a_claim_that_was_allocated_anew_is_unprepared_first() {
    let (dir, api) = (tempfile::tempdir().unwrap(), Api::new());
    let driver = start(dir.path(), &api, None, None).await;
    api.put_claim("c", "u1", &["x"]);
    assert!(prepare(dir.path(), &[("c", "u1")]).await["u1"].is_ok());
    api.put_claim("c", "u1", &["y"]);
    assert_eq!(
        prepare(dir.path(), &[("c", "u1")]).await["u1"],
        Ok(vec![device("y")])
    );
    assert_eq!(
        driver.recorder.calls(),
        ["prepare u1", "unprepare u1 x", "prepare u1"]
    );
    // The first device is free.
    api.put_claim("d", "u2", &["x"]);
    assert!(prepare(dir.path(), &[("d", "u2")]).await["u2"].is_ok());
    driver.end().await;
}

#[tokio::test]
async fn a_call_that_hangs_holds_up_no_other_and_is_given_up_with_the_kubelet() {
    let (dir, api) = (tempfile::tempdir().unwrap(), Api::new());
    api.put_claim("endless", "u1", &["x"]);
    api.put_claim("good", "u2", &["y"]);
    let driver = start(dir.path(), &api, None, None).await;
    let mut client = DraPluginClient::new(uds::dial(&socket(dir.path())).await.unwrap());
    let request = NodePrepareResourcesRequest {
        claims: claims(&[("endless", "u1")]),
    };
    let mut endless = JoinSet::new();
    endless.spawn(async move { client.node_prepare_resources(request).await });
    timeout(LIMIT, async {
        while driver.recorder.calls() != ["prepare u1"] {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    assert!(prepare(dir.path(), &[("good", "u2")]).await["u2"].is_ok());
    // The kubelet gives up, and deletes the Pod. The same claim is not called twice at a time.
    drop(endless);
    assert_eq!(unprepare(dir.path(), &[("endless", "u1")]).await["u1"], "");
    assert_eq!(driver.recorder.calls(), ["prepare u2", "unprepare u1 x"]);
    driver.end().await;
}

#[tokio::test]
async fn a_kubelet_of_an_earlier_version_is_answered() {
    let (dir, api) = (tempfile::tempdir().unwrap(), Api::new());
    api.put_claim("good", "u1", &["x"]);
    let driver = start(dir.path(), &api, None, None).await;
    let mut grpc = tonic::client::Grpc::new(uds::dial(&socket(dir.path())).await.unwrap());
    grpc.ready().await.unwrap();
    let codec = tonic_prost::ProstCodec::<NodePrepareResourcesRequest, NodePrepareResourcesResponse>::default();
    let path = "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/NodePrepareResources";
    let request = Request::new(NodePrepareResourcesRequest {
        claims: claims(&[("good", "u1")]),
    });
    let response = grpc
        .unary(request, PathAndQuery::from_static(path), codec)
        .await
        .unwrap();
    assert_eq!(response.into_inner().claims["u1"].devices, [device("x")]);
    // A call has a bounded number of claims.
    let mut client = DraPluginClient::new(uds::dial(&socket(dir.path())).await.unwrap());
    let many: Vec<_> = (0..1025).map(|_| ("good", "u1")).collect();
    let request = NodePrepareResourcesRequest {
        claims: claims(&many),
    };
    let refused = client.node_prepare_resources(request).await.unwrap_err();
    assert_eq!(refused.message(), "1025 claims, 1024 at most");
    driver.end().await;
}
