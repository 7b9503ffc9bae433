//! The demo's own services, announced with real multicast packets, on loopback: other machines are spared them.
use anyhow::Context as _;
use mdns_sd::{IfKind, ServiceDaemon, ServiceInfo};
use std::process;

/// A service of the demo.
#[derive(Debug, Clone)]
pub(super) struct Sample {
    /// The name a person would see.
    pub(super) name: String,
    kind: &'static str,
    port: u16,
    txt: &'static [(&'static str, &'static str)],
}

impl Sample {
    /// Its DNS-SD name, which is also the id of its device.
    pub(super) fn fullname(&self) -> String {
        format!("{}.{}", self.name, self.kind)
    }
}

/// The services of this demo. Their names carry the process id, so that two demos on one LAN have services of their own.
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

/// Announces services until it is dropped or told otherwise.
pub(super) struct Publisher {
    daemon: ServiceDaemon,
    samples: Vec<(Sample, bool)>,
}

impl Publisher {
    pub(super) fn new(samples: Vec<Sample>) -> anyhow::Result<Self> {
        let daemon = ServiceDaemon::new().context("cannot announce services by mDNS")?;
        daemon.disable_interface(IfKind::All)?;
        daemon.enable_interface(IfKind::LoopbackV4)?;
        Ok(Self {
            daemon,
            samples: samples.into_iter().map(|sample| (sample, false)).collect(),
        })
    }

    /// Each service, and whether it is announced.
    pub(super) fn samples(&self) -> &[(Sample, bool)] {
        &self.samples
    }

    pub(super) fn announce_all(&mut self) -> anyhow::Result<()> {
        (0..self.samples.len()).try_for_each(|n| self.announce(n))
    }

    fn announce(&mut self, n: usize) -> anyhow::Result<()> {
        let Some((sample, is_announced)) = self.samples.get_mut(n) else {
            return Ok(());
        };
        // A host for each, as devices are: our mDNS library says goodbye for a service's host along with the service.
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
        let Some((sample, is_announced)) = self.samples.get_mut(n) else {
            return Ok(());
        };
        // The answer tells when the packets were sent; nobody waits for that.
        drop(
            self.daemon
                .unregister(&sample.fullname())
                .with_context(|| sample.fullname())?,
        );
        *is_announced = false;
        Ok(())
    }

    /// Takes service `n` away, or brings it back.
    pub(super) fn toggle(&mut self, n: usize) -> anyhow::Result<()> {
        match self.samples.get(n) {
            Some((_, true)) => self.say_goodbye(n),
            Some((_, false)) => self.announce(n),
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
