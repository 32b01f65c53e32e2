//! A TCP relay whose connections can be cut, at once or after so many bytes, or held silent: the bad network of SPEC 11.7.
//!
//! Invariant: bytes pass unchanged or not at all; after [`CutProxy::cut`] returns no connection through it is open.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

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

/// How one connection is to end.
#[derive(Debug, Clone, Copy)]
pub struct Fate {
    /// Bytes that pass from the client to the server.
    pub up: usize,
    /// Bytes that pass from the server to the client.
    pub down: usize,
    /// Whether both sides see a reset instead of an end.
    pub reset: bool,
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
    fate: Arc<Mutex<Option<Fate>>>,
    server: JoinHandle<()>,
}

impl CutProxy {
    /// Listens on a free loopback port and relays to `upstream`.
    pub async fn start(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("loopback has a free port");
        let address = listener.local_addr().expect("it is bound");
        let mode = watch::Sender::new(Mode::Open);
        let count = Arc::new(watch::Sender::new(Count::default()));
        let fate = Arc::default();
        let network = Network { mode: mode.clone(), count: Arc::clone(&count), fate: Arc::clone(&fate) };
        let server = tokio::spawn(accept(listener, upstream, network));
        Self { address, mode, count, fate, server }
    }

    /// `ws://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("ws://{}", self.address)
    }

    /// From now on the server's bytes do not reach the client.
    pub fn hold_replies(&self) {
        self.mode.send_replace(Mode::RepliesHeld);
    }

    /// The next connection ends like this, as soon as it has passed what it may in one of the directions.
    pub fn end_next(&self, fate: Fate) {
        *self.fate.lock().unwrap_or_else(PoisonError::into_inner) = Some(fate);
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

/// What all connections share.
struct Network {
    mode: watch::Sender<Mode>,
    count: Arc<watch::Sender<Count>>,
    fate: Arc<Mutex<Option<Fate>>>,
}

async fn accept(listener: TcpListener, upstream: SocketAddr, network: Network) {
    let Network { mode, count, fate } = network;
    // The client under test is the only one who connects, and it waits 100 ms between attempts.
    while let Ok((client, _)) = listener.accept().await {
        if *mode.borrow() == Mode::Cut {
            continue;
        }
        let Ok(server) = TcpStream::connect(upstream).await else { continue };
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        count.send_modify(|count| *count = Count { total: count.total + 1, open: count.open + 1 });
        let (mode, count) = (mode.subscribe(), Arc::clone(&count));
        let fate = fate.lock().unwrap_or_else(PoisonError::into_inner).take();
        tokio::spawn(async move {
            relay(client, server, mode, fate).await;
            count.send_modify(|count| count.open -= 1);
        });
    }
}

/// Relays until one side ends, the mode is [`Mode::Cut`] or the connection meets its fate; both sockets are closed on
/// return.
async fn relay(client: TcpStream, server: TcpStream, mode: watch::Receiver<Mode>, fate: Option<Fate>) {
    let Fate { up, down, reset } = fate.unwrap_or(Fate { up: usize::MAX, down: usize::MAX, reset: false });
    if reset {
        let _ = (client.set_zero_linger(), server.set_zero_linger());
    }
    let (client_read, client_write) = client.into_split();
    let (server_read, server_write) = server.into_split();
    let mut cut = mode.clone();
    tokio::select! {
        () = copy(client_read, server_write, up, None) => {}
        () = copy(server_read, client_write, down, Some(mode)) => {}
        _ = cut.wait_for(|mode| *mode == Mode::Cut) => {}
    }
}

/// Copies at most `left` bytes.
async fn copy(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut left: usize,
    mut mode: Option<watch::Receiver<Mode>>,
) {
    let mut buffer = vec![0; READ_SIZE];
    while left > 0
        && let Ok(count @ 1..) = from.read(&mut buffer).await
    {
        if let Some(mode) = &mut mode {
            // Held bytes are dropped by a cut, so this waits for nothing less. An error means that the proxy is gone.
            if mode.wait_for(|mode| *mode == Mode::Open).await.is_err() {
                break;
            }
        }
        let count = count.min(left);
        if to.write_all(&buffer[..count]).await.is_err() {
            break;
        }
        left -= count;
    }
}
