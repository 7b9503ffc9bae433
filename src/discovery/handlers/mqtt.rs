//! Finds devices by the messages of an MQTT broker: topics of a pattern, Home Assistant's discovery messages, and Sparkplug B.
//!
//! This file connects the parts: the crate `petiole-mqtt` knows the protocol and keeps the devices, and `connection` has the socket, `talk` is one session.
//! A device that is not available is not in the set, and so are all devices while there is no session.
mod connection;
mod credentials;
mod details;
mod talk;

use super::{
    super::{
        interface::{
            DetailsError, Discovery, DiscoveryError, DiscoveryHandler, Properties, Reads, Task,
        },
        part::{Bytes, Part},
    },
    problems::problem,
};
use crate::{backoff::Backoff, discovery::publish::publish, model::device::DeviceSet};
use credentials::{Credentials, NAMES};
use details::Details;
use petiole_mqtt::{Login, Protocol};
use std::time::Duration;
use talk::{ALL_BYTES_MAX, Talk};
use tokio::time::{Instant, sleep};

/// The wait after the first failure, and the longest one.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);

/// Finds devices by the messages of MQTT brokers.
#[derive(Debug)]
pub struct Mqtt {
    bytes: Bytes,
}

impl Default for Mqtt {
    fn default() -> Self {
        Self {
            bytes: Bytes::new(ALL_BYTES_MAX),
        }
    }
}

impl DiscoveryHandler for Mqtt {
    fn name(&self) -> &'static str {
        "mqtt"
    }

    fn reads(&self) -> Reads {
        Reads::Only(NAMES)
    }

    fn prepare(&self, details: &str, properties: &Properties) -> Result<Discovery, DetailsError> {
        let details = Details::parse(details)?;
        let discovery = MqttDiscovery {
            credentials: Credentials::read(properties, details.broker.is_tls)?,
            details,
            bytes: self.bytes.clone(),
        };
        let scope = discovery.details.scope;
        Ok(Discovery::new(scope, |task| discovery.follow(task)))
    }
}

struct MqttDiscovery {
    details: Details,
    credentials: Credentials,
    bytes: Bytes,
}

impl MqttDiscovery {
    /// Listens, and after a failure publishes it and begins again.
    async fn follow(self, task: Task) -> Result<(), DiscoveryError> {
        let mut login = Login {
            protocol: self.details.protocol.unwrap_or(Protocol::V5),
            // Every broker takes 23 letters and digits. Nothing of a session is kept, so no two clients need to be the same, and none
            // ends the session of another whose host has the same name.
            client_id: format!("petiole{:016x}", fastrand::u64(..)),
            user: self.credentials.user.clone(),
            password: (*self.credentials.password).clone(),
        };
        let mut backoff = Backoff::new(RETRY, RETRY_MAX);
        loop {
            let begun = Instant::now();
            let ended = Talk::new(&self.details, Part::new(&self.bytes, &task.configuration))
                .run(&self.credentials, &login, &task.found)
                .await;
            let may_change = self.details.protocol.is_none();
            if may_change && ended.is_of_protocol && login.protocol == Protocol::V5 {
                login.protocol = Protocol::V3;
                continue;
            }
            if may_change && ended.is_of_connect {
                // It was another fault than the version.
                login.protocol = Protocol::V5;
            }
            if begun.elapsed() > RETRY_MAX {
                backoff.reset();
            }
            let why = format!("{}: {}", self.details.broker, ended.why);
            let problems = vec![problem(why)];
            publish(
                DeviceSet {
                    problems,
                    ..DeviceSet::complete([])
                },
                &task.found,
            );
            sleep(backoff.next_wait()).await;
        }
    }
}
