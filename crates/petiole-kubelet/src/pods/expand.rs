//! Expands `$(VAR)` in commands, arguments and values of variables, as Kubernetes does. Commands and arguments see the
//! variables of plugins; the values of variables do not (kubelet_pods.go: `makeEnvironmentVariables`). Pure.
use k8s_openapi::api::core::v1::Container;
use std::collections::BTreeMap;

/// The program, arguments and environment of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommandLine {
    pub(crate) program: String,
    pub(crate) arguments: Vec<String>,
    pub(crate) env: BTreeMap<String, String>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    #[error("command is missing: this kubelet pulls no images, so each container needs a command")]
    NoCommand,
    #[error("env {0}: valueFrom is not supported by this kubelet")]
    ValueFrom(String),
    #[error("envFrom is not supported by this kubelet")]
    EnvFrom,
    #[error("command: contains a NUL byte")]
    Nul,
    #[error("env {0:?}: the name is empty or contains `=`, or there is a NUL byte")]
    Variable(String),
}

/// Builds the command line. A variable of the container wins over a plugin's variable of the same name.
pub(crate) fn command_line(
    container: &Container,
    device_env: &BTreeMap<String, String>,
) -> Result<CommandLine, Error> {
    if container
        .env_from
        .as_ref()
        .is_some_and(|from| !from.is_empty())
    {
        return Err(Error::EnvFrom);
    }
    let mut own = BTreeMap::new();
    for variable in container.env.iter().flatten() {
        if variable.value_from.is_some() {
            return Err(Error::ValueFrom(variable.name.clone()));
        }
        let value = expand(variable.value.as_deref().unwrap_or_default(), &own);
        own.insert(variable.name.clone(), value);
    }
    let mut env = device_env.clone();
    env.extend(own);
    let command = container.command.iter().flatten();
    let words = command.chain(container.args.iter().flatten());
    let mut words = words.map(|word| expand(word, &env)).collect::<Vec<_>>();
    if container.command.as_ref().is_none_or(Vec::is_empty) {
        return Err(Error::NoCommand);
    }
    let program = words.remove(0);
    if words
        .iter()
        .chain([&program])
        .any(|word| word.contains('\0'))
    {
        return Err(Error::Nul);
    }
    // The operating system accepts no such variable.
    if let Some((name, _)) = env
        .iter()
        .find(|(name, value)| name.is_empty() || name.contains(['=', '\0']) || value.contains('\0'))
    {
        return Err(Error::Variable(name.clone()));
    }
    Ok(CommandLine {
        program,
        arguments: words,
        env,
    })
}

/// Expands references: `$(VAR)` becomes its value, `$$(VAR)` becomes `$(VAR)`, and an unknown variable stays unchanged.
fn expand(text: &str, env: &BTreeMap<String, String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix('(').and_then(|r| r.split_once(')')) {
            match env.get(name) {
                Some(value) => out.push_str(value),
                None => out.push_str(&format!("$({name})")),
            }
            rest = after;
        } else {
            out.push('$');
        }
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::EnvVar;

    fn env(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    #[test]
    fn references_are_expanded_as_kubernetes_does() {
        let env = env(&[("A", "1"), ("B", "$(A)")]);
        for (text, want) in [
            ("$(A)", "1"),
            ("x$(A)y$(A)", "x1y1"),
            ("$(B)", "$(A)"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$1"),
            ("$(NONE)", "$(NONE)"),
            ("$(A", "$(A"),
            ("$A $", "$A $"),
            ("", ""),
        ] {
            assert_eq!(expand(text, &env), want, "{text}");
        }
    }

    #[test]
    fn the_containers_own_variables_win_and_do_not_see_the_devices() {
        let container = Container {
            command: Some(vec!["echo".to_owned(), "$(URL)".to_owned()]),
            args: Some(vec!["$(HOST)".to_owned(), "$(PORT)".to_owned()]),
            env: Some(
                [("HOST", "mine"), ("URL", "http://$(HOST):$(PORT)")]
                    .map(|(name, value)| EnvVar {
                        name: name.to_owned(),
                        value: Some(value.to_owned()),
                        ..EnvVar::default()
                    })
                    .into(),
            ),
            ..Container::default()
        };
        let got = command_line(&container, &env(&[("HOST", "device"), ("PORT", "80")])).unwrap();
        assert_eq!(got.program, "echo");
        assert_eq!(got.arguments, ["http://mine:$(PORT)", "mine", "80"]);
        let want = env(&[
            ("HOST", "mine"),
            ("PORT", "80"),
            ("URL", "http://mine:$(PORT)"),
        ]);
        assert_eq!(got.env, want);
        assert_eq!(
            command_line(&Container::default(), &BTreeMap::new()),
            Err(Error::NoCommand)
        );
    }
}
