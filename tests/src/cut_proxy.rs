//! A TCP relay whose connections can be cut, or held silent, on command: the bad network of SPEC 11.7.
//!
//! Invariant: bytes pass unchanged or not at all; after [`CutProxy::cut`] returns no connection through it is open.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::child::within;

/// Bytes per read.
const READ_SIZE: usize = 64 * 1024;

/// What the network does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Everything passes.
    Open,
    /// The client's bytes pass, the server's do not.
    RepliesHeld,
    /// Nothing passes; connections are closed as soon as they come.
    Cut,
}

/// Connections through the proxy.
#[derive(Debug, Default, Clone, Copy)]
struct Count {
    /// Ever relayed.
    total: usize,
    /// Open now.
    open: usize,
}

/// The running proxy. It ends when dropped.
#[derive(Debug)]
pub struct CutProxy {
    address: SocketAddr,
    mode: watch::Sender<Mode>,
    count: Arc<watch::Sender<Count>>,
    server: JoinHandle<()>,
}

impl CutProxy {
    /// Listens on a free loopback port and relays to `upstream`.
    pub async fn start(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("loopback has a free port");
        let address = listener.local_addr().expect("it is bound");
        let mode = watch::Sender::new(Mode::Open);
        let count = Arc::new(watch::Sender::new(Count::default()));
        let server = tokio::spawn(accept(listener, upstream, mode.clone(), Arc::clone(&count)));
        Self { address, mode, count, server }
    }

    /// `ws://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("ws://{}", self.address)
    }

    /// From now on the server's bytes do not reach the client.
    pub fn hold_replies(&self) {
        self.mode.send_replace(Mode::RepliesHeld);
    }

    /// Cuts all connections and lets no new one through. Returns once all are closed.
    pub async fn cut(&self) {
        self.mode.send_replace(Mode::Cut);
        self.wait_for("the connections are cut", |count| count.open == 0).await;
    }

    /// Everything passes again.
    pub fn mend(&self) {
        self.mode.send_replace(Mode::Open);
    }

    /// Waits until this many connections have been relayed since the start.
    pub async fn connections(&self, wanted: usize) {
        self.wait_for("the client connects", |count| count.total >= wanted).await;
    }

    async fn wait_for(&self, what: &str, reached: impl FnMut(&Count) -> bool) {
        let mut count = self.count.subscribe();
        within(what, count.wait_for(reached)).await.expect("the sender is ours");
    }
}

impl Drop for CutProxy {
    fn drop(&mut self) {
        self.mode.send_replace(Mode::Cut);
        self.server.abort();
    }
}

async fn accept(
    listener: TcpListener,
    upstream: SocketAddr,
    mode: watch::Sender<Mode>,
    count: Arc<watch::Sender<Count>>,
) {
    // The client under test is the only one who connects, and it waits 100 ms between attempts.
    while let Ok((client, _)) = listener.accept().await {
        if *mode.borrow() == Mode::Cut {
            continue;
        }
        let Ok(server) = TcpStream::connect(upstream).await else { continue };
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        count.send_modify(|count| *count = Count { total: count.total + 1, open: count.open + 1 });
        let (mode, count) = (mode.subscribe(), Arc::clone(&count));
        tokio::spawn(async move {
            relay(client, server, mode).await;
            count.send_modify(|count| count.open -= 1);
        });
    }
}

/// Relays until one side ends or the mode is [`Mode::Cut`]; both sockets are closed on return.
async fn relay(client: TcpStream, server: TcpStream, mode: watch::Receiver<Mode>) {
    let (client_read, client_write) = client.into_split();
    let (server_read, server_write) = server.into_split();
    let mut cut = mode.clone();
    tokio::select! {
        () = copy(client_read, server_write, None) => {}
        () = copy(server_read, client_write, Some(mode)) => {}
        _ = cut.wait_for(|mode| *mode == Mode::Cut) => {}
    }
}

async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut mode: Option<watch::Receiver<Mode>>) {
    let mut buffer = vec![0; READ_SIZE];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if let Some(mode) = &mut mode {
            // Held bytes are dropped by a cut, so this waits for nothing less. An error means that the proxy is gone.
            if mode.wait_for(|mode| *mode == Mode::Open).await.is_err() {
                break;
            }
        }
        if to.write_all(&buffer[..count]).await.is_err() {
            break;
        }
    }
}
