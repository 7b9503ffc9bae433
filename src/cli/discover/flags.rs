//! Defines the flags of `petiole discover`.
use super::input::Input;
use crate::{cli::device_paths::DevFlag, discovery::external::Endpoint};
use clap::Args;
#[cfg(feature = "people")]
use petiole_cli::connection::ConnectionFlags;
use petiole_cli::discover::HandlerFlags;

/// The flags of `petiole discover`.
#[derive(Debug, Args)]
#[command(after_help = "\
`-o table` and `-o wide` print a line for each change until Ctrl-C, or for as long as --for says.
`-o json` and `-o yaml` print one list at the end: of --for, else of the first look at everything (zeroconf: 5 s;
onvif: 2 s; probe: each host, silent ones three times).

Examples:
  petiole discover zeroconf --details examples/zeroconf-http.yaml
  echo 'kind: _ipp._tcp' | petiole discover zeroconf --details - --for 5s -o wide
  echo 'kind: _ipp._tcp' | petiole discover zeroconf --details - -v
  echo 'kind: _ipp._tcp' | kubectl petiole discover zeroconf --details - --node node-1
  petiole discover udev --details examples/udev-serial.yaml --for 1s
  petiole discover paths --details examples/recipes/fuse.yaml --for 1s
  petiole discover onvif --details examples/onvif-cameras.yaml -o wide
  petiole discover opcua --details examples/opcua.yaml --for 10s -o wide
  petiole discover mqtt --details examples/mqtt-home-assistant.yaml --for 5s
  petiole discover probe --details examples/probe-modbus.yaml -o wide
  petiole discover probe --details examples/probe-modbus.yaml -o yaml --mark 10.1.2.3:502
  petiole discover debugEcho --details examples/debug-echo.yaml -o json
  petiole discover cameras --endpoint unix:///var/lib/akri/cameras.sock --details cameras.yaml
  petiole discover cameras --endpoint http://localhost:10000 --details - < /dev/null")]
pub struct Flags {
    #[command(flatten)]
    pub(in crate::cli) run: HandlerFlags,
    /// Endpoint of a handler of your own that serves Akri's protocol: unix:///PATH of its socket, or http://HOST:PORT. It
    /// need not be registered
    #[arg(long, value_name = "ENDPOINT", conflicts_with = "mark")]
    pub(super) endpoint: Option<Endpoint>,
    /// All nodes find the same devices (only with --endpoint), so that the names of Instances do not contain the node
    #[arg(long, requires = "endpoint")]
    pub(super) shared: bool,
    /// Run the handler in the agent's Pod on this node of a cluster, by `kubectl exec`
    #[cfg(feature = "people")]
    #[arg(short, long, value_name = "NAME", conflicts_with = "endpoint")]
    pub(super) node: Option<String>,
    /// Namespace in which Petiole is installed [default: that of its Pods]
    #[cfg(feature = "people")]
    #[arg(long, value_name = "NAME", requires = "node")]
    pub(super) namespace: Option<String>,
    #[cfg(feature = "people")]
    #[command(flatten)]
    pub(super) connection: ConnectionFlags,
    #[command(flatten)]
    pub(super) dev: DevFlag,
    /// Node of local devices, which is part of the names of their Instances
    #[arg(
        long,
        value_name = "NAME",
        env = "PETIOLE_NODE_NAME",
        default_value = "localhost"
    )]
    pub(super) node_name: String,
}

impl Flags {
    /// Returns the name of the Configuration.
    pub(super) fn named(&self, input: &Input) -> String {
        let name = self.run.configuration.as_ref().or(input.name.as_ref());
        name.cloned()
            .unwrap_or_else(|| self.run.handler.to_lowercase())
    }
}
