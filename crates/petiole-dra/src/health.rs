//! Tells the kubelet the health of devices, which it writes into the status of their Pods (`allocatedResourcesStatus`).
//!
//! The kubelet takes a device as unknown that no report had for its `valid_for`. So a driver sends a report for each look at its
//! devices, also if nothing has changed: a driver that hangs does not look healthy.
use crate::proto::health::{
    DeviceHealth as SentHealth, DeviceIdentifier, HealthStatus, NodeWatchResourcesRequest,
    NodeWatchResourcesResponse, dra_resource_health_server::DraResourceHealth,
};
use futures::{FutureExt as _, Stream, StreamExt as _, stream};
use std::{
    pin::Pin,
    time::{Duration, SystemTime},
};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

/// The longest message about a device, in bytes. The kubelet keeps as many. Beyond it: it is cut at a character.
const MESSAGE_LIMIT: usize = 1024;
/// The shortest time between two reports to a kubelet.
const PACE: Duration = Duration::from_secs(1);
/// The time after which a report without changes is sent: a third of the kubelet's default for `valid_for`.
const REPEAT_AFTER: Duration = Duration::from_secs(10);

/// The health of one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// The driver cannot say.
    Unknown,
    /// It works.
    Healthy,
    /// It does not work.
    Unhealthy,
}

/// What a driver says of one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceHealth {
    /// The pool of the device.
    pub pool: String,
    /// The name of the device in its pool.
    pub device: String,
    /// Its health.
    pub health: Health,
    /// The time after which it is unknown if no other report has come, in whole seconds; zero is 30 s.
    pub valid_for: Duration,
    /// A sentence for a person.
    pub message: String,
}

/// The service for one driver: the last report, of all devices.
#[derive(Clone)]
pub(crate) struct Reports {
    pub(crate) last: watch::Receiver<Vec<DeviceHealth>>,
    pub(crate) shutdown: CancellationToken,
}

/// One kubelet's stream.
struct Sending {
    last: watch::Receiver<Vec<DeviceHealth>>,
    sent: Option<(Vec<DeviceHealth>, Instant)>,
}

impl Sending {
    /// Waits for the next report to send. `None`: the driver sends no more.
    async fn next(&mut self) -> Option<Vec<DeviceHealth>> {
        let Some((sent, at)) = &self.sent else {
            return Some(self.remember());
        };
        sleep_until(*at + PACE).await;
        loop {
            self.last.changed().await.ok()?;
            let is_due = at.elapsed() >= REPEAT_AFTER;
            if is_due || *self.last.borrow_and_update() != *sent {
                return Some(self.remember());
            }
        }
    }

    fn remember(&mut self) -> Vec<DeviceHealth> {
        let report = self.last.borrow_and_update().clone();
        self.sent = Some((report.clone(), Instant::now()));
        report
    }
}

fn to_message(report: Vec<DeviceHealth>, now: SystemTime) -> NodeWatchResourcesResponse {
    let since_1970 = now.duration_since(SystemTime::UNIX_EPOCH);
    let now = since_1970.map_or(0, |d| i64::try_from(d.as_secs()).unwrap_or(i64::MAX));
    let devices = report.into_iter().map(|device| {
        let health = match device.health {
            Health::Unknown => HealthStatus::Unknown,
            Health::Healthy => HealthStatus::Healthy,
            Health::Unhealthy => HealthStatus::Unhealthy,
        };
        let mut message = device.message;
        message.truncate(message.floor_char_boundary(MESSAGE_LIMIT));
        SentHealth {
            device: Some(DeviceIdentifier {
                pool_name: device.pool,
                device_name: device.device,
            }),
            health: health.into(),
            last_updated_time: now,
            health_check_timeout_seconds: i64::try_from(device.valid_for.as_secs())
                .unwrap_or(i64::MAX),
            message,
        }
    });
    NodeWatchResourcesResponse {
        devices: devices.collect(),
    }
}

#[tonic::async_trait]
impl DraResourceHealth for Reports {
    type NodeWatchResourcesStream =
        Pin<Box<dyn Stream<Item = Result<NodeWatchResourcesResponse, Status>> + Send>>;

    async fn node_watch_resources(
        &self,
        _: Request<NodeWatchResourcesRequest>,
    ) -> Result<Response<Self::NodeWatchResourcesStream>, Status> {
        let sending = Sending {
            last: self.last.clone(),
            sent: None,
        };
        let reports = stream::unfold(sending, async |mut sending| {
            let report = sending.next().await?;
            Some((Ok(to_message(report, SystemTime::now())), sending))
        });
        // The server waits for open streams when it ends.
        let until_shutdown = reports.take_until(self.shutdown.clone().cancelled_owned().boxed());
        Ok(Response::new(Box::pin(until_shutdown)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::poll;
    use tokio::time::advance;

    fn report(health: Health, message: &str) -> Vec<DeviceHealth> {
        vec![DeviceHealth {
            pool: "p".to_owned(),
            device: "d".to_owned(),
            health,
            valid_for: Duration::from_millis(30_500),
            message: message.to_owned(),
        }]
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_is_sent_within_a_second_and_the_same_every_ten() {
        let (sender, last) = watch::channel(report(Health::Healthy, ""));
        let mut sending = Sending { last, sent: None };
        let begin = Instant::now();
        assert_eq!(sending.next().await, Some(report(Health::Healthy, "")));
        sender.send(report(Health::Unhealthy, "off")).unwrap();
        assert_eq!(sending.next().await, Some(report(Health::Unhealthy, "off")));
        assert!((PACE..PACE * 2).contains(&begin.elapsed()));
        let mut next = Box::pin(sending.next());
        for _ in 0..9 {
            assert!(poll!(&mut next).is_pending());
            advance(PACE).await;
            sender.send(report(Health::Unhealthy, "off")).unwrap();
        }
        assert!(poll!(&mut next).is_pending());
        advance(PACE).await;
        sender.send(report(Health::Unhealthy, "off")).unwrap();
        assert!(poll!(&mut next).is_ready());
        drop(next);
        drop(sender);
        assert_eq!(sending.next().await, None);
    }

    #[test]
    fn a_message_has_whole_seconds_and_whole_characters() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(7);
        let long = format!("a{}", "ä".repeat(1000));
        let sent = to_message(report(Health::Unhealthy, &long), now);
        let device = &sent.devices[0];
        assert_eq!(device.last_updated_time, 7);
        assert_eq!(device.health_check_timeout_seconds, 30);
        assert_eq!(device.health(), HealthStatus::Unhealthy);
        assert_eq!(device.message, format!("a{}", "ä".repeat(511)));
    }
}
