//! Fakes a plugin of any type that answers each method with bytes, and may hang, fail or die at each, which a library
//! that follows the protocol would prevent. It runs in a runtime of its own, so that it dies as a process does.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "a test support file: each test uses a part of it"
)]
use axum::{Router, body::Body, http::Request, response::Response};
use http_body_util::StreamBody;
use hyper::body::{Bytes, Frame};
use prost::Message;
use std::{
    collections::BTreeMap,
    convert::Infallible,
    path::Path,
    sync::{Arc, Mutex},
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The behaviour of a method.
#[derive(Debug, Clone)]
pub(crate) enum Behaviour {
    /// Sends one message, then ends.
    Answer(Vec<u8>),
    /// Sends one message; the stream stays open.
    Stay(Vec<u8>),
    /// Ends without a message: a stream ends, and a call ends without the answer that it requires.
    End,
    Error(&'static str),
    Hang,
    Die,
}

pub(crate) struct RawPlugin {
    stop: CancellationToken,
    methods: Mutex<BTreeMap<&'static str, Behaviour>>,
    /// The called methods in order, with their requests.
    calls: watch::Sender<Vec<(String, Vec<u8>)>>,
}

impl RawPlugin {
    /// Serves at `socket` at once. A method that is missing is unimplemented.
    pub(crate) fn serve(
        socket: &Path,
        methods: impl IntoIterator<Item = (&'static str, Behaviour)>,
    ) -> Arc<Self> {
        let plugin = Arc::new(Self {
            stop: CancellationToken::new(),
            methods: Mutex::new(methods.into_iter().collect()),
            calls: watch::Sender::new(vec![]),
        });
        let (serving, socket) = (plugin.clone(), socket.to_owned());
        let (ready, is_ready) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().build().unwrap();
            runtime.block_on(serving.clone().run(&socket, ready));
        });
        is_ready.recv().unwrap();
        plugin
    }

    async fn run(self: Arc<Self>, socket: &Path, ready: std::sync::mpsc::Sender<()>) {
        let incoming = petiole_kubelet_api::uds::bind(socket).unwrap();
        ready.send(()).unwrap();
        let plugin = self.clone();
        let router = Router::new().fallback(move |request: Request<Body>| {
            let plugin = plugin.clone();
            async move { plugin.answer(request).await }
        });
        let server = tonic::transport::Server::builder().add_routes(router.into());
        tokio::select! {
            served = server.serve_with_incoming(incoming) => served.unwrap(),
            () = self.stop.cancelled() => {}
        }
    }

    pub(crate) fn set(&self, method: &'static str, behaviour: Behaviour) {
        self.methods.lock().unwrap().insert(method, behaviour);
    }

    pub(crate) fn was_called(&self, method: &str) -> bool {
        self.calls.borrow().iter().any(|(name, _)| name == method)
    }

    /// Returns the last request to `method`.
    pub(crate) fn last<M: Message + Default>(&self, method: &str) -> Option<M> {
        let calls = self.calls.borrow();
        let last = calls.iter().rev().find(|(name, _)| name == method)?;
        // The first five bytes contain its length.
        Some(M::decode(&last.1[5..]).unwrap())
    }

    /// Closes all its connections and sockets.
    pub(crate) fn die(&self) {
        self.stop.cancel();
    }

    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let method = request.uri().path().rsplit('/').next().unwrap().to_owned();
        let sent = axum::body::to_bytes(request.into_body(), 1 << 20).await;
        let sent = sent.unwrap().to_vec();
        let behaviour = self.methods.lock().unwrap().get(method.as_str()).cloned();
        self.calls.send_modify(|calls| calls.push((method, sent)));
        match behaviour {
            None => failed(12, "not implemented"),
            Some(Behaviour::Error(message)) => failed(2, message),
            Some(Behaviour::Answer(message)) => answered(vec![framed(&message), ended()], false),
            Some(Behaviour::Stay(message)) => answered(vec![framed(&message)], true),
            Some(Behaviour::End) => answered(vec![ended()], false),
            Some(Behaviour::Hang) => std::future::pending().await,
            Some(Behaviour::Die) => {
                self.die();
                std::future::pending().await
            }
        }
    }
}

fn framed(message: &[u8]) -> Frame<Bytes> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    Frame::data([&[0], length.as_slice(), message].concat().into())
}

fn ended() -> Frame<Bytes> {
    Frame::trailers(
        [("grpc-status".parse().unwrap(), "0".parse().unwrap())]
            .into_iter()
            .collect(),
    )
}

fn answered(frames: Vec<Frame<Bytes>>, stays: bool) -> Response<Body> {
    use futures::{StreamExt as _, stream};
    let frames = stream::iter(frames.into_iter().map(Ok::<_, Infallible>));
    let body = if stays {
        Body::new(StreamBody::new(frames.chain(stream::pending())))
    } else {
        Body::new(StreamBody::new(frames))
    };
    let response = Response::builder().header("content-type", "application/grpc");
    response.body(body).unwrap()
}

fn failed(code: u8, message: &str) -> Response<Body> {
    let response = Response::builder()
        .header("content-type", "application/grpc")
        .header("grpc-status", code.to_string())
        .header("grpc-message", message);
    response.body(Body::empty()).unwrap()
}
