//! The vocabulary of the project: plain values and the rules between them. Pure: no I/O, no clock, no async.
pub mod device;
