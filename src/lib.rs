//! Petiole joins leaf devices (cameras, sensors, printers, services on the LAN) to Kubernetes: it finds them, offers
//! each as an `akri.sh/…` resource of the nodes that can reach it, and gives a container that requests one the
//! environment, mounts and device nodes to use it.
//!
//! # From a device to a container
//! ```text
//! an mDNS packet
//!  │ crates/petiole-mdns               packets -> services; decides that one is gone: it did not answer, or its
//!  │                                   records have expired                                                     pure
//!  │ discovery::handlers::zeroconf     a service -> Device                                                      pure
//!  │ discovery::damping                a device that disappears and returns often counts later                  pure
//!  ▼
//! DeviceSet                            whole sets over a watch, never differences
//!  │ agent::instances                  devices + Configuration + Instances -> the node's report                 plan.rs
//!  ▼
//! NodeDevices                          the reports of all nodes; without a cluster the one of this node, in memory
//!  │ merge                             reports + Configurations + Instances -> Create | Change | Delete         pure
//!  ▼
//! Instance                             store: a folder of manifests, or the API server, where the controller merges, and adds
//!  │                                   brokers
//!  │ agent::plugins                    Instances -> Start | Stop; slots + health -> the list of each plugin     plan.rs
//!  ▼
//! <instance>-<seconds>.sock            serve, then Register; the kubelet opens ListAndWatch
//!  │ Allocate
//!  ▼
//! model::slot_table                    selects the slots, all or none                                          pure
//!  │ agent::slots                      remembers the claim if one node has the device, and writes deviceUsage then; else before
//!  ▼
//! model::container_edits               environment, mounts, device nodes, CDI names of the container            pure
//! ```
//! The discoveries and the validation of Configurations run on a thread of their own ([`own_thread`]): what the LAN and the
//! authors of Configurations cost never holds up the thread that answers the kubelet.
//!
//! Two things flow back: a claim, and its release. `agent::slots::plan` releases a slot after two looks at which the kubelet
//! listed it neither in its pod resources nor in its checkpoint; `agent::slots` writes the release. The slots of a
//! ResourceClaim are released when the kubelet unprepares it, and those of a lost node by `merge`.
//!
//! # Processes
//! | `petiole …` | description | modules |
//! |---|---|---|
//! | `agent` | on each node: discovery, the node's report, device plugins, slots | [`agent`], [`discovery`], [`store`] |
//! | `controller` | for the whole cluster; one of two replicas acts: merges the reports of all nodes into Instances; brokers, Services, lost nodes, status | [`controller`], [`cluster`] |
//! | `kubelet` | the kubelet's device manager, with Pods as plain processes | `petiole_kubelet` |
//! | `demo` | a kubelet, an agent and a few services, with a live table | `demo` |
//! | `discover` | prints the devices of one discovery handler | [`discovery`] |
//! | `handler` | one discovery handler without rights, as a process for the agent of its node | [`discovery`] |
//! | `get` | prints the Pods and plugins of a running `kubelet`, and the Instances of a standalone agent | `petiole_kubelet`, [`store`] |
//! | `crds` | prints the CustomResourceDefinitions | [`api`] |
//! | `convert` | writes Configurations for what other device plugins offer | `convert` |
//! | `devices`, `why`, `doctor` | `kubectl petiole`: the devices of a cluster, and explanations | `petiole_people` |
//! | `top`, `web` | the devices of a cluster or of one node, live on a terminal or in a browser | `petiole_people` |
//! | `check` | checks an installation on a cluster: `helm test` | `petiole_cli` |
//! | `tidy`, `uninstall` | remove capacity entries, or a whole installation, by hand | `petiole_cli` |
//! | `completions`, `man` | print completions for a shell, and manual pages | `cli` |
//!
//! Here are the agent, the controller, discovery, the demo and `convert`, and what these share: [`pace`] and [`publish`] of their loops,
//! [`proto`] of Akri's handlers, and `node_view` of a node without a cluster. All else is in `crates/`:
//!
//! - what knows nothing of Petiole: the mDNS querier, the protocols of OPC UA, MQTT, ONVIF and of hosts that are asked (`petiole-probe`),
//!   the protocol of a DRA driver, the kubelet's APIs with their sockets, and the kubelet;
//! - what is below this package: `petiole-model` (the objects and their rules), `petiole-telemetry`, `petiole-cluster` (the client of
//!   the API server), `petiole-cli` (what subcommands share) and `petiole-base` (files, tasks, back-off). Here their modules are
//!   `crate::api`, `crate::files` and so on;
//! - what people look at: `petiole-people`, which knows nothing of this package either.
//!
//! [`agent`], [`controller`] and the kubelet never import each other. They communicate over the protocols of Kubernetes. Every
//! decision is in a pure file: a `plan.rs`, [`model`], or one whose header says so; `tests/architecture` holds both rules.
pub mod agent;
pub mod cli;
pub mod controller;
#[cfg(feature = "people")]
pub mod convert;
#[cfg(feature = "people")]
pub mod demo;
pub mod discovery;
pub(crate) mod merge;
#[cfg(feature = "people")]
mod node_view;
pub mod own_thread;
pub mod pace;
pub mod proto;
pub mod publish;
#[cfg(test)]
#[path = "../tests/simulation/mod.rs"]
mod simulation;
pub mod store;

use petiole_base::{backoff, files, folder_watch, supervisor, token_bucket, yaml};
pub use petiole_cluster as cluster;
pub use petiole_model::{api, model};
pub use petiole_telemetry as telemetry;
