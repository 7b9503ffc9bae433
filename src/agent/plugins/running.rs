//! What the owner of the plugins has of one that runs.
use super::{inputs::Inputs, plan::Action, runner::Start};
use crate::{
    agent::values::{KubeletFolder, Offered, Slot},
    model::{plugin_name::PluginName, slot_table::Resource, typed_names::ConfigurationName},
};
use std::{collections::BTreeMap, path::Path, sync::Arc};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// A running plugin, as its owner controls it.
pub(super) struct Running {
    pub(super) offered: Offered,
    pub(super) slots: watch::Sender<Arc<[Slot]>>,
    /// See [`Start`].
    pub(super) socket: watch::Sender<Option<String>>,
    /// Ends the plugin, because its resource is offered no more.
    pub(super) withdrawn: CancellationToken,
}

/// Ends the plugins that are to stop, all at once: each has a last list to send.
pub(super) fn withdraw(running: &BTreeMap<PluginName, Running>, actions: &[Action]) {
    for action in actions {
        if let Action::Stop(name) = action
            && let Some(running) = running.get(name)
        {
            running.withdrawn.cancel();
        }
    }
}

impl Running {
    /// Returns a plugin that is to run with this list: the side of its owner, and its own.
    pub(super) fn begin(offered: Offered, namespace: String, list: Arc<[Slot]>) -> (Self, Start) {
        let slots = watch::Sender::new(list);
        let socket = watch::Sender::new(None);
        let withdrawn = CancellationToken::new();
        let running = Self {
            offered: offered.clone(),
            socket: socket.clone(),
            withdrawn: withdrawn.clone(),
            slots: slots.clone(),
        };
        let start = Start {
            namespace,
            slots: slots.subscribe(),
            socket,
            withdrawn,
            offered,
        };
        (running, start)
    }

    /// Returns the slots of a Configuration without Instances.
    pub(super) fn without_instances(
        &self,
        inputs: &Inputs,
    ) -> Option<(ConfigurationName, Arc<[Slot]>)> {
        let Resource::Configuration(name) = &self.offered.resource else {
            return None;
        };
        inputs.offer(&self.offered.resource)?;
        Some((name.clone(), self.slots.borrow().clone()))
    }

    /// Has the plugin make a new socket if its own is not in the kubelet's folder any more.
    pub(super) fn follow_folder(&self, now: &KubeletFolder, folder: &Path) {
        self.socket.send_if_modified(|own| {
            // The folder may have been read before the socket was made.
            let is_lost =
                |name: &mut String| !now.sockets.contains(name) && !folder.join(name).exists();
            own.take_if(is_lost).is_some()
        });
    }
}

/// Lets other tasks run after each 16 of many plugins: Allocate calls wait for this thread.
pub(super) async fn make_way(n: usize) {
    if n % 16 == 15 {
        tokio::task::yield_now().await;
    }
}
