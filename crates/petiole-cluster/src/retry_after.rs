//! Obeys `Retry-After`: an API server that is too busy says when to ask again. The caller has its answer only then, so that no
//! retry comes sooner, and callers need not know of it.
use axum::http::{Response, StatusCode, header::RETRY_AFTER};
use std::time::Duration;
use tokio::time::sleep;
use tower::BoxError;

/// The longest time of a `Retry-After` that is waited for. Beyond it: the caller has its answer, and waits as after any failure.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(5);

/// Returns the response, a refusal for load after the time that it names (`TooManyRequests` of Kubernetes' API conventions).
pub(super) async fn hold<B>(response: Response<B>) -> Result<Response<B>, BoxError> {
    if let Some(wait) = wait(&response) {
        sleep(wait.min(RETRY_AFTER_MAX)).await;
    }
    Ok(response)
}

fn wait<B>(response: &Response<B>) -> Option<Duration> {
    let refusals = [
        StatusCode::TOO_MANY_REQUESTS,
        StatusCode::SERVICE_UNAVAILABLE,
    ];
    if !refusals.contains(&response.status()) {
        return None;
    }
    let seconds = response.headers().get(RETRY_AFTER)?.to_str().ok()?;
    seconds.parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;
    use kube::{Api, client::Body};
    use std::convert::Infallible;
    use tokio::time::Instant;
    use tower::{Layer as _, service_fn, util::AndThenLayer};

    /// Returns the time after which a client has its answer, whose status and `Retry-After` are these.
    async fn answered_after(status: u16, retry_after: &'static str) -> Duration {
        let server = service_fn(move |_: Request<Body>| async move {
            let response = Response::builder().status(status);
            let response = response.header(RETRY_AFTER, retry_after);
            Ok::<_, Infallible>(response.body(Body::empty()).unwrap())
        });
        let client = kube::Client::new(AndThenLayer::new(hold).layer(server), "default");
        let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(client);
        let asked = Instant::now();
        nodes.get("a").await.unwrap_err();
        asked.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_for_load_is_answered_after_the_time_that_it_names() {
        for (status, retry_after, seconds) in [
            (429, "1", 1),
            (503, "3", 3),
            (429, "3600", 5),
            (429, "soon", 0),
            (404, "1", 0),
        ] {
            let waited = answered_after(status, retry_after).await.as_secs();
            assert_eq!(waited, seconds, "{status} {retry_after}");
        }
    }
}
