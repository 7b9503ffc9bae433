//! Finds devices by the messages of an MQTT broker: topics of a pattern, Home Assistant's discovery messages, and Sparkplug B.
//!
//! This file connects the parts: the crate `petiole-mqtt` knows the protocol and keeps the devices, and `connection` has the socket, `talk` is one session.
//! A device that is not available is not in the set, and so are all devices while there is no session.
mod connection;
mod credentials;
mod details;
mod talk;

use super::super::{DetailsError, Discovery, DiscoveryError, DiscoveryHandler, Reads};
use crate::{
    backoff::Backoff,
    model::{
        device::{DeviceSet, Scope},
        limits::cut,
        names::digest_32,
        typed_names::ConfigurationKey,
    },
};
use credentials::{Credentials, NAMES};
use details::Details;
use futures::future::BoxFuture;
use petiole_mqtt::{Login, Protocol};
use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::AtomicUsize},
    time::Duration,
};
use talk::{PROBLEM_MAX, Talk, publish};
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

/// The wait after the first failure, and the longest one.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);

/// Finds devices by the messages of MQTT brokers.
#[derive(Debug, Default)]
pub struct Mqtt {
    bytes: Arc<AtomicUsize>,
}

impl DiscoveryHandler for Mqtt {
    fn name(&self) -> &'static str {
        "mqtt"
    }

    fn reads(&self) -> Reads {
        Reads::Only(NAMES)
    }

    fn prepare(&self, details: &str) -> Result<Box<dyn Discovery>, DetailsError> {
        self.prepare_with(details, &BTreeMap::new())
    }

    fn prepare_with(
        &self,
        details: &str,
        properties: &BTreeMap<String, String>,
    ) -> Result<Box<dyn Discovery>, DetailsError> {
        Ok(Box::new(MqttDiscovery {
            details: Details::parse(details)?,
            credentials: Credentials::read(properties)?,
            all_bytes: self.bytes.clone(),
            // Two commands at once are two clients.
            client: std::process::id().to_string(),
        }))
    }
}

struct MqttDiscovery {
    details: Details,
    credentials: Credentials,
    all_bytes: Arc<AtomicUsize>,
    /// What makes the client another one than others of this machine.
    client: String,
}

impl Discovery for MqttDiscovery {
    fn scope(&self) -> Scope {
        self.details.scope
    }

    fn belongs_to(&mut self, configuration: &ConfigurationKey) {
        self.client = configuration.to_string();
    }

    fn run(
        self: Box<Self>,
        found: watch::Sender<DeviceSet>,
        shutdown: CancellationToken,
    ) -> BoxFuture<'static, Result<(), DiscoveryError>> {
        Box::pin(async move {
            let follow = Box::pin(self.follow(&found));
            shutdown.run_until_cancelled(follow).await.unwrap_or(Ok(()))
        })
    }
}

impl MqttDiscovery {
    /// Listens, and after a failure publishes it and begins again.
    async fn follow(
        self: Box<Self>,
        found: &watch::Sender<DeviceSet>,
    ) -> Result<(), DiscoveryError> {
        let host = tokio::fs::read_to_string("/proc/sys/kernel/hostname").await;
        let client = format!("{} {}", host.unwrap_or_default().trim(), self.client);
        let mut login = Login {
            protocol: self.details.protocol.unwrap_or(Protocol::V5),
            // Every broker takes 23 letters and digits.
            client_id: format!("petiole{}", &digest_32(&client)[..16]),
            user: self.credentials.user.clone(),
            password: (*self.credentials.password).clone(),
        };
        let mut backoff = Backoff::new(RETRY, RETRY_MAX);
        loop {
            let begun = Instant::now();
            let ended = Talk::new(&self.details, self.all_bytes.clone())
                .run(&self.credentials, &login, found)
                .await;
            let is_first = self.details.protocol.is_none() && login.protocol == Protocol::V5;
            if ended.is_of_protocol && is_first {
                login.protocol = Protocol::V3;
                continue;
            }
            if begun.elapsed() > RETRY_MAX {
                backoff.reset();
            }
            let why = format!("{}: {}", self.details.broker, ended.why);
            let problems = vec![cut(why, PROBLEM_MAX)];
            publish(
                DeviceSet {
                    problems,
                    ..DeviceSet::complete([])
                },
                found,
            );
            sleep(backoff.next_wait()).await;
        }
    }
}
