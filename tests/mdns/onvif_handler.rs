//! The handler `onvif` and cameras on `lo`: WS-Discovery by multicast, and SOAP over HTTP.
use crate::support::running_discovery::RunningDiscovery;
use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::post,
};
use petiole::model::device::DeviceSet;
use socket2::{Domain, InterfaceIndexOrAddress, Socket, Type};
use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex},
};
use tokio::{
    net::{TcpListener, UdpSocket},
    task::JoinSet,
};

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 255, 255, 250);
/// A text that is nowhere else.
pub(crate) const PASSWORD: &str = "hunter2-Zq8";

/// The requests that a camera has received, each with its operation and whether it had credentials.
type Seen = Arc<Mutex<Vec<(String, bool)>>>;

/// A camera at an address of `lo`. It ends with this value.
pub(crate) struct Camera {
    uuid: &'static str,
    answers_from: Arc<UdpSocket>,
    seen: Seen,
    tasks: JoinSet<()>,
}

fn envelope(kind: &str, uuid: &str, xaddrs: &str) -> Vec<u8> {
    format!(
        "<e xmlns:dn='http://www.onvif.org/ver10/network/wsdl'><Header/><Body><{kind}><EndpointReference><Address>urn:uuid:{uuid}</Address>\
         </EndpointReference><Types>dn:NetworkVideoTransmitter</Types><Scopes>onvif://www.onvif.org/name/Porch</Scopes>\
         <XAddrs>{xaddrs}</XAddrs></{kind}></Body></e>"
    )
    .into_bytes()
}

fn listening() -> UdpSocket {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket.set_multicast_all_v4(false).unwrap();
    socket
        .bind(&SocketAddr::from((GROUP, 3702)).into())
        .unwrap();
    let lo = InterfaceIndexOrAddress::Address(Ipv4Addr::LOCALHOST);
    socket.join_multicast_v4_n(&GROUP, &lo).unwrap();
    UdpSocket::from_std(socket.into()).unwrap()
}

impl Camera {
    /// `host` is the host that it says in its address, which may be wrong.
    pub(crate) async fn start(uuid: &'static str, at: [u8; 4], host: &str) -> Self {
        let seen = Seen::default();
        let service = TcpListener::bind(SocketAddr::from((at, 0))).await.unwrap();
        let port = service.local_addr().unwrap().port();
        let xaddrs = format!("http://{host}:{port}/onvif/device_service");
        let app = Router::new()
            .route("/onvif/device_service", post(answer))
            .with_state(seen.clone());
        let answers_from = Arc::new(UdpSocket::bind(SocketAddr::from((at, 0))).await.unwrap());
        let (heard, from) = (listening(), answers_from.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { axum::serve(service, app).await.unwrap() });
        tasks.spawn(async move {
            let mut buffer = [0; 4096];
            loop {
                let (length, source) = heard.recv_from(&mut buffer).await.unwrap();
                if String::from_utf8_lossy(&buffer[..length]).contains("Probe>") {
                    let message = envelope("ProbeMatch", uuid, &xaddrs);
                    from.send_to(&message, source).await.unwrap();
                }
            }
        });
        Self {
            uuid,
            answers_from,
            seen,
            tasks,
        }
    }

    async fn leave(mut self) {
        self.tasks.shutdown().await;
        let bye = envelope("Bye", self.uuid, "");
        self.answers_from.set_multicast_loop_v4(true).unwrap();
        socket2::SockRef::from(&*self.answers_from)
            .set_multicast_if_v4(&Ipv4Addr::LOCALHOST)
            .unwrap();
        self.answers_from
            .send_to(&bye, (GROUP, 3702))
            .await
            .unwrap();
    }
}

async fn answer(State(seen): State<Seen>, headers: HeaderMap, body: Bytes) -> Response {
    let text = String::from_utf8(body.to_vec()).unwrap();
    assert!(!text.contains(PASSWORD) && !format!("{headers:?}").contains(PASSWORD));
    let (_, operation) = text.split_once("<t:").unwrap();
    let operation = operation.split([' ', '>']).next().unwrap().to_owned();
    let is_known = text.contains("PasswordDigest");
    seen.lock().unwrap().push((operation.clone(), is_known));
    let body = match operation.as_str() {
        "GetSystemDateAndTime" => "<GetSystemDateAndTimeResponse/>",
        _ if !is_known => {
            let fault =
                "<e><Body><Fault><Code><Value>ter:NotAuthorized</Value></Code></Fault></Body></e>";
            return (StatusCode::BAD_REQUEST, fault).into_response();
        }
        "GetDeviceInformation" => {
            "<GetDeviceInformationResponse><SerialNumber>S7</SerialNumber></GetDeviceInformationResponse>"
        }
        _ => {
            "<GetNetworkInterfacesResponse><NetworkInterfaces><Info><HwAddress>00-11-22-AA-BB-CC</HwAddress></Info></NetworkInterfaces></GetNetworkInterfacesResponse>"
        }
    };
    format!("<e><Body>{body}</Body></e>").into_response()
}

fn discovery(details: &str) -> RunningDiscovery {
    let properties = [
        ("username_default", "admin"),
        ("password_default", PASSWORD),
    ];
    let properties: BTreeMap<String, String> = properties
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect();
    let details = format!("{details}\ninterfaces: {{allow: [lo]}}");
    RunningDiscovery::start_with("onvif", &details, &properties)
}

fn has(set: &DeviceSet, uuid: &str) -> bool {
    set.devices
        .values()
        .any(|device| device.properties["ONVIF_DEVICE_UUID"] == uuid)
}

#[tokio::test]
async fn a_camera_whose_address_is_wrong_is_found_asked_with_credentials_and_gone_at_its_bye() {
    let uuid = "00000000-0000-4000-a000-000000000001";
    // A documentation address: nothing answers there.
    let camera = Camera::start(uuid, [127, 0, 7, 1], "192.0.2.1").await;
    let mut discovery = discovery(&format!("uuids: {{items: [{uuid}]}}\nidentity: serial"));
    let set = discovery
        .until("found", |set| has(set, uuid) && set.complete)
        .await;
    let device = set.devices.values().next().unwrap();
    assert_eq!(device.id.as_str(), "S7");
    let property = |name: &str| device.properties[&format!("ONVIF_DEVICE_{name}")].as_str();
    assert_eq!(property("IP_ADDRESS"), "127.0.7.1");
    assert_eq!(property("MAC_ADDRESS"), "00:11:22:aa:bb:cc");
    assert_eq!(property("NAME"), "Porch");
    assert!(property("SERVICE_URL").starts_with("http://127.0.7.1:"));
    camera.leave().await;
    discovery.until("gone", |set| !has(set, uuid)).await;
    discovery.stop().await;
}

#[tokio::test]
async fn a_camera_that_a_filter_leaves_out_is_never_asked_and_one_without_a_known_mac_gets_no_credentials()
 {
    let (left_out, other) = (
        "00000000-0000-4000-a000-000000000002",
        "00000000-0000-4000-a000-000000000003",
    );
    let first = Camera::start(left_out, [127, 0, 7, 2], "127.0.7.2").await;
    let second = Camera::start(other, [127, 0, 7, 3], "127.0.7.3").await;
    let details =
        format!("uuids: {{items: [{other}]}}\nmacAddresses: {{items: ['00:11:22:aa:bb:cc']}}");
    let mut discovery = discovery(&details);
    let set = discovery
        .until("a problem", |set| set.complete && !set.problems.is_empty())
        .await;
    assert!(set.devices.is_empty());
    assert!(
        set.problems[0].contains("MAC addresses are not known"),
        "{:?}",
        set.problems
    );
    assert!(first.seen.lock().unwrap().is_empty());
    let seen = second.seen.lock().unwrap().clone();
    assert!(
        !seen.is_empty() && seen.iter().all(|(_, is_known)| !is_known),
        "{seen:?}"
    );
    discovery.stop().await;
}
