//! Registers resources with the kubelet, all over one connection.
use crate::agent::{kubelet_folder::KUBELET_SOCKET, values::KubeletSocket};
use anyhow::Context as _;
use petiole_kubelet_api::{
    device_plugin::{RegisterRequest, registration_client::RegistrationClient},
    uds,
};
use std::{
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::Duration,
};
use tokio::{sync::Semaphore, time::timeout};
use tonic::transport::Channel;

/// Registrations under way at once: the kubelet dials back in each.
const REGISTRATIONS: usize = 64;
/// The kubelet dials back within the call, for 10 s at most.
const REGISTER_TIMEOUT: Duration = Duration::from_secs(15);

pub(super) struct Registrar {
    socket: PathBuf,
    permits: Semaphore,
    /// The connection, and the kubelet it is to: the next one has a socket of its own at the same path.
    /// The lock is never held over an await.
    connection: Mutex<Option<(KubeletSocket, Channel)>>,
}

impl Registrar {
    pub(super) fn new(folder: &Path) -> Self {
        Self {
            socket: folder.join(KUBELET_SOCKET),
            permits: Semaphore::new(REGISTRATIONS),
            connection: Mutex::default(),
        }
    }

    pub(super) async fn register(
        &self,
        kubelet: KubeletSocket,
        request: RegisterRequest,
    ) -> anyhow::Result<()> {
        let _permit = self.permits.acquire().await?;
        let mut client = RegistrationClient::new(self.connection(kubelet));
        timeout(REGISTER_TIMEOUT, client.register(request))
            .await
            .with_context(|| format!("{} did not answer", self.socket.display()))??;
        Ok(())
    }

    fn connection(&self, kubelet: KubeletSocket) -> Channel {
        let mut connection = self
            .connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match &*connection {
            Some((to, channel)) if *to == kubelet => channel.clone(),
            Some(_) | None => {
                let channel = uds::dial_when_used(&self.socket);
                *connection = Some((kubelet, channel.clone()));
                channel
            }
        }
    }
}
