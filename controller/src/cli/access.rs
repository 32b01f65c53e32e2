//! How `connect` and `exec` get a session: from the running controller, or from one embedded for their own lifetime.

use std::path::PathBuf;
use std::rc::Rc;

use tokio::net::UnixStream;
use tokio_tungstenite::WebSocketStream;

use super::{Context, Wanted, tell};
use crate::admission::Pending;
use crate::config::Config;
use crate::control::{self, Opened, Reply, Request};
use crate::controller::{Controller, SessionRequest};
use crate::dirs::{self, CONTROL_SOCKET};
use crate::failure::{Failure, Outcome};
use crate::front::{self, Door};
use crate::listener::{self, unix_actor};
use crate::session::EndReason;
use crate::tls;
use crate::websocket;

/// A session that ends with this value.
pub(super) struct Lease {
    /// What was opened.
    pub(super) opened: Opened,
    keep: Keep,
}

enum Keep {
    /// The lease is this connection: it is held, never read.
    Remote(#[allow(dead_code, reason = "dropping it ends the session")] control::Client),
    Embedded(Rc<Controller>),
    /// The controller of another lease.
    Shared(Rc<Controller>),
}

impl Lease {
    /// Opens a session. An explicit configuration or `.env` always means an embedded controller: a running one has its
    /// own.
    pub(super) async fn open(context: &Context, wanted: &Wanted) -> Outcome<Self> {
        if let Some(lease) = Self::of_running(context, wanted).await? {
            return Ok(lease);
        }
        let config = Config::load(&context.environment, &context.overrides(Vec::new()))?;
        Self::embed(context, config, wanted).await
    }

    /// A session of the running controller, when there is one and it is to be used.
    pub(super) async fn of_running(context: &Context, wanted: &Wanted) -> Outcome<Option<Self>> {
        let own_config = context.common.config.is_some() || context.common.env_file.is_some();
        let dirs = context.dirs()?;
        if !own_config && let Some(mut client) = control::Client::connect(&dirs.control_socket()).await {
            let SessionRequest { persona, workspace, cwd, ttl, .. } = request(context, wanted)?;
            let ttl_seconds = ttl.map(|ttl| ttl.as_secs());
            let request = Request::Open { persona, workspace, cwd, ttl_seconds, lease: true };
            return match client.ask(&request).await? {
                Reply::Opened(opened) => {
                    tell(&opened.notes);
                    Ok(Some(Self { opened, keep: Keep::Remote(client) }))
                }
                other => Err(Failure::internal(format_args!("the controller answered {other:?}"))),
            };
        }
        Ok(None)
    }

    /// Opens a session of a controller with this configuration, embedded for the session's lifetime.
    pub(super) async fn embed(context: &Context, config: Config, wanted: &Wanted) -> Outcome<Self> {
        let request = request(context, wanted)?;
        let connects = config.persona(request.persona.as_deref())?.connect.is_some();
        let controller = Controller::start(context.environment.clone(), context.dirs()?, config)?;
        let admin = listener::bind_unix(&controller.launcher.sockets, CONTROL_SOCKET)
            .map_err(|error| Failure::unavailable(format_args!("cannot listen for approvals: {error}")))?;
        tokio::task::spawn_local(control::serve(admin, Rc::clone(&controller), Rc::from([])));
        if connects {
            listen(&controller).await?;
        }
        let opened = match control::open(&controller, request, &[]).await {
            Ok(opened) => opened,
            Err(failure) => {
                controller.shut_down().await;
                return Err(failure);
            }
        };
        tell(&opened.notes);
        Ok(Self { opened, keep: Keep::Embedded(controller) })
    }

    /// One more session of an embedded controller; it ends before this one.
    pub(super) async fn another(&self, context: &Context, wanted: &Wanted) -> Outcome<Self> {
        let Keep::Embedded(controller) = &self.keep else {
            return Err(Failure::internal("the controller is not ours"));
        };
        let opened = control::open(controller, request(context, wanted)?, &[]).await?;
        Ok(Self { opened, keep: Keep::Shared(Rc::clone(controller)) })
    }

    /// The admin socket of the session's controller.
    pub(super) fn control_socket(&self) -> PathBuf {
        match &self.keep {
            Keep::Remote(_) => self.opened.front_socket.with_file_name(CONTROL_SOCKET),
            Keep::Embedded(controller) | Keep::Shared(controller) => {
                controller.dirs.embedded_control_socket()
            }
        }
    }

    /// A WebSocket to the session's exec-server, through the front door.
    pub(super) async fn websocket(&self) -> Outcome<WebSocketStream<UnixStream>> {
        let failed =
            |error: std::io::Error| Failure::unavailable(format_args!("cannot reach the session: {error}"));
        let stream = match &self.keep {
            Keep::Remote(_) => dirs::connect_unix(&self.opened.front_socket).await.map_err(failed)?,
            Keep::Embedded(controller) | Keep::Shared(controller) => {
                let (ours, theirs) = UnixStream::pair().map_err(failed)?;
                let door = Rc::new(Door { hosts: Vec::new(), query_token: false });
                let actor = unix_actor("embedded", &theirs);
                let place = Rc::<Pending>::default().enter().await;
                let serving = front::serve(Rc::clone(controller), Rc::default(), door, theirs, actor, place);
                tokio::task::spawn_local(serving);
                ours
            }
        };
        websocket::connect(stream, Some(&self.opened.token)).await.map_err(failed)
    }

    /// Ends the session and waits until nothing of it is left.
    pub(super) async fn release(&self) {
        let (Keep::Embedded(controller) | Keep::Shared(controller)) = &self.keep else { return };
        if let Some(session) = controller.session(&self.opened.session) {
            session.until_disconnected().await;
            if let Keep::Shared(_) = &self.keep {
                session.end(EndReason::ClientLeft);
                return session.gone().await;
            }
        }
        controller.shut_down().await;
    }

    /// Where on the host a path of the working directory lies in the session, when it lies in the workspace.
    pub(super) fn cwd_for(&self, host_cwd: &std::path::Path) -> PathBuf {
        let inside = host_cwd.canonicalize().ok().and_then(|cwd| {
            cwd.strip_prefix(&self.opened.workspace).ok().map(|rest| self.opened.cwd.join(rest))
        });
        inside.unwrap_or_else(|| self.opened.cwd.clone())
    }
}

fn request(context: &Context, wanted: &Wanted) -> Outcome<SessionRequest> {
    Ok(SessionRequest {
        persona: wanted.persona.clone(),
        workspace: wanted.workspace.as_ref().map(|path| context.environment.resolve(path)),
        cwd: context.environment.cwd.clone(),
        ttl: wanted.ttl()?,
        keep_idle: true,
    })
}

/// A harness in one sandbox reaches the session of the other through the first configured listener.
async fn listen(controller: &Rc<Controller>) -> Outcome<()> {
    let config = &controller.config;
    let acceptor = config.tls.as_ref().map(tls::acceptor).transpose()?;
    let url = config
        .listen
        .first()
        .ok_or_else(|| Failure::config("[controller] listen is empty: add a listener"))?;
    let door = listener::bind(url, acceptor.as_ref()).await?;
    controller.listens_at(&door.url.to_string());
    tokio::task::spawn_local(door.serve(Rc::clone(controller), Rc::default()));
    Ok(())
}
