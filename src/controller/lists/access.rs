//! Decides who may read a list: the API server says whose token it is (TokenReview), and whether that account may `get` the list
//! (SubjectAccessReview). What it has said is remembered for a short time.
//!
//! A token must be made for this server alone (`aud`): it comes over plain HTTP, and who hears it can do nothing else with it.
use crate::{
    api::names,
    model::{names::digest_32, typed_names::ConfigurationKey},
    token_bucket::TokenBucket,
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
/// The time for which a reader that was allowed is known: strangers do not use up its reviews.
const KNOWN_FOR: Duration = Duration::from_mins(10);
/// The time for which who was refused is not asked about again.
const REFUSED_FOR: Duration = Duration::from_secs(5);
/// The most readers that are remembered. Beyond it: the others are asked about each time.
const READERS_MAX: usize = 256;
/// The most reviews in a burst, of readers that are not known. Beyond it: five a second, and the others get 503.
const REVIEWS_MAX: usize = 32;
const REVIEWS_PER_SECOND: u32 = 5;
/// The most reviews in a burst, of readers that were allowed lately. Beyond it: ten a second, and the others get 503.
const RENEWALS_MAX: usize = 64;
const RENEWALS_PER_SECOND: u32 = 10;
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

/// The digest of a token, and what the token is shown for.
type Reader = (String, ConfigurationKey);

/// What the API server has said of a reader.
#[derive(Clone, Copy)]
struct Said {
    verdict: Result<(), Refusal>,
    at: Instant,
}

impl Said {
    fn is_kept(&self, now: Instant) -> bool {
        let kept_for = self.verdict.map_or(REFUSED_FOR, |()| KNOWN_FOR);
        now - self.at < kept_for
    }
}

pub(super) struct Access {
    client: Client,
    begun: Instant,
    known: Mutex<KnownReaders>,
}

struct KnownReaders {
    readers: BTreeMap<Reader, Said>,
    reviews: TokenBucket,
    renewals: TokenBucket,
}

impl Access {
    pub(super) fn new(client: Client) -> Self {
        let bucket = |size, per_second| TokenBucket::new(size, per_second, Duration::ZERO);
        Self {
            client,
            begun: Instant::now(),
            known: Mutex::new(KnownReaders {
                readers: BTreeMap::new(),
                reviews: bucket(REVIEWS_MAX, REVIEWS_PER_SECOND),
                renewals: bucket(RENEWALS_MAX, RENEWALS_PER_SECOND),
            }),
        }
    }

    /// Returns whether the owner of a token may read the list of a Configuration.
    pub(super) async fn check(&self, token: &str, of: &ConfigurationKey) -> Result<(), Refusal> {
        let reader = (digest_32(token), of.clone());
        if let Some(verdict) = self.said_lately(&reader) {
            return verdict;
        }
        let reviewed = timeout(REVIEWED_WITHIN, self.review(token, of)).await;
        let reviewed = reviewed.unwrap_or_else(|_| {
            warn!("the API server does not answer whether a list of devices may be read");
            Err(Refusal::Unavailable)
        });
        if reviewed != Err(Refusal::Unavailable) {
            self.remember(reader, reviewed);
        }
        reviewed
    }

    /// Returns what was said of the reader lately, or that it cannot be asked now. Otherwise one more review begins.
    fn said_lately(&self, reader: &Reader) -> Option<Result<(), Refusal>> {
        let (now, mut known) = (Instant::now(), self.known());
        let known = &mut *known;
        known.readers.retain(|_, said| said.is_kept(now));
        let bucket = match known.readers.get(reader) {
            None => &mut known.reviews,
            Some(said) if said.verdict.is_ok() && now - said.at >= ALLOWED_FOR => {
                &mut known.renewals
            }
            Some(said) => return Some(said.verdict),
        };
        let since = now - self.begun;
        if bucket.available(since) == 0 {
            return Some(Err(Refusal::Unavailable));
        }
        bucket.take(1, since);
        None
    }

    fn remember(&self, reader: Reader, verdict: Result<(), Refusal>) {
        let readers = &mut self.known().readers;
        if readers.len() < READERS_MAX || readers.contains_key(&reader) {
            let at = Instant::now();
            readers.insert(reader, Said { verdict, at });
        }
    }

    fn known(&self) -> std::sync::MutexGuard<'_, KnownReaders> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn review(&self, token: &str, of: &ConfigurationKey) -> Result<(), Refusal> {
        let user = self.user(token).await.map_err(unavailable)?;
        let user = user.ok_or(Refusal::Unknown)?;
        let name = user.username.clone();
        if self.may_read(user, of).await.map_err(unavailable)? {
            Ok(())
        } else {
            debug!(configuration = %of, user = name, "may not read the list of devices");
            Err(Refusal::Forbidden)
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
