//! Serves the registration socket: the kubelet asks for the name and the socket of the driver, and says whether it took it.
use petiole_kubelet_api::plugin_registration::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
    registration_server::Registration,
};
use std::path::Path;
use tokio::sync::watch;
use tonic::{Request, Response, Status};
use tracing::{info, warn};

/// The services of each driver, under the names that the kubelet knows: those of gRPC, without the long package. It takes the first
/// one that it knows.
const SERVICES: [&str; 2] = ["v1.DRAPlugin", "v1beta1.DRAPlugin"];
/// The services of drivers that report health.
const HEALTH_SERVICES: [&str; 2] = ["v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"];

/// What the kubelet said last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Registered {
    /// Nothing yet.
    #[default]
    Pending,
    /// It calls the driver from now on.
    Yes,
    /// It did not take the driver, for this reason. It asks again by itself.
    Refused(String),
}

/// The service of one driver.
pub(crate) struct Registrar {
    info: PluginInfo,
    state: watch::Sender<Registered>,
}

impl Registrar {
    pub(crate) fn new(
        driver: &str,
        endpoint: &Path,
        has_health: bool,
        state: watch::Sender<Registered>,
    ) -> Self {
        let health = HEALTH_SERVICES.iter().filter(|_| has_health);
        let info = PluginInfo {
            r#type: "DRAPlugin".to_owned(),
            name: driver.to_owned(),
            endpoint: endpoint.to_string_lossy().into_owned(),
            supported_versions: SERVICES
                .iter()
                .chain(health)
                .map(|name| (*name).to_owned())
                .collect(),
        };
        Self { info, state }
    }
}

#[tonic::async_trait]
impl Registration for Registrar {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(self.info.clone()))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let status = request.into_inner();
        let driver = &self.info.name;
        self.state.send_replace(if status.plugin_registered {
            info!(driver, "registered with the kubelet");
            Registered::Yes
        } else {
            warn!(
                driver,
                error = status.error,
                "the kubelet refused the driver; it asks again"
            );
            Registered::Refused(status.error)
        });
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
