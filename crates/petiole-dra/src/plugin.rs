//! Runs the sockets of a driver: the kubelet finds it, has claims prepared and unprepared by it, and reads the health of its devices.
pub use crate::registration::Registered;
use crate::{
    book::Book,
    driver::Driver,
    earlier::Earlier,
    health::{DeviceHealth, Reports},
    node::Node,
    proto::{
        dra::dra_plugin_server::DraPluginServer,
        health::dra_resource_health_server::DraResourceHealthServer,
    },
    registration::Registrar,
    sockets::{self, Sockets},
    turns::Turns,
};
use futures::Stream;
use kube::Client;
use petiole_base::files;
use petiole_kubelet_api::{
    plugin_registration::registration_server::RegistrationServer,
    uds::{self, Connection, OwnSocket},
};
use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;

/// The interval of the looks whether the sockets are there.
const LOOK: Duration = Duration::from_secs(1);

/// Says where a driver is, and what it is called.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The driver's name in claims and slices, a DNS subdomain of 63 characters at most.
    pub driver: String,
    /// The kubelet's root folder, `/var/lib/kubelet` unless the distribution has another one. Its folders `plugins` and
    /// `plugins_registry` must have the same paths for the driver and for the kubelet.
    pub kubelet_root: PathBuf,
    /// The UID of the driver's Pod. With it, the next version can run beside this one during an update (`maxSurge: 1`, from
    /// Kubernetes 1.33 on); without it, each process replaces the sockets of the one before.
    pub pod_uid: Option<String>,
}

/// A driver with its sockets.
pub struct Plugin<D> {
    settings: Settings,
    driver: D,
    client: Client,
    book: Book,
    health: Option<watch::Receiver<Vec<DeviceHealth>>>,
    registered: watch::Sender<Registered>,
}

impl<D: Driver> Plugin<D> {
    /// Opens the record of prepared claims, in the folder `plugins/<driver>/claims` of the kubelet. Fails if the driver's name is
    /// not valid, or the folder cannot be used; the error names it. The client reads claims.
    pub fn new(settings: Settings, driver: D, client: Client) -> io::Result<Self> {
        if !sockets::is_driver_name(&settings.driver) {
            let message = format!(
                "{:?} is no name of a driver: choose a DNS subdomain of at most 63 characters",
                settings.driver
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        Ok(Self {
            book: Book::of(&settings.kubelet_root, &settings.driver)?,
            settings,
            driver,
            client,
            health: None,
            registered: watch::Sender::default(),
        })
    }

    /// Reports the health of devices: each value is the list of all, as the driver saw them just now.
    #[must_use]
    pub fn with_health(mut self, reports: watch::Receiver<Vec<DeviceHealth>>) -> Self {
        self.health = Some(reports);
        self
    }

    /// Returns what the kubelet says of the registration.
    pub fn registered(&self) -> watch::Receiver<Registered> {
        self.registered.subscribe()
    }

    /// Returns the record of prepared claims.
    pub fn book(&self) -> Book {
        self.book.clone()
    }

    /// Serves until `shutdown`, answers the calls that have begun, and removes the sockets. Fails if a socket cannot be made, or is removed
    /// by somebody else: the kubelet does not find the driver without it. The error names it.
    pub async fn run(self, shutdown: CancellationToken) -> io::Result<()> {
        let Settings {
            driver,
            kubelet_root,
            pod_uid,
        } = self.settings;
        let sockets = Sockets::new(&kubelet_root, &driver, pod_uid.as_deref());
        // The kubelet calls the service as soon as it sees the other socket.
        let (service_file, service) = bind(&sockets.service)?;
        let (registration_file, registration) = bind(&sockets.registration)?;
        let has_health = self.health.is_some();
        let health = self.health.map(|last| {
            DraResourceHealthServer::new(Reports {
                last,
                shutdown: shutdown.clone(),
            })
        });
        let registrar = Registrar::new(&driver, &sockets.service, has_health, self.registered);
        let node = DraPluginServer::new(Node {
            driver: self.driver,
            name: driver,
            client: self.client,
            book: self.book,
            turns: Turns::new(),
        });
        let serve = Server::builder()
            .add_service(node.clone())
            .add_service(Earlier(node))
            .add_optional_service(health.clone())
            .add_optional_service(health.map(Earlier))
            .serve_with_incoming_shutdown(service, shutdown.clone().cancelled_owned());
        let register = Server::builder()
            .add_service(RegistrationServer::new(registrar))
            .serve_with_incoming_shutdown(registration, shutdown.cancelled_owned());
        tokio::select! {
            served = async { tokio::try_join!(serve, register) } => served.map(drop).map_err(io::Error::other),
            () = service_file.removed(LOOK) => Err(removed(&sockets.service)),
            () = registration_file.removed(LOOK) => Err(removed(&sockets.registration)),
        }
    }
}

fn removed(socket: &Path) -> io::Error {
    let message = format!("the socket {} was removed", socket.display());
    io::Error::new(io::ErrorKind::NotFound, message)
}

/// Listens at a path, whose folder is made if it is not there.
fn bind(
    path: &Path,
) -> io::Result<(
    OwnSocket,
    impl Stream<Item = io::Result<Connection>> + Send + use<>,
)> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(|e| files::at(folder, &e))?;
    }
    let incoming = uds::bind(path)?;
    Ok((OwnSocket::new(path), incoming))
}
