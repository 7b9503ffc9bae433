//! One registration of one plugin, with the texts that plugins know from the Go kubelet.
use super::{
    DEVICE_PLUGIN, Handlers, PluginInfo, Registered, Request, plan::Source, report::Refusal,
};
use crate::{
    kubelet::texts,
    proto::plugin_registration::{
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

/// The kubelet's own limits.
const DIAL_LIMIT: Duration = Duration::from_secs(10);
const INFO_LIMIT: Duration = Duration::from_secs(1);
const NOTIFY_LIMIT: Duration = Duration::from_secs(5);

/// A call of the Registration service: its answer is the outcome. Given up when the caller is gone.
pub(super) async fn answer(
    handlers: &Handlers,
    mut request: Request,
    generation: u64,
) -> Result<Registered, Refusal> {
    let info = PluginInfo {
        name: request.name,
        endpoint: request.endpoint,
        versions: vec![request.version],
        generation,
        source: Source::Service,
    };
    let refusal = |error: String| refusal(DEVICE_PLUGIN, &info, error);
    let result = tokio::select! {
        // A caller may have gone before its turn: its plugin is not even dialled.
        biased;
        () = request.reply.closed() => Err("the plugin did not wait for the answer".to_owned()),
        result = accept(handlers, DEVICE_PLUGIN, info.clone()) => result.map_err(Failed::told_plainly),
    };
    let told = request.reply.send(match &result {
        Ok(_) => Ok(()),
        Err(error) => Err(error.clone()),
    });
    if told.is_err() {
        warn!("a plugin went away during its registration");
    }
    result.map_err(refusal)
}

/// A socket in `plugins_registry`: asked what it is, then told how it went.
pub(super) async fn introduce(
    handlers: &Handlers,
    socket: &Path,
    generation: u64,
) -> Result<Registered, Refusal> {
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
    let (mut client, introduction) = asked.map_err(|error| refusal("", &unknown, error))?;
    let kind = introduction.r#type.clone();
    let info = info(introduction, unknown);
    let refusal = |error: String| refusal(&kind, &info, error);
    let accepted = accept(handlers, &kind, info.clone()).await;
    let result = accepted.map_err(|failed| failed.told_at(socket));
    let told = notify(&mut client, &result).await;
    let at = socket.display();
    match (result, told) {
        (Ok(registered), Ok(())) => Ok(registered),
        (Ok(Registered { handler, info, .. }), Err(error)) => {
            handler.deregister(&info);
            Err(refusal(format!(
                "RegisterPlugin error -- failed to send registration status at socket {at}, err: {error}"
            )))
        }
        (Err(error), Ok(())) => Err(refusal(error)),
        (Err(error), Err(untold)) => Err(refusal(format!(
            "{error} (RegisterPlugin error -- failed to send error at socket {at}, err: {untold})"
        ))),
    }
}

async fn ask(socket: &Path) -> Result<(RegistrationClient<Channel>, Introduction), String> {
    let at = socket.display();
    let dialled = timeout(DIAL_LIMIT, uds::dial(socket)).await;
    let channel = dialled
        .map_err(|e| e.to_string())
        .and_then(|channel| channel.map_err(|e| texts::cause(&e)))
        .map_err(|e| format!("RegisterPlugin error -- dial failed at socket {at}, err: {e}"))?;
    let mut client = RegistrationClient::new(channel);
    let asked = timeout(INFO_LIMIT, client.get_info(InfoRequest {})).await;
    let introduction = asked
        .map_err(|_| format!("no answer within {INFO_LIMIT:?}"))
        .and_then(|answer| answer.map_err(|e| texts::status(&e)))
        .map_err(|e| {
            format!("RegisterPlugin error -- failed to get plugin info using RPC GetInfo at socket {at}, err: {e}")
        })?;
    Ok((client, introduction.into_inner()))
}

/// Where a registration failed: the two ways of registering have different words for it.
enum Failed {
    Unhandled(String),
    Validation(String),
    Registration(String),
}

impl Failed {
    fn told_plainly(self) -> String {
        match self {
            Self::Unhandled(kind) => format!("no handler registered for plugin type: {kind}"),
            Self::Validation(error) | Self::Registration(error) => error,
        }
    }

    fn told_at(self, socket: &Path) -> String {
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

fn refusal(kind: &str, info: &PluginInfo, error: String) -> Refusal {
    Refusal {
        kind: kind.to_owned(),
        name: info.name.clone(),
        endpoint: info.endpoint.clone(),
        error,
    }
}

/// What it says of itself; without an endpoint it serves on the socket it was asked at.
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
    let told = timeout(NOTIFY_LIMIT, client.notify_registration_status(status)).await;
    told.map_err(|_| format!("no answer within {NOTIFY_LIMIT:?}"))?
        .map_err(|e| texts::status(&e))
        .map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubelet::plugin_manager::PluginHandler;
    use futures::future::BoxFuture;
    use std::sync::Arc;
    use tokio::sync::oneshot;

    /// Takes every plugin.
    struct Takes;

    impl PluginHandler for Takes {
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
        let takes: Arc<dyn PluginHandler> = Arc::new(Takes);
        let handlers = Handlers::from([(DEVICE_PLUGIN, takes)]);
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
