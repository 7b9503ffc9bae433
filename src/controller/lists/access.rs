//! Decides who may read a list: the API server says whose token it is (TokenReview), and whether that account may `get` the list
//! (SubjectAccessReview). What it has allowed is remembered for a short time.
//!
//! A token must be made for this server alone (`aud`): it comes over plain HTTP, and who hears it can do nothing else with it.
use crate::{
    api::names,
    model::{token_bucket::TokenBucket, typed_names::ConfigurationKey},
};
use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec, UserInfo},
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{Api, Client, api::PostParams};
use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};
use tokio::time::{Instant, timeout};
use tracing::{debug, warn};

/// The audience of the tokens.
pub(super) const AUDIENCE: &str = "petiole";
/// The time for which an allowed reader is not asked about again: a right that is taken away ends after it.
const ALLOWED_FOR: Duration = Duration::from_secs(30);
/// The most readers that are remembered as allowed. Beyond it: the one that was allowed first is asked about again.
const READERS_MAX: usize = 256;
/// The most reviews at once, of readers that are not known. Beyond it: five a second, and the others get 503.
const REVIEWS_MAX: usize = 32;
const REVIEWS_PER_SECOND: u32 = 5;
/// The time limit of both reviews together, so that the reader gets an answer before its connection ends.
const REVIEWED_WITHIN: Duration = Duration::from_secs(10);

/// Why somebody gets no list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The token is not valid, or not for this server.
    Unknown,
    Forbidden,
    /// The API server does not say, or is asked too often.
    Unavailable,
}

/// A token, and what it is shown for.
type Reader = (String, ConfigurationKey);

pub(super) struct Access {
    client: Client,
    begun: Instant,
    known: Mutex<Known>,
}

struct Known {
    /// Readers that were allowed to read, each with the end of it.
    allowed: BTreeMap<Reader, Instant>,
    reviews: TokenBucket,
}

impl Access {
    pub(super) fn new(client: Client) -> Self {
        let reviews = TokenBucket::new(REVIEWS_MAX, REVIEWS_PER_SECOND, Duration::ZERO);
        let allowed = BTreeMap::new();
        Self {
            client,
            begun: Instant::now(),
            known: Mutex::new(Known { allowed, reviews }),
        }
    }

    /// Returns whether the owner of a token may read the list of a Configuration.
    pub(super) async fn check(&self, token: &str, of: &ConfigurationKey) -> Result<(), Refusal> {
        let reader = (token.to_owned(), of.clone());
        if self.is_known(&reader)? {
            return Ok(());
        }
        let reviewed = timeout(REVIEWED_WITHIN, self.review(token, of)).await;
        let reviewed = reviewed.unwrap_or_else(|_| {
            warn!("the API server does not answer whether a list of devices may be read");
            Err(Refusal::Unavailable)
        });
        if reviewed.is_ok() {
            self.remember(reader);
        }
        reviewed
    }

    /// Returns whether the reader was allowed lately. Otherwise one more review begins.
    fn is_known(&self, reader: &Reader) -> Result<bool, Refusal> {
        let (now, mut known) = (Instant::now(), self.known());
        known.allowed.retain(|_, until| *until > now);
        if known.allowed.contains_key(reader) {
            return Ok(true);
        }
        let since = now - self.begun;
        match known.reviews.available(since) {
            0 => Err(Refusal::Unavailable),
            _ => {
                known.reviews.take(1, since);
                Ok(false)
            }
        }
    }

    fn remember(&self, reader: Reader) {
        let mut known = self.known();
        if known.allowed.len() >= READERS_MAX {
            let first = known.allowed.iter().min_by_key(|(_, until)| **until);
            if let Some(first) = first.map(|(reader, _)| reader.clone()) {
                known.allowed.remove(&first);
            }
        }
        known.allowed.insert(reader, Instant::now() + ALLOWED_FOR);
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn review(&self, token: &str, of: &ConfigurationKey) -> Result<(), Refusal> {
        let user = self.user(token).await.map_err(unavailable)?;
        let user = user.ok_or(Refusal::Unknown)?;
        let name = user.username.clone();
        match self.may_read(user, of).await.map_err(unavailable)? {
            true => Ok(()),
            false => {
                debug!(configuration = %of, user = name, "may not read the list of devices");
                Err(Refusal::Forbidden)
            }
        }
    }

    /// Returns the account of a token that is valid here.
    async fn user(&self, token: &str) -> kube::Result<Option<UserInfo>> {
        let review = TokenReview {
            spec: TokenReviewSpec {
                audiences: Some(vec![AUDIENCE.to_owned()]),
                token: Some(token.to_owned()),
            },
            ..TokenReview::default()
        };
        let api: Api<TokenReview> = Api::all(self.client.clone());
        let status = api.create(&PostParams::default(), &review).await?.status;
        // An authenticator that does not know of audiences returns none: then the token is for the API server.
        let valid = status.filter(|status| {
            let audiences = status.audiences.as_deref().unwrap_or_default();
            status.authenticated == Some(true) && audiences.iter().any(|a| a == AUDIENCE)
        });
        Ok(valid.and_then(|status| status.user))
    }

    async fn may_read(&self, user: UserInfo, of: &ConfigurationKey) -> kube::Result<bool> {
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: user.username,
                groups: user.groups,
                uid: user.uid,
                extra: user.extra,
                resource_attributes: Some(ResourceAttributes {
                    group: Some(names::GROUP.to_owned()),
                    resource: Some("configurations".to_owned()),
                    subresource: Some("devices".to_owned()),
                    namespace: Some(of.namespace.clone()),
                    name: Some(of.name.to_string()),
                    verb: Some("get".to_owned()),
                    ..ResourceAttributes::default()
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let api: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let status = api.create(&PostParams::default(), &review).await?.status;
        Ok(status.is_some_and(|status| status.allowed && status.denied != Some(true)))
    }
}

fn unavailable(e: kube::Error) -> Refusal {
    warn!("the API server cannot say whether a list of devices may be read: {e}");
    Refusal::Unavailable
}
