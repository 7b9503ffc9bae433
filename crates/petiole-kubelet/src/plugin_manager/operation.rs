//! Runs one registration of one plugin, with the Go kubelet's error texts.
use super::{
    plan::Source,
    plugin::{DEVICE_PLUGIN, Handlers, PluginInfo, Registered, Request},
    report::Entry,
};
use crate::go_errors;
use petiole_kubelet_api::{
    plugin_registration::{
        InfoRequest, PluginInfo as Introduction, RegistrationStatus,
        registration_client::RegistrationClient,
    },
    uds,
};
use std::{
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::time::timeout;
use tonic::transport::Channel;
use tracing::warn;

/// The time limits of the Go kubelet.
const DIAL_LIMIT: Duration = Duration::from_secs(10);
const INFO_LIMIT: Duration = Duration::from_secs(1);
const NOTIFY_LIMIT: Duration = Duration::from_secs(5);

/// Registers the plugin of a call of the Registration service and answers the call. It stops when the caller has gone.
pub(super) async fn answer(
    handlers: &Handlers,
    mut request: Request,
    generation: u64,
) -> Result<Registered, Entry> {
    let info = PluginInfo {
        name: request.name,
        endpoint: request.endpoint,
        versions: vec![request.version],
        generation,
        source: Source::Service,
    };
    let refusal = |error: String| Entry::new(DEVICE_PLUGIN, &info, Some(error));
    let result = tokio::select! {
        // A caller may have gone while its request waited. Its plugin is not dialled then.
        biased;
        () = request.reply.closed() => Err("the caller closed the connection before the plugin was registered".to_owned()),
        result = accept(handlers, DEVICE_PLUGIN, info.clone()) => result.map_err(Failed::service_text),
    };
    let sent = request.reply.send(match &result {
        Ok(_) => Ok(()),
        Err(error) => Err(error.clone()),
    });
    if sent.is_err() {
        warn!("a plugin closed its connection during its registration");
    }
    result.map_err(refusal)
}

/// Registers the plugin at a socket in `plugins_registry`: asks for its info, then notifies it of the outcome.
pub(super) async fn introduce(
    handlers: &Handlers,
    socket: &Path,
    generation: u64,
) -> Result<Registered, Entry> {
    let unknown = PluginInfo {
        name: socket
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default(),
        endpoint: socket.to_owned(),
        versions: vec![],
        generation,
        source: Source::Folder,
    };
    let asked = ask(socket).await;
    let (mut client, introduction) =
        asked.map_err(|error| Entry::new("", &unknown, Some(error)))?;
    let kind = introduction.r#type.clone();
    let info = info(introduction, unknown);
    let refusal = |error: String| Entry::new(&kind, &info, Some(error));
    let accepted = accept(handlers, &kind, info.clone()).await;
    let result = accepted.map_err(|failed| failed.folder_text(socket));
    let notified = notify(&mut client, &result).await;
    let at = socket.display();
    match (result, notified) {
        (Ok(registered), Ok(())) => Ok(registered),
        (Ok(Registered { handler, info, .. }), Err(error)) => {
            handler.deregister(&info);
            Err(refusal(format!(
                "RegisterPlugin error -- failed to send registration status at socket {at}, err: {error}"
            )))
        }
        (Err(error), Ok(())) => Err(refusal(error)),
        (Err(error), Err(notify_error)) => Err(refusal(format!(
            "{error} (RegisterPlugin error -- failed to send error at socket {at}, err: {notify_error})"
        ))),
    }
}

async fn ask(socket: &Path) -> Result<(RegistrationClient<Channel>, Introduction), String> {
    let at = socket.display();
    let dialled = timeout(DIAL_LIMIT, uds::dial(socket)).await;
    let channel = dialled
        .map_err(|e| e.to_string())
        .and_then(|channel| channel.map_err(|e| go_errors::cause(&e)))
        .map_err(|e| format!("RegisterPlugin error -- dial failed at socket {at}, err: {e}"))?;
    let mut client = RegistrationClient::new(channel);
    let asked = timeout(INFO_LIMIT, client.get_info(InfoRequest {})).await;
    let introduction = asked
        .map_err(|_| format!("no answer within {INFO_LIMIT:?}"))
        .and_then(|answer| answer.map_err(|e| go_errors::status(&e)))
        .map_err(|e| {
            format!("RegisterPlugin error -- failed to get plugin info using RPC GetInfo at socket {at}, err: {e}")
        })?;
    Ok((client, introduction.into_inner()))
}

/// The step at which a registration failed. The error texts differ between the two ways to register.
enum Failed {
    Unhandled(String),
    Validation(String),
    Registration(String),
}

impl Failed {
    fn service_text(self) -> String {
        match self {
            Self::Unhandled(kind) => format!("no handler registered for plugin type: {kind}"),
            Self::Validation(error) | Self::Registration(error) => error,
        }
    }

    fn folder_text(self, socket: &Path) -> String {
        match self {
            Self::Unhandled(kind) => format!(
                "RegisterPlugin error -- no handler registered for plugin type: {kind} at socket {}",
                socket.display()
            ),
            Self::Validation(error) => {
                format!("RegisterPlugin error -- plugin validation failed with err: {error}")
            }
            Self::Registration(error) => {
                format!("RegisterPlugin error -- plugin registration failed with err: {error}")
            }
        }
    }
}

async fn accept(handlers: &Handlers, kind: &str, info: PluginInfo) -> Result<Registered, Failed> {
    let found = handlers.get_key_value(kind);
    let (kind, handler) = found.ok_or_else(|| Failed::Unhandled(kind.to_owned()))?;
    handler.validate(&info).map_err(Failed::Validation)?;
    let registered = handler.register(info.clone()).await;
    registered.map_err(Failed::Registration)?;
    Ok(Registered {
        handler: handler.clone(),
        kind,
        info,
    })
}

/// Converts the answer to GetInfo. A plugin that names no endpoint serves on the socket of the registration.
fn info(introduction: Introduction, unknown: PluginInfo) -> PluginInfo {
    let endpoint = Some(introduction.endpoint).filter(|endpoint| !endpoint.is_empty());
    PluginInfo {
        name: introduction.name,
        endpoint: endpoint.map_or(unknown.endpoint, PathBuf::from),
        versions: introduction.supported_versions,
        ..unknown
    }
}

async fn notify(
    client: &mut RegistrationClient<Channel>,
    result: &Result<Registered, String>,
) -> Result<(), String> {
    let status = RegistrationStatus {
        plugin_registered: result.is_ok(),
        error: result.as_ref().err().cloned().unwrap_or_default(),
    };
    let notified = timeout(NOTIFY_LIMIT, client.notify_registration_status(status)).await;
    notified
        .map_err(|_| format!("no answer within {NOTIFY_LIMIT:?}"))?
        .map_err(|e| go_errors::status(&e))
        .map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin_manager::plugin::PluginHandler;
    use futures::future::BoxFuture;
    use std::sync::Arc;
    use tokio::sync::oneshot;

    /// Accepts every plugin.
    struct AcceptsAll;

    impl PluginHandler for AcceptsAll {
        fn validate(&self, _: &PluginInfo) -> Result<(), String> {
            Ok(())
        }

        fn register(&self, _: PluginInfo) -> BoxFuture<'static, Result<(), String>> {
            Box::pin(async { Ok(()) })
        }

        fn deregister(&self, _: &PluginInfo) {}

        fn is_registered(&self, _: &PluginInfo) -> bool {
            true
        }
    }

    #[tokio::test]
    async fn a_plugin_whose_caller_is_gone_is_not_registered() {
        let handler: Arc<dyn PluginHandler> = Arc::new(AcceptsAll);
        let handlers = Handlers::from([(DEVICE_PLUGIN, handler)]);
        for is_gone in [false, true] {
            let (reply, caller) = oneshot::channel();
            let _waits = (!is_gone).then_some(caller);
            let request = Request {
                name: "x.y/a".to_owned(),
                endpoint: "a.sock".into(),
                version: "v1beta1".to_owned(),
                reply,
            };
            let refused = answer(&handlers, request, 1).await.err();
            assert_eq!(refused.is_some(), is_gone);
        }
    }
}
