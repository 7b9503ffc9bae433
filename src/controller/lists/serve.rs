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
    extract::{Path, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse as _, Response},
    routing::get,
};
use kube::Client;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot, watch};

/// The most bytes of the devices in an answer. As many answers as there may be connections take 128 MiB. Beyond it: the largest
/// devices are left out, and the answer says how many.
const ANSWER_BYTES_MAX: usize = 2 * 1024 * 1024;
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

    /// Answers with the devices of this world, which has the Configuration. Who does not wait any more gets none.
    pub(crate) fn answer(self, world: &World) {
        self.answer.send(Devices::new(world, &self.of)).ok();
    }
}

struct Server {
    access: Access,
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
        questions,
        is_listed,
    });
    let json = |state, path, headers| respond(state, path, headers, Devices::json);
    let http_sd = |state, path, headers| respond(state, path, headers, Devices::http_sd);
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
    list: fn(&Devices, usize) -> Text,
) -> Response {
    let of = ConfigurationKey::new(&namespace, name);
    match server.devices(&headers, of).await {
        Err((status, why)) => (status, [(header::WWW_AUTHENTICATE, "Bearer")], why).into_response(),
        Ok(devices) => {
            let Text { text, left_out } = list(&devices, ANSWER_BYTES_MAX);
            let kind = (header::CONTENT_TYPE.as_str(), "application/json".to_owned());
            ([kind, (LEFT_OUT, left_out.to_string())], text).into_response()
        }
    }
}

impl Server {
    async fn devices(
        &self,
        headers: &HeaderMap,
        of: ConfigurationKey,
    ) -> Result<Devices, (StatusCode, String)> {
        let token = headers.get(header::AUTHORIZATION);
        let token = token.and_then(|token| token.to_str().ok()?.strip_prefix("Bearer "));
        let allowed = match token.filter(|token| !token.is_empty()) {
            Some(token) => self.access.check(token, &of).await,
            None => Err(Refusal::Unknown),
        };
        allowed.map_err(|refusal| explained(refusal, &of))?;
        let away = || {
            let why = "the cluster's objects have not been listed yet: ask again\n";
            (StatusCode::SERVICE_UNAVAILABLE, why.to_owned())
        };
        let (answer, answered) = oneshot::channel();
        let question = Question {
            of: of.clone(),
            answer,
        };
        if !*self.is_listed.borrow() || self.questions.send(question).await.is_err() {
            return Err(away());
        }
        let devices = answered.await.map_err(|_| away())?;
        devices.ok_or_else(|| {
            let what = format!("there is no Configuration {of} that this controller can read\n");
            (StatusCode::NOT_FOUND, what)
        })
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
