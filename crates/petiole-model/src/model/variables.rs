//! Decides which environment variables a device or a Configuration may give to containers.
//!
//! A container that requests a device may have another namespace, and its image another author, than the Configuration.
//! Variables that programs obey without knowing the device are refused by default: a dynamic loader, a shell and an
//! interpreter run the files that such a variable names, and a client sends its data to the host that it names.
use super::device::DeviceSet;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// The prefixes of refused variables.
const PREFIXES: &[&str] = &[
    // The dynamic loaders of glibc, musl and macOS: LD_PRELOAD, LD_LIBRARY_PATH, LD_AUDIT, DYLD_INSERT_LIBRARIES.
    "LD_",
    "DYLD_",
    // bash reads functions from them.
    "BASH_FUNC_",
    // Start-up code, search paths and profilers of interpreters and runtimes.
    "COR_PROFILER",
    "CORECLR_PROFILER",
    "DOTNET_",
    "LUA_",
    "PERL5",
    "PYTHON",
    // git runs commands from them.
    "GIT_",
    // In-cluster clients find the API server by these variables, and send the Pod's token to it.
    "KUBERNETES_",
];

const NAMES: &[&str] = &[
    // It determines which program a name means.
    "PATH",
    // C libraries: modules that are loaded for character sets and locales, tunables, the resolver's files.
    "GCONV_PATH",
    "GETCONF_DIR",
    "GLIBC_TUNABLES",
    "HOSTALIASES",
    "LOCALDOMAIN",
    "LOCPATH",
    "NLSPATH",
    "RES_OPTIONS",
    // Shells: files and commands that are run, and how words are split.
    "BASHOPTS",
    "BASH_ENV",
    "ENV",
    "IFS",
    "PROMPT_COMMAND",
    "PS4",
    "SHELLOPTS",
    "ZDOTDIR",
    // Interpreters and runtimes.
    "CLASSPATH",
    "GEM_HOME",
    "GEM_PATH",
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "_JAVA_OPTIONS",
    "NODE_EXTRA_CA_CERTS",
    "NODE_OPTIONS",
    "NODE_PATH",
    "NODE_TLS_REJECT_UNAUTHORIZED",
    "PERLLIB",
    "PERL_MB_OPT",
    "PERL_MM_OPT",
    "PHPRC",
    "PHP_INI_SCAN_DIR",
    "RUBYLIB",
    "RUBYOPT",
    // These determine which certificates a TLS client trusts.
    "AWS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "OPENSSL_CONF",
    "OPENSSL_ENGINES",
    "OPENSSL_MODULES",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    // These select the cluster and the identity.
    "KUBECONFIG",
];

/// The suffix of a proxy's variable. Programs read these in both cases: `http_proxy`, `HTTPS_PROXY`, `no_proxy`.
const PROXY: &str = "_PROXY";

/// The variables that may be given although they are refused by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Variables {
    allowed: BTreeSet<String>,
}

impl Variables {
    /// Allows these variables. `allowed` are full names.
    pub fn allowing(allowed: impl IntoIterator<Item = String>) -> Self {
        Self {
            allowed: allowed.into_iter().collect(),
        }
    }

    /// Returns whether no container gets the variable. A text that is not a variable's name cannot be allowed: of a
    /// name with `=` the part before it would be set.
    pub fn refuses(&self, name: &str) -> bool {
        let is_name = !name.is_empty() && !name.contains(['=', '\0']);
        !is_name || is_obeyed(name) && !self.allowed.contains(name)
    }

    /// Returns the refused ones of these variables, in their order.
    pub fn refused<'a>(&self, variables: &'a BTreeMap<String, String>) -> Vec<&'a str> {
        let names = variables.keys().map(String::as_str);
        names.filter(|name| self.refuses(name)).collect()
    }

    /// Removes refused properties from the devices of a set. Each device that had some becomes a problem of the set.
    pub fn remove_refused(&self, set: &mut DeviceSet) {
        for device in set.devices.values_mut() {
            let refused: Vec<String> = (self.refused(&device.properties).into_iter())
                .map(str::to_owned)
                .collect();
            if refused.is_empty() {
                continue;
            }
            Arc::make_mut(device)
                .properties
                .retain(|name, _| !refused.contains(name));
            set.problems.push(format!(
                "device {:?}: its properties {refused:?} are left out: {WHY}",
                device.id.as_str()
            ));
        }
    }
}

/// The reason for the refusal and the remedy, for messages.
pub const WHY: &str = "programs obey such variables whatever the device is. Choose other names, or allow these with the \
     agents' --allow-variables (the chart's agent.allowVariables)";

/// Returns whether programs obey the variable without knowing any device.
fn is_obeyed(name: &str) -> bool {
    let is_proxy = || {
        let start = name.len().checked_sub(PROXY.len());
        let end = start.and_then(|start| name.get(start..));
        end.is_some_and(|end| end.eq_ignore_ascii_case(PROXY))
    };
    NAMES.contains(&name) || PREFIXES.iter().any(|p| name.starts_with(p)) || is_proxy()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::device::Device;

    #[test]
    fn variables_that_programs_obey_are_refused() {
        let none = Variables::default();
        for name in [
            "LD_PRELOAD",
            "LD_LIBRARY_PATH",
            "LD_AUDIT",
            "DYLD_INSERT_LIBRARIES",
            "PATH",
            "BASH_ENV",
            "BASH_FUNC_ls%%",
            "ENV",
            "IFS",
            "GCONV_PATH",
            "NODE_OPTIONS",
            "PYTHONSTARTUP",
            "PYTHONPATH",
            "PERL5LIB",
            "RUBYOPT",
            "JAVA_TOOL_OPTIONS",
            "HTTP_PROXY",
            "https_proxy",
            "no_proxy",
            "All_Proxy",
            "KUBERNETES_SERVICE_HOST",
            "SSL_CERT_FILE",
        ] {
            assert!(none.refuses(name), "{name}");
        }
    }

    #[test]
    fn variables_of_devices_and_brokers_are_given() {
        let none = Variables::default();
        for name in [
            "AKRI_ZEROCONF_DEVICE_PATH",
            "AKRI_SLOT",
            "DEBUG_ECHO_DESCRIPTION",
            "CDI_NAME",
            "RTSP_USER",
            "MODE",
            "path",
            "MY_PATH",
            "PATHS",
            "ENVIRONMENT",
            "BUILD_ENV",
            "PROXY",
            "x",
            "größe_proxÿ",
        ] {
            assert!(!none.refuses(name), "{name}");
        }
    }

    #[test]
    fn a_name_that_would_set_another_variable_is_refused_and_cannot_be_allowed() {
        for name in ["LD_PRELOAD=/tmp/x.so:", "A=", "", "A\0"] {
            assert!(
                Variables::allowing([name.to_owned()]).refuses(name),
                "{name:?}"
            );
        }
    }

    #[test]
    fn an_allowed_name_is_given_and_no_other() {
        let some = Variables::allowing(["HTTPS_PROXY".to_owned()]);
        assert!(!some.refuses("HTTPS_PROXY"));
        assert!(some.refuses("https_proxy") && some.refuses("HTTP_PROXY"));
    }

    #[test]
    fn a_device_loses_its_refused_properties_and_the_set_says_so() {
        let mut device = Device::new("camera");
        for name in ["PATH", "LD_PRELOAD", "URL"] {
            device.properties.insert(name.to_owned(), "x".to_owned());
        }
        let other = Device::new("printer");
        let mut set = DeviceSet::complete([device, other.clone()]);
        Variables::default().remove_refused(&mut set);
        let left: Vec<_> = (set.devices.values())
            .flat_map(|device| device.properties.keys())
            .collect();
        assert_eq!(left, ["URL"]);
        assert_eq!(*set.devices[&other.id], other);
        assert_eq!(
            set.problems,
            [format!(
                "device \"camera\": its properties [\"LD_PRELOAD\", \"PATH\"] are left out: {WHY}"
            )]
        );
    }
}
