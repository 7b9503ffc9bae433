//! Announces the demo's own services with real multicast packets on the loopback interface, so that other machines do
//! not receive them.
use anyhow::Context as _;
use mdns_sd::{IfKind, ServiceDaemon, ServiceInfo};
use std::process;

/// A service of the demo, and whether it is announced now.
#[derive(Debug)]
pub(super) struct Service {
    /// The name that a user sees.
    pub(super) name: String,
    kind: &'static str,
    port: u16,
    txt: &'static [(&'static str, &'static str)],
    pub(super) is_announced: bool,
}

impl Service {
    /// Returns a service that is not announced yet. Its name contains the process id, so that two demos on one LAN have different
    /// services.
    fn new(
        name: &str,
        kind: &'static str,
        port: u16,
        txt: &'static [(&'static str, &'static str)],
    ) -> Self {
        Self {
            name: format!("Demo {name} {}", process::id()),
            kind,
            port,
            txt,
            is_announced: false,
        }
    }

    /// Returns the DNS-SD name, which is also the id of the device.
    pub(super) fn fullname(&self) -> String {
        format!("{}.{}", self.name, self.kind)
    }

    /// Returns what is announced. Each service has its own host, as devices do, because the mDNS library says goodbye for the host
    /// together with the service.
    fn info(&self) -> mdns_sd::Result<ServiceInfo> {
        let host = format!("petiole-demo-{}-{}.local.", process::id(), self.port);
        let info = ServiceInfo::new(self.kind, &self.name, &host, "", self.port, self.txt)?;
        Ok(info.enable_addr_auto())
    }
}

/// Announces services until it is dropped.
pub(super) struct Publisher {
    daemon: ServiceDaemon,
    services: [Service; 3],
}

impl Publisher {
    /// Announces all services of this demo.
    pub(super) fn start() -> anyhow::Result<Self> {
        let daemon = ServiceDaemon::new().context("cannot announce services by mDNS")?;
        daemon.disable_interface(IfKind::All)?;
        daemon.enable_interface(IfKind::LoopbackV4)?;
        let (http, rtsp) = ("_http._tcp.local.", "_rtsp._tcp.local.");
        let services = [
            Service::new(
                "Thermometer",
                http,
                8080,
                &[("path", "/metrics"), ("unit", "celsius")],
            ),
            Service::new(
                "Camera",
                rtsp,
                8554,
                &[("path", "/live"), ("codec", "h264")],
            ),
            Service::new("Printer", http, 8631, &[("path", "/"), ("color", "T")]),
        ];
        let mut publisher = Self { daemon, services };
        (0..publisher.services.len()).try_for_each(|n| publisher.toggle(n))?;
        Ok(publisher)
    }

    pub(super) fn services(&self) -> &[Service] {
        &self.services
    }

    /// Announces service `n`, or says goodbye for it.
    pub(super) fn toggle(&mut self, n: usize) -> anyhow::Result<()> {
        let Some(service) = self.services.get_mut(n) else {
            return Ok(());
        };
        let name = service.fullname();
        let sent = if service.is_announced {
            // The result reports when the packets were sent, and nothing waits for that.
            self.daemon.unregister(&name).map(drop)
        } else {
            service.info().and_then(|info| self.daemon.register(info))
        };
        service.is_announced = !service.is_announced;
        sent.context(name)
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        // The daemon says goodbye for all services before it ends.
        self.daemon.shutdown().map(drop).ok();
    }
}
