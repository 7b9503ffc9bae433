//! Finds the cluster and the user of a process outside of a cluster, as kubectl does.
use anyhow::anyhow;
use kube::{
    Config,
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use std::{io::ErrorKind, path::PathBuf};

/// The flags of kubectl that name a cluster and a user. Without any, it is the current context of the kubeconfig, or the
/// Pod that this process runs in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    /// `KUBECONFIG` and `~/.kube/config` are not read.
    pub kubeconfig: Option<PathBuf>,
    pub context: Option<String>,
}

pub(super) async fn config(identity: &Identity) -> anyhow::Result<Config> {
    let kubeconfig = match &identity.kubeconfig {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    };
    let options = KubeConfigOptions {
        context: identity.context.clone(),
        ..KubeConfigOptions::default()
    };
    let config = match kubeconfig {
        Ok(kubeconfig) => Config::from_custom_kubeconfig(kubeconfig, &options).await,
        Err(e) => Err(e),
    };
    match config {
        Err(e) if *identity == Identity::default() => {
            Config::incluster().map_err(|_| anyhow!(reason(&e)))
        }
        outcome => outcome.map_err(|e| anyhow!(reason(&e))),
    }
}

/// Returns one line that says what is wrong with the kubeconfig, and what to do.
fn reason(error: &KubeconfigError) -> String {
    if let KubeconfigError::ReadConfig(e, path) = error {
        let path = path.display();
        return if e.kind() == ErrorKind::NotFound {
            format!(
                "no cluster: the kubeconfig {path} does not exist; name yours by --kubeconfig or KUBECONFIG; without a cluster, petiole get shows what its agent has"
            )
        } else {
            format!("the kubeconfig {path} cannot be read: {e}")
        };
    }
    if let KubeconfigError::LoadContext(name) = error {
        return format!(
            "the kubeconfig has no context {name}: `kubectl config get-contexts` lists them"
        );
    }
    if matches!(error, KubeconfigError::CurrentContextNotSet) {
        return "the kubeconfig has no current context: name one by --context, or set it by `kubectl config use-context`".to_owned();
    }
    format!("the kubeconfig cannot be used: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const KUBECONFIG: &str = "
apiVersion: v1
kind: Config
clusters: [{name: edge, cluster: {server: 'https://192.0.2.1:6443'}}]
users: [{name: me, user: {token: secret}}]
contexts:
- {name: factory, context: {cluster: edge, user: me, namespace: line-2}}
- {name: office, context: {cluster: edge, user: me}}
";

    async fn namespace(context: Option<&str>) -> Result<String, String> {
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("config");
        fs::write(&kubeconfig, KUBECONFIG).unwrap();
        let identity = Identity {
            kubeconfig: Some(kubeconfig),
            context: context.map(str::to_owned),
        };
        let config = config(&identity).await;
        (config.map(|config| config.default_namespace)).map_err(|e| format!("{e:#}"))
    }

    #[tokio::test]
    async fn the_context_names_the_namespace() {
        let ok = |namespace: &str| Ok(namespace.to_owned());
        assert_eq!(namespace(Some("factory")).await, ok("line-2"));
        assert_eq!(namespace(Some("office")).await, ok("default"));
        let unknown = namespace(Some("home")).await.unwrap_err();
        assert!(unknown.contains("no context home"), "{unknown}");
        let none = namespace(None).await.unwrap_err();
        assert!(none.contains("--context"), "{none}");
    }

    #[tokio::test]
    async fn a_kubeconfig_that_is_not_there_is_one_line_that_says_it_once() {
        let identity = Identity {
            kubeconfig: Some("/nowhere/config".into()),
            context: None,
        };
        let error = config(&identity).await.map(drop).unwrap_err();
        assert_eq!(
            format!("{error:#}"),
            "no cluster: the kubeconfig /nowhere/config does not exist; name yours by --kubeconfig or KUBECONFIG; without a cluster, petiole get shows what its agent has"
        );
    }
}
