//! Listening sockets: loopback TCP, TLS, and the Unix socket `connect` and `exec` come through.

use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use legion_protocol::limits::UPGRADE_TIMEOUT;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::admission::{Penalty, Pending, Place};
use crate::audit::record::Actor;
use crate::config::ListenUrl;
use crate::controller::Controller;
use crate::dirs;
use crate::failure::{Failure, Outcome};
use crate::front::{self, Door};

/// Pause after a failed accept (descriptors used up): there is no event for one becoming free.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// A bound listener that does not accept yet.
pub struct Bound {
    /// With the real port.
    pub url: ListenUrl,
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
}

/// Binds a configured URL.
pub async fn bind(url: &ListenUrl, tls: Option<&TlsAcceptor>) -> Outcome<Bound> {
    let fail = |error: io::Error| {
        Failure::unavailable(format_args!(
            "cannot listen on {url}: {error}; choose another port, 0 takes a free one"
        ))
    };
    let listener = TcpListener::bind(url.address).await.map_err(fail)?;
    let address = listener.local_addr().map_err(fail)?;
    let tls = tls.filter(|_| url.tls).cloned();
    Ok(Bound { url: url.at(address), listener, tls })
}

impl Bound {
    /// Accepts for ever.
    pub async fn serve(self, controller: Rc<Controller>, penalty: Rc<Penalty>) {
        let address = self.url.address.ip();
        let mut hosts = vec![address.to_string()];
        if address.is_loopback() {
            hosts.extend(["localhost", "127.0.0.1", "::1"].map(str::to_owned));
        }
        hosts.extend(controller.config.hosts.iter().map(|host| host.to_ascii_lowercase()));
        let door = Rc::new(Door { hosts, query_token: self.url.query_token });
        let pending = Rc::<Pending>::default();
        loop {
            let (stream, peer) = match self.listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "accept failed");
                    sleep(ACCEPT_RETRY).await;
                    continue;
                }
            };
            let actor = Actor { door: "tcp", address: Some(peer.to_string()), ..Actor::default() };
            let place = pending.enter().await;
            let (controller, penalty, door) = (Rc::clone(&controller), Rc::clone(&penalty), Rc::clone(&door));
            tokio::task::spawn_local(serve_tcp(
                controller,
                penalty,
                door,
                stream,
                self.tls.clone(),
                actor,
                place,
            ));
        }
    }
}

async fn serve_tcp(
    controller: Rc<Controller>,
    penalty: Rc<Penalty>,
    door: Rc<Door>,
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    actor: Actor,
    mut place: Place,
) {
    // Small frames must not wait for the peer's delayed acknowledgement.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "the peer is gone already");
        return;
    }
    match tls {
        None => front::serve(controller, penalty, door, stream, actor, place).await,
        Some(tls) => match place.hold(timeout(UPGRADE_TIMEOUT, tls.accept(stream))).await {
            Some(Ok(Ok(stream))) => {
                Box::pin(front::serve(controller, penalty, door, stream, actor, place)).await;
            }
            Some(Ok(Err(error))) => {
                front::refuse_tls(&controller, &penalty, actor, &error.to_string()).await;
            }
            Some(Err(_)) => {
                let seconds = UPGRADE_TIMEOUT.as_secs();
                let reason = format!("no complete handshake within {seconds} s");
                front::refuse_tls(&controller, &penalty, actor, &reason).await;
            }
            None => penalty.count_dropped(),
        },
    }
}

/// Listens on a Unix socket in a private directory; a socket a dead controller left behind is replaced.
pub fn bind_unix(dir: &OwnedFd, name: &str) -> io::Result<UnixListener> {
    let _ = rustix::fs::unlinkat(dir, name, rustix::fs::AtFlags::empty());
    UnixListener::bind(dirs::socket_path(dir, name))
}

/// Accepts harnesses of this user on a Unix socket, for ever.
pub async fn serve_unix(listener: UnixListener, controller: Rc<Controller>, penalty: Rc<Penalty>) {
    let door = Rc::new(Door { hosts: Vec::new(), query_token: false });
    let pending = Rc::<Pending>::default();
    loop {
        let Some(stream) = accept_own(&listener, controller.environment.uid).await else { continue };
        let actor = unix_actor("unix", &stream);
        let place = pending.enter().await;
        let (controller, penalty, door) = (Rc::clone(&controller), Rc::clone(&penalty), Rc::clone(&door));
        tokio::task::spawn_local(front::serve(controller, penalty, door, stream, actor, place));
    }
}

/// The next peer of this user; `None` for a failed accept or another user's try.
pub async fn accept_own(listener: &UnixListener, uid: u32) -> Option<UnixStream> {
    match listener.accept().await {
        Ok((stream, _)) => match stream.peer_cred() {
            Ok(peer) if peer.uid() == uid || peer.uid() == 0 => Some(stream),
            _ => {
                tracing::warn!("another user tried a private socket");
                None
            }
        },
        Err(error) => {
            tracing::warn!(%error, "accept failed");
            sleep(ACCEPT_RETRY).await;
            None
        }
    }
}

/// Who is at the other end of a Unix socket.
pub fn unix_actor(door: &'static str, stream: &UnixStream) -> Actor {
    let peer = stream.peer_cred().ok();
    Actor {
        door,
        uid: peer.as_ref().map(tokio::net::unix::UCred::uid),
        pid: peer.as_ref().and_then(tokio::net::unix::UCred::pid),
        ..Actor::default()
    }
}
