//! Unix sockets: bind one to serve gRPC on, dial one as a gRPC client.
