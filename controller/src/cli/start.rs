//! `start`: the controller in the foreground, until SIGINT or SIGTERM.

use std::path::Path;
use std::rc::Rc;

use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};

use super::sessions::write_token_file;
use super::{Context, Wanted, print_json, print_lines};
use crate::config::Config;
use crate::control::{self, Opened};
use crate::controller::{Controller, SessionRequest};
use crate::dirs::{self, Dirs};
use crate::failure::{Failure, Outcome};
use crate::front::Penalty;
use crate::{listener, tls};

#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    wanted: Wanted,
    /// Where harnesses connect: ws://127.0.0.1:PORT or wss://ADDR:PORT; may be repeated
    #[arg(long, value_name = "URL")]
    listen: Vec<String>,
    /// Print one JSON object on one line when ready
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Ready<'a> {
    url: &'a str,
    control_socket: &'a Path,
    token_file: &'a Path,
    session: &'a str,
}

pub(super) async fn run(context: Context, args: Args) -> Outcome<u8> {
    let dirs = context.dirs()?;
    let config = Config::load(&context.environment, &context.overrides(args.listen.clone()))?;
    let run = dirs::open_private(&dirs.run, context.environment.uid)?;
    let lock = control::claim(&run, &dirs)?;
    let acceptor = config.tls.as_ref().map(tls::acceptor).transpose()?;
    let mut doors = Vec::new();
    for url in &config.listen {
        doors.push(listener::bind(url, acceptor.as_ref()).await?);
    }
    let watch =
        |kind| signal(kind).map_err(|error| Failure::internal(format_args!("cannot watch signals: {error}")));
    let (mut interrupt, mut terminate) = (watch(SignalKind::interrupt())?, watch(SignalKind::terminate())?);
    let mut hangup = watch(SignalKind::hangup())?;
    let controller = Controller::start(context.environment.clone(), dirs.clone(), config)?;
    let urls: Rc<[String]> = doors.iter().map(|door| door.url.to_string()).collect();
    if let Some(url) = urls.first() {
        controller.listens_at(url);
    }
    let unix = |name: &str| {
        listener::bind_unix(&run, name).map_err(|error| {
            Failure::config(format_args!("cannot listen on {name} in {}: {error}", dirs.run.display()))
        })
    };
    let (front, admin) = (unix("front.sock")?, unix("control.sock")?);
    let request = SessionRequest {
        persona: args.wanted.persona.clone(),
        workspace: args.wanted.workspace.as_ref().map(|path| context.environment.resolve(path)),
        cwd: context.environment.cwd.clone(),
        ttl: args.wanted.ttl()?,
        keep_idle: true,
    };
    let opened = match control::open(&controller, request, &urls).await {
        Ok(opened) => opened,
        Err(failure) => {
            controller.shut_down().await;
            return Err(failure);
        }
    };
    let token_file = write_token_file(&dirs, context.environment.uid, &opened.token)?;
    let penalty = Rc::<Penalty>::default();
    for door in doors {
        tokio::task::spawn_local(door.serve(Rc::clone(&controller), Rc::clone(&penalty)));
    }
    tokio::task::spawn_local(listener::serve_unix(front, Rc::clone(&controller), penalty));
    tokio::task::spawn_local(control::serve(admin, Rc::clone(&controller), Rc::clone(&urls)));
    announce(&dirs, &opened, &token_file, &controller, args.json)?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        // The terminal is gone.
        _ = hangup.recv() => {}
    }
    for name in ["token", "front.sock", "control.sock"] {
        let _ = rustix::fs::unlinkat(&run, name, rustix::fs::AtFlags::empty());
    }
    controller.shut_down().await;
    drop(lock);
    Ok(0)
}

fn announce(
    dirs: &Dirs,
    opened: &Opened,
    token_file: &Path,
    controller: &Controller,
    json: bool,
) -> Outcome<u8> {
    let url = opened.urls.first().map(String::as_str).unwrap_or_default();
    let control_socket = dirs.control_socket();
    if json {
        let session = opened.session.as_str();
        return print_json(&[Ready { url, control_socket: &control_socket, token_file, session }]);
    }
    let program = controller.environment.executable.display();
    print_lines(&[
        "Legion is ready.".to_owned(),
        format!("  exec-server  {}", opened.urls.join(", ")),
        format!("  session      {} until {:.0}", opened.session, opened.expires),
        format!("  token        in {}", token_file.display()),
        format!("  workspace    {}", opened.workspace.display()),
        format!("  audit        {}", dirs.audit().display()),
        String::new(),
        "Codex, once (writes environments.toml; afterwards codex works as ever, inside Legion):".to_owned(),
        format!("  {program} setup codex"),
        "A shell in the sandbox, and what was done there:".to_owned(),
        format!("  {program} exec --tty bash"),
        format!("  {program} audit tail -f"),
        "Stop with Ctrl-C.".to_owned(),
    ])
}
