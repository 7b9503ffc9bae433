//! Serves a service under the name of an earlier version, too. Each earlier version here has the messages of the later one, or
//! lacks fields that an older kubelet skips.
use crate::{
    driver::Driver,
    health::Reports,
    node::Node,
    proto::{
        dra::dra_plugin_server::DraPluginServer,
        health::dra_resource_health_server::DraResourceHealthServer,
    },
};
use std::task::{Context, Poll};
use tonic::{
    codegen::{
        Service,
        http::{Request, Uri, uri::PathAndQuery},
    },
    server::NamedService,
};

/// The name under which a service was served before.
pub(crate) trait EarlierName: NamedService {
    const EARLIER: &'static str;
}

impl<D: Driver> EarlierName for DraPluginServer<Node<D>> {
    const EARLIER: &'static str = "k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin";
}

impl EarlierName for DraResourceHealthServer<Reports> {
    const EARLIER: &'static str = "v1alpha1.DRAResourceHealth";
}

/// A service under its earlier name.
#[derive(Clone)]
pub(crate) struct Earlier<S>(pub(crate) S);

impl<S: EarlierName> NamedService for Earlier<S> {
    const NAME: &'static str = S::EARLIER;
}

impl<S: EarlierName + Service<Request<B>>, B> Service<Request<B>> for Earlier<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> S::Future {
        if let Some(uri) = renamed(request.uri(), S::EARLIER, S::NAME) {
            *request.uri_mut() = uri;
        }
        self.0.call(request)
    }
}

/// Returns the URI of the same method of the service `to`.
fn renamed(uri: &Uri, from: &str, to: &str) -> Option<Uri> {
    let method = uri.path().strip_prefix('/')?.strip_prefix(from)?;
    let mut parts = uri.clone().into_parts();
    let path = format!("/{to}{method}");
    parts.path_and_query = Some(PathAndQuery::try_from(path).ok()?);
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_method_and_the_authority_stay() {
        let uri = Uri::from_static("http://localhost/a.v1beta1.B/Do");
        let new = renamed(&uri, "a.v1beta1.B", "a.v1.B").unwrap();
        assert_eq!(new, "http://localhost/a.v1.B/Do");
        assert_eq!(renamed(&uri, "other", "a.v1.B"), None);
    }
}
