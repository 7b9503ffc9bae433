//! Announces the demo's own services with real multicast packets on the loopback interface, so that other machines do
//! not receive them.
use anyhow::Context as _;
use mdns_sd::{IfKind, ServiceDaemon, ServiceInfo};
use std::process;

/// A service of the demo.
#[derive(Debug, Clone)]
pub(super) struct Sample {
    /// The name that a user sees.
    pub(super) name: String,
    kind: &'static str,
    port: u16,
    txt: &'static [(&'static str, &'static str)],
}

impl Sample {
    /// Returns the DNS-SD name, which is also the id of the device.
    pub(super) fn fullname(&self) -> String {
        format!("{}.{}", self.name, self.kind)
    }
}

/// Returns the services of this demo. Their names contain the process id, so that two demos on one LAN have different
/// services.
pub(super) fn samples() -> Vec<Sample> {
    let sample = |name, kind, port, txt| Sample {
        name: format!("Demo {name} {}", process::id()),
        kind,
        port,
        txt,
    };
    vec![
        sample(
            "Thermometer",
            "_http._tcp.local.",
            8080,
            &[("path", "/metrics"), ("unit", "celsius")],
        ),
        sample(
            "Camera",
            "_rtsp._tcp.local.",
            8554,
            &[("path", "/live"), ("codec", "h264")],
        ),
        sample(
            "Printer",
            "_http._tcp.local.",
            8631,
            &[("path", "/"), ("color", "T")],
        ),
    ]
}

/// A service, and whether it is announced now.
#[derive(Debug, Clone)]
pub(super) struct Service {
    pub(super) sample: Sample,
    pub(super) is_announced: bool,
}

/// Announces services until it is dropped.
pub(super) struct Publisher {
    daemon: ServiceDaemon,
    services: Vec<Service>,
}

impl Publisher {
    pub(super) fn new(samples: Vec<Sample>) -> anyhow::Result<Self> {
        let daemon = ServiceDaemon::new().context("cannot announce services by mDNS")?;
        daemon.disable_interface(IfKind::All)?;
        daemon.enable_interface(IfKind::LoopbackV4)?;
        Ok(Self {
            daemon,
            services: samples
                .into_iter()
                .map(|sample| Service {
                    sample,
                    is_announced: false,
                })
                .collect(),
        })
    }

    /// Returns the services with their state.
    pub(super) fn services(&self) -> &[Service] {
        &self.services
    }

    pub(super) fn announce_all(&mut self) -> anyhow::Result<()> {
        (0..self.services.len()).try_for_each(|n| self.announce(n))
    }

    fn announce(&mut self, n: usize) -> anyhow::Result<()> {
        let Some(Service {
            sample,
            is_announced,
        }) = self.services.get_mut(n)
        else {
            return Ok(());
        };
        // Each service has its own host, as devices do, because the mDNS library says goodbye for the host together
        // with the service.
        let host = format!("petiole-demo-{}-{}.local.", process::id(), n + 1);
        let service = ServiceInfo::new(
            sample.kind,
            &sample.name,
            &host,
            "",
            sample.port,
            sample.txt,
        )
        .with_context(|| sample.fullname())?
        .enable_addr_auto();
        self.daemon
            .register(service)
            .with_context(|| sample.fullname())?;
        *is_announced = true;
        Ok(())
    }

    /// Says goodbye for service `n`.
    pub(super) fn say_goodbye(&mut self, n: usize) -> anyhow::Result<()> {
        let Some(Service {
            sample,
            is_announced,
        }) = self.services.get_mut(n)
        else {
            return Ok(());
        };
        // The result reports when the packets were sent, and nothing waits for that.
        drop(
            self.daemon
                .unregister(&sample.fullname())
                .with_context(|| sample.fullname())?,
        );
        *is_announced = false;
        Ok(())
    }

    /// Withdraws service `n`, or announces it again.
    pub(super) fn toggle(&mut self, n: usize) -> anyhow::Result<()> {
        match self.services.get(n) {
            Some(service) if service.is_announced => self.say_goodbye(n),
            Some(_) => self.announce(n),
            None => Ok(()),
        }
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        // The daemon says goodbye for all services before it ends.
        self.daemon.shutdown().map(drop).ok();
    }
}
