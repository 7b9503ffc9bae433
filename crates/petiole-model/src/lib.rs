//! The objects of Petiole, and the rules about them: values that the program of nodes and clusters and the program for people
//! share. Nothing in it sends, reads or waits.
//!
//! | module | what it has |
//! |---|---|
//! | [`api`] | the objects in the API server: Configuration, Instance, NodeDevices, and their definitions |
//! | [`model`] | plain values and the rules between them: names, devices, slots, what a container gets |
//!
//! [`api`] stands on [`model`].
pub mod api;
pub mod model;
