//! Replaces `:authority` before h2 reads it, which may be illegal.
//!
//! A grpc-go client that dials a bare path sends the path as `:authority: %2Fvar%2Flib…`, and h2 answers with
//! `RST_STREAM PROTOCOL_ERROR`. [`LegalAuthority`] wraps a connection and replaces the value by `localhost`. `rewriter`
//! follows the connection, `frames` parses its frames, and `header_block` parses their header fields. Everything else
//! passes unchanged: h2 rejects what is malformed.
use super::rewriter::Rewriter;
use std::{
    io,
    mem::MaybeUninit,
    pin::Pin,
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::server::Connected;

/// The number of bytes that one read takes from the socket. gRPC over these sockets consists of a few small messages.
const READ_LEN: usize = 8 * 1024;

/// The server's side of a connection, whose requests have a legal `:authority`, and `I` among their extensions.
pub struct LegalAuthority<S, I> {
    inner: S,
    info: I,
    rewriter: Rewriter,
    ended: bool,
    /// The end of whatever the connection belongs to.
    until: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

impl<S: Connected> LegalAuthority<S, S::ConnectInfo> {
    pub fn new(inner: S) -> Self {
        Self {
            info: inner.connect_info(),
            inner,
            rewriter: Rewriter::new(),
            ended: false,
            until: None,
        }
    }

    /// Ends the connection with `end`, as if the client had closed it.
    #[must_use]
    pub fn until(self, end: CancellationToken) -> Self {
        Self {
            until: Some(Box::pin(end.cancelled_owned())),
            ..self
        }
    }

    /// Gives the requests of the connection another extension than what the socket says of the client.
    #[must_use]
    pub fn with_info<I>(self, info: I) -> LegalAuthority<S, I> {
        LegalAuthority {
            inner: self.inner,
            info,
            rewriter: self.rewriter,
            ended: self.ended,
            until: self.until,
        }
    }
}

impl<S: AsyncRead + Unpin, I: Unpin> AsyncRead for LegalAuthority<S, I> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let Some(until) = &mut this.until
            && until.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Ok(()));
        }
        loop {
            let readable = this.rewriter.readable();
            // Nothing behind these bytes is touched: pages that nobody wrote to take no memory.
            let taken = readable.len().min(buf.remaining());
            buf.put_slice(&readable[..taken]);
            this.rewriter.consume(taken);
            if taken > 0 || this.ended || buf.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
            let mut chunk = [MaybeUninit::uninit(); READ_LEN];
            let mut chunk = ReadBuf::uninit(&mut chunk);
            ready!(Pin::new(&mut this.inner).poll_read(cx, &mut chunk))?;
            if chunk.filled().is_empty() {
                this.ended = true;
                this.rewriter.finish();
            } else {
                this.rewriter.push(chunk.filled());
            }
        }
    }
}

impl<S: AsyncWrite + Unpin, I: Unpin> AsyncWrite for LegalAuthority<S, I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

impl<S, I: Clone + Send + Sync + 'static> Connected for LegalAuthority<S, I> {
    type ConnectInfo = I;

    fn connect_info(&self) -> I {
        self.info.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    #[tokio::test]
    async fn a_reader_gets_all_that_came_before_the_end() {
        const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        const ILLEGAL: &[u8] = b"\x1b%2Fvar%2Flib%2Fkubelet.sock";
        const LOCALHOST: &[u8] = b"\x09localhost";
        let frame = |kind: u8, flags: u8, payload: &[u8]| {
            let [.., a, b, c] = payload.len().to_be_bytes();
            [&[a, b, c, kind, flags, 0, 0, 0, 1], payload].concat()
        };
        // The connection has HEADERS with `:method` and `:authority`, DATA, and a part of a frame header.
        let connection = |authority: &[u8]| {
            let block = [&[0x83, 0x11], authority].concat();
            let headers = frame(0x1, 0x4, &block);
            let data = frame(0x0, 0, &[7; 3 * READ_LEN]);
            [PREFACE, &headers, &data, &[0, 0, 1]].concat()
        };
        let input = connection(ILLEGAL);
        let (mut client, server) = duplex(input.len());
        client.write_all(&input).await.unwrap();
        drop(client);
        let mut read = Vec::new();
        let mut reader = LegalAuthority::new(server);
        reader.read_to_end(&mut read).await.unwrap();
        assert_eq!(read, connection(LOCALHOST));
    }

    #[tokio::test]
    async fn a_reader_whose_end_has_come_reads_no_further() {
        let (mut client, server) = duplex(8);
        client.write_all(b"PRI").await.unwrap();
        let end = CancellationToken::new();
        let mut reader = LegalAuthority::new(server).until(end.clone());
        let mut read = [0; 3];
        reader.read_exact(&mut read).await.unwrap();
        let waiting = reader.read(&mut read);
        let (read, ()) = tokio::join!(waiting, async { end.cancel() });
        assert_eq!(read.unwrap(), 0);
    }
}
