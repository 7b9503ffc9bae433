//! One registration of one plugin, with the texts that plugins know from the Go kubelet.
use super::{DEVICE_PLUGIN, Handlers, PluginHandler, PluginInfo, Registered, Request};
use crate::{
    proto::plugin_registration::{
        InfoRequest, PluginInfo as Introduction, RegistrationStatus,
        registration_client::RegistrationClient,
    },
    uds,
};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::time::timeout;
use tonic::transport::Channel;
use tracing::warn;

/// The kubelet's own limits.
const DIAL_LIMIT: Duration = Duration::from_secs(10);
const INFO_LIMIT: Duration = Duration::from_secs(1);
const NOTIFY_LIMIT: Duration = Duration::from_secs(5);

/// A call of the Registration service: its answer is the outcome. Given up when the caller is gone.
pub(super) async fn answer(
    handlers: &Handlers,
    mut request: Request,
    generation: u64,
) -> Result<Registered, String> {
    let info = PluginInfo {
        name: request.name,
        endpoint: request.endpoint,
        versions: vec![request.version],
        generation,
    };
    let result = tokio::select! {
        result = register(handlers, DEVICE_PLUGIN, info) => result,
        () = request.reply.closed() => Err("the plugin did not wait for the answer".to_owned()),
    };
    let told = request.reply.send(match &result {
        Ok(_) => Ok(()),
        Err(error) => Err(error.clone()),
    });
    if told.is_err() {
        warn!("a plugin went away during its registration");
    }
    result
}

/// A socket in `plugins_registry`: asked what it is, then told how it went.
pub(super) async fn introduce(
    handlers: &Handlers,
    socket: &Path,
    generation: u64,
) -> Result<Registered, String> {
    let at = socket.display();
    let dialled = timeout(DIAL_LIMIT, uds::dial(socket)).await;
    let channel = dialled
        .map_err(|e| e.to_string())
        .and_then(|channel| channel.map_err(|e| e.to_string()))
        .map_err(|e| format!("RegisterPlugin error -- dial failed at socket {at}, err: {e}"))?;
    let mut client = RegistrationClient::new(channel);
    let asked = timeout(INFO_LIMIT, client.get_info(InfoRequest {})).await;
    let introduction = asked
        .map_err(|e| e.to_string())
        .and_then(|answer| answer.map_err(|e| e.to_string()))
        .map_err(|e| {
            format!("RegisterPlugin error -- failed to get plugin info using RPC GetInfo at socket {at}, err: {e}")
        })?
        .into_inner();
    let kind = introduction.r#type.clone();
    let info = info(introduction, socket, generation);
    let result = match handlers.get(kind.as_str()) {
        Some(_) => register(handlers, &kind, info).await,
        None => Err(format!(
            "RegisterPlugin error -- no handler registered for plugin type: {kind} at socket {at}"
        )),
    };
    if let Err(error) = notify(client, &result).await {
        if let Ok(Registered { handler, info }) = &result {
            handler.deregister(info);
        }
        return Err(error);
    }
    result
}

async fn register(handlers: &Handlers, kind: &str, info: PluginInfo) -> Result<Registered, String> {
    let handler: &Arc<dyn PluginHandler> = handlers
        .get(kind)
        .ok_or_else(|| format!("no handler registered for plugin type: {kind}"))?;
    handler.validate(&info)?;
    handler.register(info.clone()).await?;
    Ok(Registered {
        handler: handler.clone(),
        info,
    })
}

fn info(introduction: Introduction, socket: &Path, generation: u64) -> PluginInfo {
    let endpoint = match introduction.endpoint {
        empty if empty.is_empty() => socket.to_owned(),
        endpoint => PathBuf::from(endpoint),
    };
    PluginInfo {
        name: introduction.name,
        endpoint,
        versions: introduction.supported_versions,
        generation,
    }
}

async fn notify(
    mut client: RegistrationClient<Channel>,
    result: &Result<Registered, String>,
) -> Result<(), String> {
    let status = RegistrationStatus {
        plugin_registered: result.is_ok(),
        error: result.as_ref().err().cloned().unwrap_or_default(),
    };
    let told = timeout(NOTIFY_LIMIT, client.notify_registration_status(status)).await;
    told.map_err(|e| e.to_string())
        .and_then(|answer| answer.map_err(|e| e.to_string()))
        .map(|_| ())
        .map_err(|e| format!("the plugin could not be told of its registration: {e}"))
}
