//! Holds the handlers of drivers that register through a socket in `plugins_registry`, one for each type of driver.
pub(crate) mod csi;
pub(crate) mod dra;
