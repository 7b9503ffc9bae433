//! Runs a controller: its Lease, its watches, its loop and its writer of Events, over the client of `http.rs`.
use super::{World, http, machine::Process, network::Client};
use crate::{
    api::names,
    controller::{GRACE, begin, fixtures::settings},
    supervisor::Supervisor,
};
use std::rc::Rc;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub(super) struct Controller {
    pub(super) name: String,
    pub(super) process: Process,
    is_leader: watch::Receiver<bool>,
    /// The signal to end.
    pub(super) stop: CancellationToken,
}

impl Controller {
    pub(super) fn start(world: &Rc<World>, name: &str) -> Rc<Self> {
        let (process, stop) = (world.machine.process(), CancellationToken::new());
        let network = Client::new(world, name, &world.control_link);
        let client = http::client(network, names::CONTROLLER_MANAGER);
        let mut settings = settings(name);
        if world.machine.chance(20) {
            settings.watch_namespaces = vec!["default".to_owned()];
        }
        settings.claims = Some("akri.sh".parse().unwrap());
        let mut tasks = Supervisor::new(stop.clone());
        let begun = begin(&mut tasks, settings, client, world.machine.clock);
        let controller = Rc::new(Self {
            name: name.to_owned(),
            process,
            is_leader: begun.is_leader(),
            stop,
        });
        let (later, this) = (world.clone(), controller.clone());
        world.machine.spawn(process, async move {
            if let Err(e) = tasks.run(GRACE).await {
                later.broke(format!("{} ended: {e:#}", this.name));
            }
        });
        controller
    }

    /// Returns whether it lives and acts.
    pub(super) fn leads(&self) -> bool {
        self.is_leader.has_changed().is_ok() && *self.is_leader.borrow()
    }
}
