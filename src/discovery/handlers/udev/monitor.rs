//! Receives the messages of the kernel and of udev about devices, over netlink.
//!
//! Only root of the machine can send them (`netlink(7)`), and they only say where to look.
use super::uevent::{self, Event};
use rustix::net::{
    AddressFamily, RecvFlags, SocketFlags, SocketType, bind, netlink, recv, socket_with, sockopt,
};
use std::{io, os::fd::OwnedFd};
use tokio::io::{Interest, unix::AsyncFd};

/// The groups of the kernel's own messages, and of the messages that udev sends after it has processed a device.
const GROUPS: u32 = 1 | 2;
/// The size of the receive queue: a burst of some thousand messages, each counted with its overhead.
const QUEUE_BYTES: usize = 2 << 20;
/// The largest message of the kernel or of udev, in bytes. The kernel's messages have 2 KiB of properties, and udev
/// adds to them. Beyond it: all devices are read again.
const MESSAGE_MAX: usize = 32 << 10;
/// The most messages that are taken at once. Beyond it: the others are taken next.
const BATCH_MAX: usize = 1024;

/// Reports what may have changed.
pub(super) trait Events: Send {
    /// Waits for the next events. Safe to cancel.
    fn next(&mut self) -> impl Future<Output = io::Result<Vec<Event>>> + Send;
}

pub(super) struct Monitor {
    socket: AsyncFd<OwnedFd>,
    message: Vec<u8>,
}

impl Monitor {
    /// Opens the socket and joins the groups.
    pub(super) fn open() -> io::Result<Self> {
        let socket = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            Some(netlink::KOBJECT_UEVENT),
        )?;
        // The system's limit may be lower. If messages are lost, everything is read again.
        sockopt::set_socket_recv_buffer_size(&socket, QUEUE_BYTES)?;
        bind(&socket, &netlink::SocketAddrNetlink::new(0, GROUPS))?;
        #[expect(
            deprecated,
            reason = "its successor is unsafe; an `OwnedFd` stays open until it is dropped, as that asks for"
        )]
        let socket = AsyncFd::with_interest(socket, Interest::READABLE)?;
        Ok(Self {
            socket,
            message: vec![0; MESSAGE_MAX],
        })
    }
}

impl Events for Monitor {
    async fn next(&mut self) -> io::Result<Vec<Event>> {
        loop {
            let mut ready = self.socket.readable().await?;
            let mut events = vec![];
            for _ in 0..BATCH_MAX {
                let received = ready.try_io(|socket| {
                    let flags = RecvFlags::TRUNC;
                    let (length, whole) = recv(socket, &mut *self.message, flags)?;
                    Ok((length, whole))
                });
                match received {
                    // The queue is empty.
                    Err(_) => break,
                    // A truncated message may be about any device.
                    Ok(Ok((length, whole))) if whole > length => events.push(Event::Anything),
                    Ok(Ok((length, _))) => events.extend(uevent::parse(&self.message[..length])),
                    Ok(Err(e)) if is_overflow(&e) => events.push(Event::Anything),
                    Ok(Err(e)) => return Err(e),
                }
            }
            if !events.is_empty() {
                return Ok(events);
            }
        }
    }
}

/// Returns whether the queue was full, so that messages are lost.
fn is_overflow(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error())
}
