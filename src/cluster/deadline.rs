//! An end to every request: a server behind a broken network never answers, and a connection to it may live for a
//! quarter of an hour. A layer around the client, so that no caller has to remember to.
use axum::http::{Request, Response};
use futures::future::{BoxFuture, FutureExt as _};
use std::{
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::timeout;
use tower::{BoxError, Layer, Service};

/// A slow server answers by then.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Wraps a client's service.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadline;

impl<S> Layer<S> for Deadline {
    type Service = Ended<S>;

    fn layer(&self, inner: S) -> Ended<S> {
        Ended { inner }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Ended<S> {
    inner: S,
}

impl<S, B, C> Service<Request<B>> for Ended<S>
where
    S: Service<Request<B>, Response = Response<C>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
{
    type Response = Response<C>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<C>, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let answer = self.inner.call(request);
        async move {
            match timeout(REQUEST_TIMEOUT, answer).await {
                Ok(answer) => answer.map_err(Into::into),
                Err(_) => Err(format!("no answer within {REQUEST_TIMEOUT:?}").into()),
            }
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use tower::{ServiceExt as _, service_fn};

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_never_answered_ends() {
        let silent =
            service_fn(|_: Request<()>| std::future::pending::<Result<Response<()>, Infallible>>());
        let error = Deadline
            .layer(silent)
            .oneshot(Request::new(()))
            .await
            .unwrap_err();
        assert_eq!(error.to_string(), "no answer within 10s");
    }
}
