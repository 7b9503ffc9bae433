//! Tests our agent with our kubelet over real sockets: the two sides of one protocol test each other.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod allocation;
mod container_devices;
mod devices;
mod edits;
mod pre_start;
mod registration;
mod restarts;
mod slots;
mod without_instances;

use crate::support::{
    fake_kubelet::{FakePodResources, FakeRegistration},
    node::{PATIENCE, TestNode, instance_name, request},
    test_handler::{device, with},
};
use petiole::model::device::{Device, DeviceNode, Mount};
use petiole_kubelet_api::device_plugin::{Empty, ListAndWatchResponse};
use std::{fs, time::Duration};
use tokio::time::{Instant, sleep, timeout};
use tonic::Status;
