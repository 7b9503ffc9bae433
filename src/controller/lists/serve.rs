//! Serves the lists over HTTP, for the readers that the API server allows. Every replica knows the whole cluster and answers.
//!
//! ```text
//! GET /v1/namespaces/NAMESPACE/configurations/NAME/devices    JSON
//! GET /v1/namespaces/NAMESPACE/configurations/NAME/http_sd    targets for Prometheus
//! ```
use super::{
    access::{Access, Refusal},
    format::{Devices, Text},
};
use crate::{controller::world::World, model::typed_names::ConfigurationKey};
use axum::{
    Router,
    body::Body,
    extract::{Path, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse as _, Response},
    routing::get,
};
use futures::stream;
use kube::Client;
use std::{convert::Infallible, sync::Arc};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};

/// The most bytes of the devices in an answer. Beyond it: the largest devices are left out, and the answer says how many.
const ANSWER_BYTES_MAX: usize = 2 * 1024 * 1024;
/// The most answers that are made or sent at a time, 32 MiB together. Beyond it: the others get 503.
const ANSWERS_MAX: usize = 16;
/// The questions that wait for the loop.
const QUESTIONS: usize = 16;
/// The header with the number of devices that an answer does not have.
const LEFT_OUT: &str = "petiole-left-out";

/// A question to the loop, which knows the cluster.
pub(crate) struct Question {
    of: ConfigurationKey,
    answer: oneshot::Sender<Option<Devices>>,
}

impl Question {
    /// Returns the name of the Configuration that it is about.
    pub(crate) fn name(&self) -> &str {
        &self.of.name
    }

    /// Answers with the devices of this world, which has the Configuration. Who does not wait any more gets none. Of a Configuration
    /// that is there and cannot be read nothing is known.
    pub(crate) fn answer(self, world: &World) {
        if !world.unreadable.contains_key(&self.of) {
            self.answer.send(Devices::new(world, &self.of)).ok();
        }
    }
}

struct Server {
    access: Access,
    answers: Arc<Semaphore>,
    questions: mpsc::Sender<Question>,
    is_listed: watch::Receiver<bool>,
}

/// Returns the routes, and the questions that the loop is to answer.
pub(crate) fn routes(
    client: Client,
    is_listed: watch::Receiver<bool>,
) -> (Router, mpsc::Receiver<Question>) {
    let (questions, asked) = mpsc::channel(QUESTIONS);
    let server = Arc::new(Server {
        access: Access::new(client),
        answers: Arc::new(Semaphore::new(ANSWERS_MAX)),
        questions,
        is_listed,
    });
    let json = |state, path, headers| respond(state, path, headers, json);
    let http_sd = |state, path, headers| respond(state, path, headers, http_sd);
    let of = "/v1/namespaces/{namespace}/configurations/{name}";
    let routes = Router::new()
        .route(&format!("{of}/devices"), get(json))
        .route(&format!("{of}/http_sd"), get(http_sd))
        .with_state(server);
    (routes, asked)
}

async fn respond(
    State(server): State<Arc<Server>>,
    Path((namespace, name)): Path<(String, String)>,
    headers: HeaderMap,
    list: fn(Option<Devices>) -> Option<Text>,
) -> Response {
    let of = ConfigurationKey::new(&namespace, name);
    let (devices, permit) = match server.devices(&headers, &of).await {
        Err((status @ StatusCode::UNAUTHORIZED, why)) => {
            return (status, [(header::WWW_AUTHENTICATE, "Bearer")], why).into_response();
        }
        Err(refused) => return refused.into_response(),
        Ok(answer) => answer,
    };
    let Some(Text { text, left_out }) = list(devices) else {
        let what = format!("there is no Configuration {of} that this controller can read\n");
        return (StatusCode::NOT_FOUND, what).into_response();
    };
    let kind = (header::CONTENT_TYPE.as_str(), "application/json".to_owned());
    // The place is free once the text is sent.
    let body = stream::unfold((Some(text), permit), |(text, permit)| async move {
        Some((Ok::<_, Infallible>(text?), (None, permit)))
    });
    let headers = [kind, (LEFT_OUT, left_out.to_string())];
    (headers, Body::from_stream(body)).into_response()
}

fn json(devices: Option<Devices>) -> Option<Text> {
    devices.map(|devices| devices.json(ANSWER_BYTES_MAX))
}

/// A Configuration that is gone has no targets: at an error Prometheus keeps those that it had.
fn http_sd(devices: Option<Devices>) -> Option<Text> {
    let none = || Text {
        text: "[]".to_owned(),
        left_out: 0,
    };
    Some(devices.map_or_else(none, |devices| devices.http_sd(ANSWER_BYTES_MAX)))
}

impl Server {
    /// Returns the devices for who may read them, `None` of a Configuration that there is not; and the place of the answer.
    async fn devices(
        &self,
        headers: &HeaderMap,
        of: &ConfigurationKey,
    ) -> Result<(Option<Devices>, OwnedSemaphorePermit), (StatusCode, String)> {
        let token = headers.get(header::AUTHORIZATION);
        let token = token.and_then(|token| token.to_str().ok()?.split_once(' '));
        let token = token.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        let allowed = match token.filter(|(_, token)| !token.is_empty()) {
            Some((_, token)) => self.access.check(token, of).await,
            None => Err(Refusal::Unknown),
        };
        allowed.map_err(|refusal| explained(refusal, of))?;
        let unavailable = |why: &str| (StatusCode::SERVICE_UNAVAILABLE, why.to_owned());
        let permit = self.answers.clone().try_acquire_owned();
        let permit = permit.map_err(|_| unavailable("too many readers: ask again\n"))?;
        let away = || {
            unavailable(
                "the cluster's objects have not been listed yet, or the Configuration cannot be read: ask again\n",
            )
        };
        let (answer, answered) = oneshot::channel();
        let question = Question {
            of: of.clone(),
            answer,
        };
        if !*self.is_listed.borrow() || self.questions.send(question).await.is_err() {
            return Err(away());
        }
        Ok((answered.await.map_err(|_| away())?, permit))
    }
}

fn explained(refusal: Refusal, of: &ConfigurationKey) -> (StatusCode, String) {
    let ConfigurationKey { namespace, name } = of;
    match refusal {
        Refusal::Unknown => (
            StatusCode::UNAUTHORIZED,
            "send the header `Authorization: Bearer TOKEN` with a token of a ServiceAccount that is valid and has the audience \
             petiole\n"
                .to_owned(),
        ),
        Refusal::Forbidden => (
            StatusCode::FORBIDDEN,
            format!(
                "the account of the token may not get configurations/devices (API group akri.sh) of the name {name} in the \
                 namespace {namespace}: have that right granted\n"
            ),
        ),
        Refusal::Unavailable => (
            StatusCode::SERVICE_UNAVAILABLE,
            "the API server does not say whether you may read this, or is asked too often: ask again\n".to_owned(),
        ),
    }
}

#[cfg(test)]
mod tests;
