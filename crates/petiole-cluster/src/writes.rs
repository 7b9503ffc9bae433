//! Counts the write requests to the API server. It is a layer of the client, so it covers every caller.
use axum::http::{HeaderMap, Method, Request, Response, StatusCode, header::CONTENT_TYPE};
use futures::future::{BoxFuture, FutureExt as _};
use petiole_telemetry::metrics::{ApiWrite, metrics};
use std::task::{Context, Poll};
use tower::{Layer, Service};

/// The kinds that we write. Any other kind counts as `other`, so that the label is bounded.
const KINDS: [&str; 21] = [
    "configmaps",
    "configurations",
    "configurations/status",
    "customresourcedefinitions",
    "deviceclasses",
    "endpointslices",
    "events",
    "instances",
    "instances/status",
    "jobs",
    "leases",
    "nodedevices",
    "nodes",
    "nodes/status",
    "pods",
    "pods/eviction",
    "resourceclaimtemplates",
    "resourceslices",
    "services",
    "subjectaccessreviews",
    "tokenreviews",
];
const OTHER: &str = "other";
/// The content type of a server-side apply.
const APPLY: &str = "application/apply-patch";

/// The layer that counts the writes of a client's service.
#[derive(Debug, Clone, Copy)]
pub(super) struct CountWrites;

impl<S> Layer<S> for CountWrites {
    type Service = Counted<S>;

    fn layer(&self, inner: S) -> Counted<S> {
        Counted { inner }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Counted<S> {
    inner: S,
}

impl<S, B, C> Service<Request<B>> for Counted<S>
where
    S: Service<Request<B>, Response = Response<C>>,
    S::Future: Send + 'static,
{
    type Response = Response<C>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Response<C>, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let verb = verb(request.method(), request.headers());
        let kind = kind(request.uri().path());
        let answer = self.inner.call(request);
        let Some(verb) = verb else {
            return answer.boxed();
        };
        async move {
            let answer = answer.await;
            let code = code_class(answer.as_ref().ok().map(Response::status));
            metrics().count_api_write(ApiWrite { kind, verb, code });
            answer
        }
        .boxed()
    }
}

/// Returns the verb of a write, or `None` for a read.
fn verb(method: &Method, headers: &HeaderMap) -> Option<&'static str> {
    let is_apply = || {
        let kind = headers.get(CONTENT_TYPE);
        kind.is_some_and(|kind| kind.as_bytes().starts_with(APPLY.as_bytes()))
    };
    match method.as_str() {
        "POST" => Some("create"),
        "PUT" => Some("update"),
        "PATCH" if is_apply() => Some("apply"),
        "PATCH" => Some("patch"),
        "DELETE" => Some("delete"),
        _ => None,
    }
}

/// Returns the resource of a path: `/api/v1/…` or `/apis/<group>/<version>/…`, with or without a namespace.
fn kind(path: &str) -> &'static str {
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    let before = match parts.next() {
        Some("api") => 1,
        Some("apis") => 2,
        Some(_) | None => return OTHER,
    };
    let parts: Vec<&str> = parts.skip(before).collect();
    let parts = match &parts[..] {
        ["namespaces", _, resource @ ..] if !resource.is_empty() => resource,
        parts => parts,
    };
    let kind = match parts {
        [resource, _, subresource, ..] => format!("{resource}/{subresource}"),
        [resource, ..] => (*resource).to_owned(),
        [] => return OTHER,
    };
    KINDS
        .into_iter()
        .find(|known| *known == kind)
        .unwrap_or(OTHER)
}

fn code_class(status: Option<StatusCode>) -> &'static str {
    match status.map(|status| status.as_u16() / 100) {
        Some(2) => "2xx",
        Some(3) => "3xx",
        Some(4) => "4xx",
        Some(5) => "5xx",
        Some(_) => OTHER,
        None => "none",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{convert::Infallible, io};
    use tower::{ServiceExt as _, service_fn};

    #[test]
    fn a_path_is_of_one_of_a_few_kinds() {
        for (path, expected) in [
            ("/apis/akri.sh/v0/namespaces/default/instances", "instances"),
            (
                "/apis/akri.sh/v0/namespaces/default/instances/cam-1",
                "instances",
            ),
            (
                "/apis/akri.sh/v0/namespaces/n/instances/cam-1/status",
                "instances/status",
            ),
            ("/api/v1/nodes/node-a/status", "nodes/status"),
            ("/api/v1/namespaces/default/pods", "pods"),
            (
                "/api/v1/namespaces/default/pods/p/eviction",
                "pods/eviction",
            ),
            ("/api/v1/namespaces/default/pods/p/binding", "other"),
            ("/api/v1/namespaces/default", "other"),
            ("/apis/batch/v1/namespaces/default/jobs/j", "jobs"),
            ("/apis/events.k8s.io/v1/namespaces/default/events", "events"),
            (
                "/apis/coordination.k8s.io/v1/namespaces/n/leases/l",
                "leases",
            ),
            ("/apis/example.com/v1/cam-1s/cam-1", "other"),
            ("/version", "other"),
            ("/api/v1", "other"),
            ("", "other"),
        ] {
            assert_eq!(kind(path), expected, "{path}");
        }
    }

    #[test]
    fn the_counted_kinds_are_sorted_and_once_each() {
        assert!(KINDS.is_sorted_by(|a, b| a < b));
    }

    /// Returns the counter of a write in the exposition.
    fn count(labels: &str) -> u64 {
        let text = metrics().text().unwrap();
        let line = format!("petiole_api_writes_total{{{labels}}} ");
        let value = text.lines().find_map(|l| l.strip_prefix(&line));
        value.map_or(0, |value| value.parse().unwrap())
    }

    fn request(method: &str, content_type: &str) -> Request<()> {
        // No other test writes to this kind.
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/x";
        let request = Request::builder().method(method).uri(path);
        request.header(CONTENT_TYPE, content_type).body(()).unwrap()
    }

    #[tokio::test]
    async fn writes_are_counted_with_their_outcome_and_reads_are_not() {
        let answer = |status: u16| {
            CountWrites.layer(service_fn(move |_| async move {
                Response::builder()
                    .status(status)
                    .body(())
                    .map_err(|_| unreachable())
            }))
        };
        fn unreachable() -> Infallible {
            panic!("a status of three digits is one")
        }
        let kind = "kind=\"customresourcedefinitions\"";
        let apply = format!("{kind},verb=\"apply\",code=\"2xx\"");
        let refused = format!("{kind},verb=\"patch\",code=\"4xx\"");
        let lost = format!("{kind},verb=\"delete\",code=\"none\"");
        let total = || {
            metrics()
                .text()
                .unwrap()
                .lines()
                .filter(|l| l.contains(kind))
                .count()
        };

        let read = request("GET", "application/json");
        answer(200).oneshot(read).await.unwrap();
        assert_eq!(total(), 0);

        let applied = request("PATCH", "application/apply-patch+yaml");
        answer(201).oneshot(applied).await.unwrap();
        let patched = request("PATCH", "application/json-patch+json");
        answer(422).oneshot(patched).await.unwrap();
        let away = service_fn(|_: Request<()>| async {
            Err::<Response<()>, _>(io::Error::from(io::ErrorKind::ConnectionRefused))
        });
        let deleted = request("DELETE", "application/json");
        CountWrites.layer(away).oneshot(deleted).await.unwrap_err();
        assert_eq!([count(&apply), count(&refused), count(&lost)], [1, 1, 1]);
        assert_eq!(total(), 3);
    }
}
