//! An OPC UA server on `lo` that answers discovery, and one that accepts connections and says something else.
use petiole_opcua::Server;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

/// It ends when it is dropped.
pub struct OpcuaServer {
    pub port: u16,
    _serve: JoinSet<()>,
}

impl OpcuaServer {
    /// Serves what `server` says, on a free port, which it gets.
    pub async fn start(server: impl FnOnce(u16) -> Server) -> Self {
        let (listener, port) = listen().await;
        let server = server(port);
        let mut serve = JoinSet::new();
        serve.spawn(async move {
            let mut talks = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                talks.spawn(talk(server.clone(), socket));
            }
        });
        Self {
            port,
            _serve: serve,
        }
    }

    /// Sends `banner` to everyone, and nothing else.
    pub async fn other_program(banner: &'static str) -> Self {
        let (listener, port) = listen().await;
        let mut serve = JoinSet::new();
        serve.spawn(async move {
            let mut kept = vec![];
            while let Ok((mut socket, _)) = listener.accept().await {
                socket.write_all(banner.as_bytes()).await.unwrap();
                kept.push(socket);
            }
        });
        Self {
            port,
            _serve: serve,
        }
    }

    pub fn url(&self) -> String {
        format!("opc.tcp://127.0.0.1:{}/", self.port)
    }
}

async fn listen() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

async fn talk(server: Server, mut socket: TcpStream) {
    let mut bytes = vec![0; 8192];
    while let Ok(count @ 1..) = socket.read(&mut bytes).await {
        let said = server.receive(&bytes[..count]);
        if socket.write_all(&said).await.is_err() {
            return;
        }
    }
}
