//! `start`: the controller in the foreground, until SIGINT or SIGTERM.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;

use serde::Serialize;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::audit::tell_head;
use super::sessions::write_token_file;
use super::terminal::Keyboard;
use super::{Context, Wanted, print_json, print_lines, prompt, tell};
use crate::admission::Penalty;
use crate::config::Config;
use crate::control::{self, Opened};
use crate::controller::{Controller, SessionRequest};
use crate::dirs::{self, Dirs};
use crate::failure::{Failure, Outcome};
use crate::listener::{self, Bound};
use crate::tls;

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

/// What is in the run-time directory while the controller runs.
const RUNTIME_FILES: [&str; 3] = ["token", "front.sock", "control.sock"];

pub(super) async fn run(context: Context, args: Args) -> Outcome<u8> {
    let dirs = context.dirs()?;
    let config = Config::load(&context.environment, &context.overrides(args.listen.clone()))?;
    let request = SessionRequest {
        persona: args.wanted.persona.clone(),
        workspace: args.wanted.workspace.as_ref().map(|path| context.environment.resolve(path)),
        cwd: context.environment.cwd.clone(),
        ttl: args.wanted.ttl()?,
        keep_idle: true,
    };
    let run = dirs::open_private(&dirs.run, context.environment.uid)?;
    let lock = control::claim(&run, &dirs)?;
    let acceptor = config.tls.as_ref().map(tls::acceptor).transpose()?;
    let mut doors = Vec::new();
    for url in &config.listen {
        doors.push(listener::bind(url, acceptor.as_ref()).await?);
    }
    let stop = Stop::watch()?;
    let controller = Controller::start(context.environment, dirs, config)?;
    controller.tell_refusals();
    let served = serve(&controller, &run, doors, request, stop, args.json).await;
    for name in RUNTIME_FILES {
        let _ = rustix::fs::unlinkat(&run, name, rustix::fs::AtFlags::empty());
    }
    controller.shut_down().await;
    // What could not start says why in one line.
    if served.is_ok() {
        tell_head(&controller.dirs);
    }
    drop(lock);
    served.map(|()| 0)
}

/// Signals that end the controller.
struct Stop {
    interrupt: Signal,
    terminate: Signal,
    /// The terminal is gone; where there never was one, a wish to read the configuration again.
    hangup: Signal,
    had_terminal: bool,
}

impl Stop {
    fn watch() -> Outcome<Self> {
        let watch = |kind| {
            signal(kind).map_err(|error| Failure::internal(format_args!("cannot watch signals: {error}")))
        };
        Ok(Self {
            interrupt: watch(SignalKind::interrupt())?,
            terminate: watch(SignalKind::terminate())?,
            hangup: watch(SignalKind::hangup())?,
            had_terminal: prompt::has_terminal(),
        })
    }

    async fn wait(mut self, controller: &Controller) {
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => return,
                _ = self.terminate.recv() => return,
                _ = self.hangup.recv() => {}
            }
            if self.had_terminal && !prompt::has_terminal() {
                return;
            }
            controller.reload();
        }
    }
}

/// Opens the session and all doors, and serves until it is time to stop. The caller cleans up, whatever comes of it.
async fn serve(
    controller: &Rc<Controller>,
    run: &OwnedFd,
    doors: Vec<Bound>,
    request: SessionRequest,
    stop: Stop,
    json: bool,
) -> Outcome<()> {
    let dirs = &controller.dirs;
    let urls: Rc<[String]> = doors.iter().map(|door| door.url.to_string()).collect();
    if let Some(url) = urls.first() {
        controller.listens_at(url);
    }
    let unix = |name: &str| {
        listener::bind_unix(run, name).map_err(|error| {
            Failure::config(format_args!("cannot listen on {name} in {}: {error}", dirs.run.display()))
        })
    };
    let (front, admin) = (unix("front.sock")?, unix("control.sock")?);
    let opened = control::open(controller, request, &urls).await?;
    tell(&opened.notes);
    let token_file = write_token_file(dirs, controller.environment.uid, &opened.token)?;
    let penalty = Rc::<Penalty>::default();
    for door in doors {
        tokio::task::spawn_local(door.serve(Rc::clone(controller), Rc::clone(&penalty)));
    }
    tokio::task::spawn_local(listener::serve_unix(front, Rc::clone(controller), penalty));
    tokio::task::spawn_local(control::serve(admin, Rc::clone(controller), Rc::clone(&urls)));
    announce(dirs, &opened, &token_file, controller, json)?;
    tokio::select! {
        () = stop.wait(controller) => {}
        // Whoever watches the terminal is asked there, too.
        () = prompt::for_ever(dirs.control_socket(), None, Keyboard::default()), if !json => {}
    }
    Ok(())
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
