//! Defines the plain values of the project and the rules between them. Pure: no I/O, no clock, no async.
pub mod age;
pub mod checkpoint;
pub mod container_edits;
pub mod device;
pub mod instance_name;
pub mod instance_row;
pub mod limits;
pub mod names;
pub mod node_resources;
pub mod patch;
pub mod pin;
pub mod printable;
pub mod resource_names;
pub mod slot;
pub mod slot_table;
pub mod token_bucket;
pub mod variables;
