//! A world together with the reports of its nodes by device. All stages of a turn that are planned in a row look at the same one.
//! Pure.
use super::world::World;
use crate::merge::DeviceReports;
use std::cell::OnceCell;

/// A world, or a part of it, and the reports in it by device.
pub(crate) struct Reported<'a> {
    pub(crate) world: &'a World,
    device_reports: OnceCell<DeviceReports<'a>>,
}

impl<'a> Reported<'a> {
    pub(crate) fn new(world: &'a World) -> Self {
        Self {
            world,
            device_reports: OnceCell::new(),
        }
    }

    /// Returns the reports by device. They are sorted when a stage first asks for them: some turns have no stage that does.
    pub(crate) fn by_device(&self) -> &DeviceReports<'a> {
        let sorted = || DeviceReports::new(self.world.views(), &self.world.instances);
        self.device_reports.get_or_init(sorted)
    }
}
