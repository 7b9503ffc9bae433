//! Petiole joins leaf devices (cameras, sensors, printers, services on the LAN) to Kubernetes: it finds them, offers
//! each as an `akri.sh/…` resource of the nodes that can reach it, and gives a container that asks for one what it
//! needs to use it.
//!
//! # The way of a device
//! ```text
//! an mDNS packet
//!  │ discovery::handlers::zeroconf     what is announced -> Device                                   pure after the socket
//!  ▼
//! DeviceSet                            whole sets over a watch, never changes to one
//!  │ agent::instances                  devices + Configuration + Instances -> Create | Describe | … | Delete    plan.rs
//!  ▼
//! Instance                             store: a folder of manifests, or the API server. There the agent reports shared devices
//!  │                                   in its NodeDevices, and the controller makes their Instances, and adds brokers
//!  │ agent::plugins                    Instances -> Start | Stop; slots + health -> what each plugin lists      plan.rs
//!  ▼
//! <instance>-<seconds>.sock            serve, then Register; the kubelet opens ListAndWatch
//!  │ Allocate
//!  ▼
//! model::slot_table                    which slots answer, all or none                                          pure
//!  │ agent::slots                      writes the claim: deviceUsage of the Instance
//!  ▼
//! model::container_edits               environment, mounts, device nodes, CDI names of the container            pure
//! ```
//! Two things flow back: a claim, and its release once neither of the kubelet's books has it: what pod resources list,
//! and its checkpoint.
//!
//! # Processes
//! | `petiole …` | what it is | its home |
//! |---|---|---|
//! | `agent` | on each node: discovery, Instances, device plugins, slots | [`agent`], [`discovery`], [`store`] |
//! | `controller` | once per cluster: merges what all nodes see into Instances; brokers, Services, lost nodes, status | [`controller`], [`cluster`] |
//! | `kubelet` | the kubelet's device manager, with Pods as plain processes | [`kubelet`] |
//! | `demo` | both of them and a few services of its own, with a live table | `demo` |
//! | `discover` | one discovery handler, printed | [`discovery`] |
//! | `get` | a view of a running `kubelet`, and the Instances of a standalone agent | [`kubelet`], [`store`] |
//! | `crds` | the CustomResourceDefinitions, printed | [`api`] |
//! | `devices`, `why`, `doctor` | what a cluster knows of devices, explained: `kubectl petiole` | `inspect` |
//! | `check` | an installation on a cluster, looked at: `helm test` | `cli` |
//! | `tidy`, `uninstall` | capacity entries, or all of an installation, taken away by hand | [`mod@tidy`] |
//! | `completions`, `man` | what a shell and `man` know of all these | `cli` |
//!
//! [`agent`], [`controller`] and [`kubelet`] never import each other. They communicate over the protocols of Kubernetes. Every decision is in a file named
//! `plan.rs` or in [`model`], and those are pure; `tests/architecture` holds both rules.
pub mod agent;
pub mod api;
pub mod backoff;
pub mod cli;
pub mod cluster;
pub mod controller;
#[cfg(feature = "demo")]
pub mod demo;
pub mod discovery;
pub mod files;
pub mod folder_watch;
#[cfg(feature = "workstation")]
pub mod inspect;
#[cfg(feature = "kubelet")]
pub mod kubelet;
pub mod model;
pub mod pace;
pub mod proto;
pub mod publish;
#[cfg(test)]
#[path = "../tests/simulation/mod.rs"]
mod simulation;
pub mod store;
pub mod supervisor;
pub mod telemetry;
pub mod tidy;
pub mod uds;
pub mod yaml;
