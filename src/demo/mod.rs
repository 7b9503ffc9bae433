//! One process that shows the whole way of a device.
