//! Runs a controller: its real watches, its loop and its writer of Events, over the client of `http.rs`. The Lease is left out:
//! `faults.rs` says who leads, and lets two controllers lead for a moment.
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
    pub(super) is_leader: watch::Sender<bool>,
    /// The signal to end.
    pub(super) stop: CancellationToken,
}

impl Controller {
    pub(super) fn start(world: &Rc<World>, name: &str) -> Rc<Self> {
        let controller = Rc::new(Self {
            name: name.to_owned(),
            process: world.machine.process(),
            is_leader: watch::Sender::new(false),
            stop: CancellationToken::new(),
        });
        let network = Client::new(world, name, &world.control_link);
        let client = http::client(network, names::CONTROLLER_MANAGER);
        let mut settings = settings(name);
        if world.machine.chance(20) {
            settings.watch_namespaces = vec!["default".to_owned()];
        }
        settings.claims = Some("akri.sh".parse().unwrap());
        let mut tasks = Supervisor::new(controller.stop.clone());
        let (clock, leads) = (world.machine.clock, controller.is_leader.subscribe());
        begin(&mut tasks, settings, client, clock, leads);
        let (later, this) = (world.clone(), controller.clone());
        world.machine.spawn(controller.process, async move {
            if let Err(e) = tasks.run(GRACE).await {
                later.broke(format!("{} ended: {e:#}", this.name));
            }
        });
        controller
    }
}
