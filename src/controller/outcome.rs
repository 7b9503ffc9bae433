//! Logs the result of each write, and says what is known after it.
use super::parts::News;
use crate::{
    api::configuration::Problem,
    cluster::{self, changes::Change, events::Events},
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
    pub(crate) fn new(
        about: ObjectReference,
        reason: impl Into<String>,
        text: impl Into<String>,
    ) -> Self {
        Self {
            about,
            reason: reason.into(),
            text: text.into(),
            is_warning: false,
        }
    }

    pub(crate) fn warning(
        about: ObjectReference,
        reason: impl Into<String>,
        text: impl Into<String>,
    ) -> Self {
        Self {
            is_warning: true,
            ..Self::new(about, reason, text)
        }
    }

    /// Writes the Event.
    pub(super) fn write(self, events: &Events) {
        if self.is_warning {
            events.warning(self.about, &self.reason, self.text);
        } else {
            events.normal(self.about, &self.reason, self.text);
        }
    }
}

/// What became of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tried {
    Done,
    /// Some of it was done, and the rest was not.
    Partly,
    /// There was nothing to do, because the object is gone.
    Gone,
    /// The object has changed meanwhile: the write is planned again, by the changed object.
    Overtaken,
    Failed,
}

/// The result of a write.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) tried: Tried,
    /// The objects as the API server has them after the write.
    pub(crate) objects: Vec<News>,
    /// The problem that the Configuration is to show.
    pub(crate) problem: Option<Problem>,
}

impl Written {
    /// Returns the result of a write that returned no object.
    pub(crate) const fn new(tried: Tried) -> Self {
        Self {
            tried,
            objects: vec![],
            problem: None,
        }
    }

    /// Returns the result of a write with the object that was returned.
    pub(crate) fn with<T, Name>(change: Change<T, Name>) -> Self
    where
        News: From<Vec<Change<T, Name>>>,
    {
        Self {
            objects: vec![vec![change].into()],
            ..Self::new(Tried::Done)
        }
    }

    pub(crate) fn with_problem(self, problem: Problem) -> Self {
        Self {
            problem: Some(problem),
            ..self
        }
    }
}

/// Logs the result of a write. `what` completes the sentence "cannot …".
pub(super) fn tried(
    object: &dyn Display,
    what: &'static str,
    result: Result<(), kube::Error>,
) -> Tried {
    match result {
        Ok(()) => {
            debug!(%object, "done: {what}");
            Tried::Done
        }
        Err(e) if cluster::is_not_found(&e) => {
            debug!(%object, "nothing to do, the object is gone: {what}");
            Tried::Gone
        }
        // With causes the object itself is refused.
        Err(e)
            if cluster::is_conflict(&e)
                || cluster::is_unprocessable(&e) && !cluster::has_causes(&e) =>
        {
            debug!(%object, "the object has changed, planned again: {what}: {e}");
            Tried::Overtaken
        }
        Err(e) => {
            warn!(%object, "cannot {what}; tried again: {e}");
            Tried::Failed
        }
    }
}
