//! Says what is done to a Service or an EndpointSlice, and how a Service is written. Pure.
use crate::{
    api::names,
    controller::world::Meta,
    model::names::{Key, ObjectKey},
};
use kube::core::ObjectMeta;
use serde_json::{Value, json};

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Action {
    Apply(Box<Apply>),
    Delete {
        kind: Kind,
        key: ObjectKey,
        uid: String,
        reason: &'static str,
    },
    /// Somebody else's object has the name.
    Report(Kind, Owner, ObjectKey),
}

/// The kind of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A Service of brokers, by a spec of the user.
    Service,
    /// A Service of devices themselves.
    DeviceService,
    /// A part of its endpoints.
    EndpointSlice,
}

impl Kind {
    /// Returns the kind as the API server calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Service | Self::DeviceService => "Service",
            Self::EndpointSlice => "EndpointSlice",
        }
    }
}

impl Action {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Apply(apply) => apply.kind,
            Self::Delete { kind, .. } | Self::Report(kind, ..) => *kind,
        }
    }
}

/// An object to be made, or to be as its manifest says.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Apply {
    pub(crate) kind: Kind,
    pub(crate) key: ObjectKey,
    pub(crate) owner: Owner,
    /// The uid of the existing object.
    pub(crate) uid: Option<String>,
    pub(crate) digest: String,
    pub(crate) manifest: Value,
}

/// The object a Service is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) kind: &'static str,
    pub(crate) key: ObjectKey,
    pub(crate) uid: String,
}

impl Owner {
    pub(super) fn new<Name: AsRef<str>>(
        kind: &'static str,
        key: &Key<Name>,
        metadata: &ObjectMeta,
    ) -> Self {
        Self {
            kind,
            key: key.untyped(),
            uid: metadata.uid.clone().unwrap_or_default(),
        }
    }
}

/// A Service as it should be.
pub(super) struct Service<'a> {
    pub(super) kind: Kind,
    pub(super) key: &'a ObjectKey,
    pub(super) owner: &'a Owner,
    /// It changes when the Service is to be written again.
    pub(super) digest: &'a str,
    pub(super) labels: Value,
    pub(super) spec: Value,
}

impl Service<'_> {
    pub(super) fn apply(&self, existing: Option<&Meta>) -> Action {
        Action::Apply(Box::new(Apply {
            kind: self.kind,
            key: self.key.clone(),
            owner: self.owner.clone(),
            uid: existing.map(|meta| meta.uid.clone()),
            digest: self.digest.to_owned(),
            manifest: self.manifest(),
        }))
    }

    fn manifest(&self) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "name": self.key.name,
                "namespace": self.key.namespace,
                "labels": self.labels,
                "annotations": { (names::RENDERED): self.digest },
                "ownerReferences": [{
                    "apiVersion": names::API_VERSION,
                    "kind": self.owner.kind,
                    "name": self.owner.key.name,
                    "uid": self.owner.uid,
                    "controller": true,
                    "blockOwnerDeletion": true,
                }],
            },
            "spec": self.spec,
        })
    }
}
