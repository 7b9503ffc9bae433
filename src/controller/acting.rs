//! The client of what only the replica that acts may do. It sends no change once another may act: one request may be the second of
//! several in a row.
use hyper::{Method, Request};
use kube::{Client, client::Body};
use tokio::sync::watch;
use tower::{BoxError, service_fn};

pub(super) fn client(client: Client, is_leader: watch::Receiver<bool>) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = service_fn(move |request: Request<Body>| {
        let may_be_sent = request.method() == Method::GET || *is_leader.borrow();
        let client = client.clone();
        async move {
            if may_be_sent {
                client.send(request).await.map_err(BoxError::from)
            } else {
                Err(BoxError::from(
                    "this replica does not hold the Lease any more",
                ))
            }
        }
    });
    Client::new(service, namespace)
}
