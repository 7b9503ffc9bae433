//! The stream of one endpoint: it is dialled, read, and dialled again when it ends.
use super::{
    endpoint::{Endpoint, address},
    host_paths::HandlerPaths,
    isolated, listing,
    plan::Event,
};
use crate::{
    backoff::Backoff,
    model::{
        device::{DeviceId, DeviceSet},
        limits,
    },
    proto::discovery::{
        ByteData, DeviceList, DiscoverRequest, discovery_handler_client::DiscoveryHandlerClient,
    },
};
use petiole_base::collect::CollectMap as _;
use petiole_kubelet_api::uds;
use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    mem,
    path::Path,
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep, timeout},
};
use tonic::{Code, Status, transport::Channel};

const DIAL_TIMEOUT: Duration = Duration::from_secs(5);
const FIRST_RETRY: Duration = Duration::from_millis(500);
const LAST_RETRY: Duration = Duration::from_secs(30);
/// The same two for an isolated process, which does not register: nothing else says that it has started.
const FIRST_ISOLATED_RETRY: Duration = Duration::from_millis(50);
const LAST_ISOLATED_RETRY: Duration = Duration::from_secs(1);
/// The most bytes of a list. It is the limit of gRPC's own clients, and of Akri's agent. Beyond it: it is no list
/// (`DiscoveryFailed`).
pub(super) const LIST_MAX: usize = 4 << 20;
/// A handler that sends lists without a pause gets a tenth of a core at most.
const REST: u32 = 9;
const SHORTEST_REST: Duration = Duration::from_millis(20);
const LONGEST_REST: Duration = Duration::from_secs(5);
/// The longest error of a handler, in bytes. Beyond it: the end is cut off.
const WHY_MAX: usize = 512;
/// The bytes of a problem in which values of properties are looked for: those that are shown, and a value that begins there.
const PROBLEM_READ: usize = WHY_MAX + 4 * limits::PROPERTY_VALUE_MAX;
/// The shortest value of a property that is replaced in an error: shorter ones are parts of words.
const SHORTEST_SECRET: usize = 4;

/// The ids of all devices that have an Instance.
pub(super) type KnownDevices = watch::Sender<Arc<BTreeSet<DeviceId>>>;

pub(super) struct Stream {
    pub(super) endpoint: Endpoint,
    pub(super) request: DiscoverRequest,
    pub(super) paths: HandlerPaths,
    /// For a built-in handler in an isolated process.
    pub(super) isolated: Option<Isolated>,
    /// The number of registrations of the endpoint.
    pub(super) registered: watch::Receiver<u64>,
    pub(super) events: mpsc::Sender<(Endpoint, Event)>,
}

/// What a built-in handler in an isolated process is told beside the question.
pub(super) struct Isolated {
    /// The devices that it should prefer.
    pub(super) known_devices: KnownDevices,
    /// The Configuration for which it is asked, as text.
    pub(super) configuration: String,
}

/// Returns what a handler is asked.
pub(super) fn request(details: &str, properties: &BTreeMap<String, String>) -> DiscoverRequest {
    let property = |(name, value): (&String, &String)| {
        let vec = Some(value.clone().into_bytes());
        (name.clone(), ByteData { vec })
    };
    DiscoverRequest {
        discovery_details: details.to_owned(),
        discovery_properties: properties.iter().map(property).collect_map(),
        ..DiscoverRequest::default()
    }
}

impl Stream {
    /// Runs until it is dropped. A handler that registers again has started again, and is asked at once.
    pub(super) async fn run(mut self) {
        let mut backoff = match &self.isolated {
            Some(_) => Backoff::new(FIRST_ISOLATED_RETRY, LAST_ISOLATED_RETRY),
            None => Backoff::new(FIRST_RETRY, LAST_RETRY),
        };
        loop {
            self.registered.borrow_and_update();
            let begun = Instant::now();
            let event = self.listen().await;
            if begun.elapsed() > LAST_RETRY {
                backoff.reset(); // this is another failure, not the next of a row
            }
            let is_refusal = matches!(event, Event::Refuses(_));
            self.say(event).await;
            let wait = async {
                match is_refusal {
                    // Only other details, or another handler, change that.
                    true if self.isolated.is_none() => std::future::pending().await,
                    // An isolated process does not register when it was updated.
                    true => sleep(LAST_RETRY).await,
                    false => sleep(backoff.next_wait()).await,
                }
            };
            tokio::select! {
                () = wait => {}
                _ = self.registered.changed() => backoff.reset(),
            }
        }
    }

    /// Reads lists until the stream ends, and returns how it ended.
    async fn listen(&mut self) -> Event {
        let dialled = match (&self.endpoint, &self.isolated) {
            (Endpoint::Unix(socket), Some(_)) => {
                let socket = Path::new(socket);
                if let Err(e) = isolated::check_place(socket) {
                    return Event::Broken(format!("is not asked: {e}"));
                }
                timeout(DIAL_TIMEOUT, uds::dial_with_pings(socket)).await
            }
            (endpoint, _) => timeout(DIAL_TIMEOUT, dial(endpoint)).await,
        };
        let channel = match dialled {
            Ok(Ok(channel)) => channel,
            Ok(Err(e)) => return Event::Broken(format!("cannot be reached: {}", causes(&e))),
            Err(_) => return Event::Broken(format!("cannot be reached in {DIAL_TIMEOUT:?}")),
        };
        let mut request = self.request.clone();
        if let Some(isolated) = &self.isolated {
            request.configuration.clone_from(&isolated.configuration);
            let known = isolated.known_devices.borrow();
            request.known_devices = known.iter().map(|id| id.as_str().to_owned()).collect();
        }
        let mut client = DiscoveryHandlerClient::new(channel).max_decoding_message_size(LIST_MAX);
        // There is no time limit: many servers answer together with the first list, whenever that is.
        let mut lists = match client.discover(request).await {
            Ok(lists) => lists.into_inner(),
            Err(status) => return ended(&status, &self.request),
        };
        loop {
            let list = match lists.message().await {
                Ok(Some(list)) => list,
                Ok(None) => return Event::Broken("ended its stream".to_owned()),
                Err(status) => return ended(&status, &self.request),
            };
            let begun = Instant::now();
            let devices = devices(list, &self.paths, &self.request);
            self.say(Event::Says(devices)).await;
            sleep((begun.elapsed() * REST).clamp(SHORTEST_REST, LONGEST_REST)).await;
        }
    }

    async fn say(&self, event: Event) {
        if self
            .events
            .send((self.endpoint.clone(), event))
            .await
            .is_err()
        {
            // The discovery has ended, and drops this task.
            std::future::pending::<()>().await;
        }
    }
}

/// The devices of a list. Its problems show no value of a property.
fn devices(mut list: DeviceList, paths: &HandlerPaths, request: &DiscoverRequest) -> DeviceSet {
    // The handler's own words first: a value of which the end is cut off is no longer found.
    for problem in &mut list.problems {
        let begin = limits::cut(mem::take(problem), PROBLEM_READ);
        *problem = without_values(&begin, request);
    }
    let mut devices = listing::devices(list, paths);
    for problem in &mut devices.problems {
        *problem = without_values(problem, request);
    }
    devices
}

fn ended(status: &Status, request: &DiscoverRequest) -> Event {
    let message = without_values(status.message(), request);
    let message = listing::one_line(&message, WHY_MAX);
    if status.code() == Code::InvalidArgument {
        return Event::Refuses(message);
    }
    Event::Broken(format!("ended its stream: {:?}: {message}", status.code()))
}

/// Returns the message of a handler without the values of properties, because it may be logged and is shown to users.
fn without_values(message: &str, request: &DiscoverRequest) -> String {
    let values = request.discovery_properties.values();
    let values = values.filter_map(|value| str::from_utf8(value.vec.as_deref()?).ok());
    let mut secrets: Vec<&str> = values.filter(|v| v.len() >= SHORTEST_SECRET).collect();
    // One may be the beginning of another.
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    let hide = |message: String, secret: &&str| message.replace(*secret, "(hidden)");
    secrets.iter().fold(message.to_owned(), hide)
}

async fn dial(endpoint: &Endpoint) -> Result<Channel, tonic::transport::Error> {
    match endpoint {
        Endpoint::Unix(path) => uds::dial(Path::new(path)).await,
        Endpoint::Network(uri) => {
            let (host, port) = address(uri).expect("the registration was accepted with it");
            uds::dial_tcp(uri, host, port).await
        }
    }
}

/// The causes of an error, in one line: the outermost says only that something failed.
fn causes(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    listing::one_line(&cause.to_string(), WHY_MAX)
}

#[cfg(test)]
mod tests {
    use super::{super::host_paths::HostPaths, *};
    use crate::proto::discovery as v0;
    use std::{fs, os::unix::fs::PermissionsExt as _};

    fn asked() -> DiscoverRequest {
        let properties = [("a", "hunter"), ("b", "hunter2"), ("on", "yes")];
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        request("details", &properties.map(owned).into())
    }

    /// Returns how the stream ends of an isolated handler that accepts connections and never answers.
    async fn end_of_hung(folder_mode: u32) -> Event {
        let dir = tempfile::tempdir().unwrap();
        let mode = fs::Permissions::from_mode(folder_mode);
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let folder = dir.path().join("cam");
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, mode).unwrap();
        let socket = folder.join("cam.sock");
        let _hung = uds::listener(&socket).unwrap();
        let nothing = || Arc::new([].into_iter().collect());
        let mut stream = Stream {
            endpoint: Endpoint::Unix(socket.to_string_lossy().into_owned()),
            request: asked(),
            paths: HandlerPaths {
                mounts: nothing(),
                device_nodes: nothing(),
            },
            isolated: Some(Isolated {
                known_devices: KnownDevices::default(),
                configuration: String::new(),
            }),
            registered: watch::channel(0).1,
            events: mpsc::channel(1).0,
        };
        let ended = timeout(Duration::from_secs(60), stream.listen()).await;
        ended.expect("it is noticed")
    }

    #[tokio::test(start_paused = true)]
    async fn an_isolated_handler_that_hangs_is_broken() {
        let Event::Broken(why) = end_of_hung(0o770).await else {
            panic!("it is broken")
        };
        assert!(why.contains("ended its stream"), "{why}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_isolated_handler_is_not_asked_where_all_users_may_serve() {
        let begun = Instant::now();
        let Event::Broken(why) = end_of_hung(0o777).await else {
            panic!("it is broken")
        };
        assert!(
            why.contains("is not asked") && why.contains("chmod o-w"),
            "{why}"
        );
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }

    #[test]
    fn an_error_of_a_handler_shows_no_value_of_a_property() {
        let status = Status::invalid_argument("yes, hunter2 is wrong: hunter2");
        let shown = "yes, (hidden) is wrong: (hidden)".to_owned();
        assert_eq!(ended(&status, &asked()), Event::Refuses(shown));
        let status = Status::unavailable("no login as hunter2");
        let shown = "ended its stream: Unavailable: no login as (hidden)".to_owned();
        assert_eq!(ended(&status, &asked()), Event::Broken(shown));
    }

    #[test]
    fn a_list_of_a_handler_shows_no_value_of_a_property() {
        let device = |id: String| v0::Device {
            id,
            ..v0::Device::default()
        };
        let list = DeviceList {
            problems: vec![
                "door: 401 for hunter2".to_owned(),
                // The value ends beyond what is shown.
                format!("{}hunter2", "x".repeat(WHY_MAX - 6)),
                "x".repeat(10 * PROBLEM_READ),
            ],
            devices: vec![device("hunter2\n".to_owned())],
            ..DeviceList::default()
        };
        let nothing = HandlerPaths::from(HostPaths::none());
        let set = devices(list, &nothing, &asked());
        assert_eq!(set.problems[0], "door: 401 for (hidden)");
        assert!(!set.problems[1].contains("hunt"), "{}", set.problems[1]);
        assert_eq!(set.problems[2].len(), WHY_MAX);
        assert!(set.problems[3].contains("device \"(hidden)\""), "{set:?}");
    }

    #[test]
    fn no_debug_output_of_a_request_has_a_value() {
        let printed = format!("{:?} {:#?}", asked(), asked());
        assert!(printed.contains("details"), "{printed}");
        assert!(printed.contains("(hidden)"), "{printed}");
        let bytes = format!("{:?}", b"hunter2");
        assert!(
            !printed.contains("hunter2") && !printed.contains(&bytes),
            "{printed}"
        );
    }
}
