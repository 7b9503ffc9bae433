//! Series that exist from the start of a process, with the value 0. A counter that appears with its first event has no rate
//! at this event. Who asks for a counter creates its series.
use super::metrics::{CapacityPatch, EventOutcome, Metrics, REFUSALS, Registration};

impl Metrics {
    /// Begins the series of an agent with these discovery handlers.
    pub fn begin_agent<'a>(&self, handlers: impl IntoIterator<Item = &'a str>) {
        self.begin_events();
        self.allocate_time.begin();
        self.mdns.begin();
        for handler in handlers {
            self.discoveries(handler, "Success");
            self.discoveries(handler, "Fail");
        }
        for outcome in [
            Registration::Registered,
            Registration::Failed,
            Registration::NoStream,
        ] {
            self.registrations(outcome);
        }
        let refused = REFUSALS.into_iter().map(Some);
        for outcome in refused.chain([None]) {
            self.claims(outcome);
        }
        for outcome in [
            CapacityPatch::Applied,
            CapacityPatch::Superseded,
            CapacityPatch::Failed,
        ] {
            self.capacity_patches(outcome);
        }
    }

    /// Begins the series of a controller.
    pub fn begin_controller(&self) {
        self.begin_events();
        self.cluster.set(false, &super::cluster::Census::default());
    }

    fn begin_events(&self) {
        for outcome in [
            EventOutcome::Written,
            EventOutcome::Failed,
            EventOutcome::Dropped,
        ] {
            self.events(outcome);
        }
    }
}
