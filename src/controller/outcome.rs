//! Logs the result of each write, and says what is known after it.
use super::parts::News;
use crate::{
    api::configuration::Problem,
    cluster::{self, changes::Change},
    model::typed_names::ConfigurationKey,
};
use k8s_openapi::api::core::v1::ObjectReference;
use std::{collections::BTreeMap, fmt::Display};
use tracing::{debug, warn};

/// A problem with each Configuration.
pub(crate) type Problems = BTreeMap<ConfigurationKey, Problem>;

/// An Event for users, which the log has, too.
#[derive(Debug)]
pub(crate) struct Note {
    pub(crate) about: ObjectReference,
    pub(crate) reason: String,
    pub(crate) text: String,
    pub(crate) is_warning: bool,
}

impl Note {
    pub(crate) fn warning(
        about: ObjectReference,
        reason: impl Into<String>,
        text: impl Into<String>,
    ) -> Self {
        Self {
            about,
            reason: reason.into(),
            text: text.into(),
            is_warning: true,
        }
    }
}

/// The result of a write.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// False if the write is to be planned again.
    pub(crate) is_done: bool,
    /// The objects as the API server has them after the write.
    pub(crate) objects: Vec<News>,
}

impl Written {
    /// Returns the result of a write that was not carried out.
    pub(crate) const NOT_DONE: Self = Self {
        is_done: false,
        objects: vec![],
    };

    pub(crate) fn done(is_done: bool) -> Self {
        Self {
            is_done,
            objects: vec![],
        }
    }

    /// Returns the result of a write with the object that was returned.
    pub(crate) fn with<T, Name>(change: Change<T, Name>) -> Self
    where
        News: From<Vec<Change<T, Name>>>,
    {
        Self {
            is_done: true,
            objects: vec![vec![change].into()],
        }
    }
}

/// Logs the result of a write, and returns whether it needs no other try. `what` completes the sentence "cannot …". An object
/// that is gone needs no other try; one that has changed is planned again with a newer world.
pub(super) fn is_done(
    object: &dyn Display,
    what: &'static str,
    result: Result<(), kube::Error>,
) -> bool {
    match result {
        Ok(()) => {
            debug!(%object, "done: {what}");
            true
        }
        Err(e) if cluster::is_not_found(&e) => {
            debug!(%object, "nothing to do, the object is gone: {what}");
            true
        }
        Err(e) if cluster::is_conflict(&e) || cluster::is_unprocessable(&e) => {
            debug!(%object, "the object has changed, planned again: {what}: {e}");
            false
        }
        Err(e) => {
            warn!(%object, "cannot {what}; tried again: {e}");
            false
        }
    }
}
