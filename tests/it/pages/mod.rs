//! The pages (README, `docs/` and those beside them) say what is so: links lead somewhere, commands run, tables list what
//! the source has, and `docs/configuration.md` is what the definitions say.
//!
//! `PETIOLE_UPDATE_GOLDEN=1 cargo test --test it pages` writes `docs/configuration.md`.
mod commands;
mod handlers;
mod links;
pub(crate) mod page;
mod reasons;
mod reference;
mod runs;
mod security;
