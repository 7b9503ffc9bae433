//! Checks the pages (README, `docs/` and those beside them): links lead somewhere, commands run, tables list all items
//! of the source, and `docs/configuration.md` matches the definitions.
//!
//! `PETIOLE_UPDATE_GOLDEN=1 cargo test --test it pages` writes `docs/configuration.md`.
mod commands;
mod configurations;
mod handlers;
mod links;
pub(crate) mod page;
mod reasons;
mod reference;
mod rfc;
mod runs;
mod security;
mod words;
