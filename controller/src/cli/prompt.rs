//! Asking a person in a terminal.
//!
//! Invariant: only the keyboard of the terminal this process is in front of answers; keys pressed before a question is shown
//! do not count; what is shown cannot move the cursor.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::pin::pin;

use rustix::fs::{Mode, OFlags};
use rustix::process::getpgrp;
use rustix::termios::{LocalModes, OutputModes, QueueSelector, isatty, tcflush, tcgetattr, tcgetpgrp};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::streams::reader_left;
use super::terminal::Keyboard;
use super::{print_json, print_lines, table};
use crate::approvals::{Question, Scope};
use crate::control::{Client, Reply, Request};
use crate::dirs::Dirs;
use crate::failure::{Failure, Outcome};
use crate::limits::{APPROVALS_LOOK, MAX_ANSWER_BYTES, MAX_QUESTIONS};
use crate::sys;

/// The terminal of this process, opened on its own: stdin may be somebody else's.
struct Terminal {
    fd: AsyncFd<OwnedFd>,
    typed: Vec<u8>,
    /// Whether a command of ours reads it.
    keyboard: Keyboard,
}

impl Terminal {
    fn open(keyboard: Keyboard) -> Option<Self> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let fd = rustix::fs::open("/dev/tty", flags, Mode::empty()).ok()?;
        Some(Self { fd: sys::watch_fd(fd).ok()?, typed: Vec::new(), keyboard })
    }

    /// Whether its keyboard is ours; using it from the background would stop this process.
    fn is_ours(&self) -> bool {
        tcgetpgrp(self.fd.get_ref()).is_ok_and(|group| group == getpgrp())
    }

    /// Shows all of a text: what is not seen cannot be answered.
    async fn show(&self, text: &str) -> std::io::Result<()> {
        // In raw mode a line feed alone does not go to the left edge.
        let is_raw =
            tcgetattr(self.fd.get_ref()).is_ok_and(|modes| !modes.output_modes.contains(OutputModes::OPOST));
        let text = text.replace('\n', if is_raw { "\r\n" } else { "\n" });
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            let write = |fd: &OwnedFd| Ok(rustix::io::write(fd, rest)?);
            let written = self.fd.async_io(Interest::WRITABLE, write).await?;
            rest = rest.get(written..).unwrap_or_default();
        }
        Ok(())
    }

    fn forget_typed(&mut self) {
        self.typed.clear();
        let _ = tcflush(self.fd.get_ref(), QueueSelector::IFlush);
    }

    /// The next line, or the next key in raw mode. Dropping the future loses nothing.
    async fn answer(&mut self) -> std::io::Result<String> {
        loop {
            let mut ready = self.fd.ready(Interest::READABLE).await?;
            let mut buffer = [0u8; 64];
            let read = if self.is_ours() { rustix::io::read(self.fd.get_ref(), &mut buffer) } else { Ok(0) };
            match read {
                Ok(0) | Err(rustix::io::Errno::WOULDBLOCK) => ready.clear_ready(),
                Ok(count) => self.typed.extend_from_slice(&buffer[..count]),
                Err(error) => return Err(error.into()),
            }
            let by_line = tcgetattr(self.fd.get_ref())
                .is_ok_and(|modes| modes.local_modes.contains(LocalModes::ICANON));
            let is_whole = self.typed.ends_with(b"\n") || !by_line && !self.typed.is_empty();
            if is_whole || self.typed.len() > MAX_ANSWER_BYTES {
                let typed = std::mem::take(&mut self.typed);
                return Ok(String::from_utf8_lossy(&typed).trim().to_lowercase());
            }
        }
    }
}

/// Whether this process has a terminal that is still there.
pub(super) fn has_terminal() -> bool {
    rustix::fs::open("/dev/tty", OFlags::RDONLY | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).is_ok()
}

type News = (PathBuf, Option<Vec<Question>>);

/// The questions of some controllers.
struct Desk {
    lists: BTreeMap<PathBuf, Vec<Question>>,
    news: mpsc::Receiver<News>,
    sender: mpsc::Sender<News>,
    /// Only those of this session, when set.
    session: Option<String>,
    /// Where further controllers may appear.
    dirs: Option<Dirs>,
}

impl Desk {
    fn new(session: Option<String>, dirs: Option<Dirs>) -> Self {
        let (sender, news) = mpsc::channel(MAX_QUESTIONS);
        Self { lists: BTreeMap::new(), news, sender, session, dirs }
    }

    fn follow(&mut self, sockets: Vec<PathBuf>) {
        for socket in sockets {
            if !self.lists.contains_key(&socket) {
                self.lists.insert(socket.clone(), Vec::new());
                tokio::task::spawn_local(follow(socket, self.sender.clone()));
            }
        }
    }

    /// Resolves when something has changed. Dropping the future loses nothing.
    async fn changed(&mut self) {
        if let Some(dirs) = &self.dirs {
            let sockets = dirs.control_sockets();
            self.follow(sockets);
        }
        let look = async {
            match self.dirs {
                // Nothing tells of a socket in a directory that is still to be made.
                Some(_) => sleep(APPROVALS_LOOK).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Some((socket, list)) = self.news.recv() => {
                match list {
                    Some(list) => self.lists.insert(socket, list),
                    None => self.lists.remove(&socket),
                };
            }
            () = look => {}
        }
    }

    fn questions(&self) -> impl Iterator<Item = (&Path, &Question)> {
        let all =
            self.lists.iter().flat_map(|(socket, list)| list.iter().map(move |one| (socket.as_path(), one)));
        all.filter(|(_, question)| self.session.as_ref().is_none_or(|session| *session == question.session))
    }

    fn first(&self) -> Option<(PathBuf, Question)> {
        let first = self.questions().min_by_key(|(_, question)| question.asked)?;
        Some((first.0.to_owned(), first.1.clone()))
    }

    fn has(&self, id: &str) -> bool {
        self.questions().any(|(_, question)| question.id == id)
    }
}

/// Passes on what a controller tells, until it is gone.
async fn follow(socket: PathBuf, news: mpsc::Sender<News>) {
    if let Some(mut client) = Client::connect(&socket).await {
        let mut reply = client.ask(&Request::Questions { watch: true }).await;
        while let Ok(Reply::Questions(list)) = reply {
            if news.send((socket.clone(), Some(list))).await.is_err() {
                return;
            }
            reply = client.next().await;
        }
    }
    // Nobody listens any more.
    let _ = news.send((socket, None)).await;
}

/// Asks in the terminal whatever a controller asks, of one session when it is named. It never ends; without a terminal it
/// does nothing.
pub(super) async fn for_ever(socket: PathBuf, session: Option<String>, keyboard: Keyboard) {
    if let Some(terminal) = Terminal::open(keyboard) {
        let mut desk = Desk::new(session, None);
        desk.follow(vec![socket]);
        if let Err(failure) = ask(desk, terminal).await {
            tracing::warn!("no more questions in this terminal: {}", failure.message);
        }
    }
    std::future::pending::<()>().await;
}

/// `approvals watch`
pub(super) async fn watch(dirs: Dirs, json: bool) -> Outcome<()> {
    let mut desk = Desk::new(None, Some(dirs));
    if !json
        && isatty(rustix::stdio::stdout())
        && let Some(terminal) = Terminal::open(Keyboard::default())
    {
        return ask(desk, terminal).await;
    }
    let mut told: Vec<String> = Vec::new();
    let mut reader_left = pin!(reader_left());
    loop {
        let new: Vec<_> = desk
            .questions()
            .map(|(_, question)| question)
            .filter(|one| !told.contains(&one.id))
            .cloned()
            .collect();
        if json {
            print_json(&new)?;
        } else {
            print_lines(&new.iter().map(line).collect::<Vec<_>>())?;
        }
        told.retain(|id| desk.has(id));
        told.extend(new.into_iter().map(|question| question.id));
        tokio::select! {
            () = desk.changed() => {}
            () = &mut reader_left => return Ok(()),
        }
    }
}

fn line(question: &Question) -> String {
    let rule = question.rule.as_deref().unwrap_or("-");
    table::printable(&format!("{} {rule}: {} ({})", question.id, question.call, question.why))
}

async fn ask(mut desk: Desk, mut terminal: Terminal) -> Outcome<()> {
    const KEYS: &str = "[o]nce, [s]ession, [w]orkspace for good, [n]o? ";
    let mut shown = String::new();
    loop {
        let first = desk.first();
        let Some((socket, question)) = first.clone().filter(|_| terminal.is_ours()) else {
            tokio::select! {
                () = desk.changed() => {}
                // Nothing tells that a shell has put us in front.
                () = sleep(APPROVALS_LOOK), if first.is_some() => {}
            }
            continue;
        };
        let elsewhere = terminal.keyboard.is_handed_over();
        if shown != question.id {
            shown.clone_from(&question.id);
            let how = if elsewhere { answered_elsewhere(&question) } else { KEYS.to_owned() };
            if !elsewhere {
                terminal.forget_typed();
            }
            terminal.show(&format!("\n{}\n{how}", text(&question))).await.map_err(Failure::unavailable)?;
        }
        let typed = tokio::select! {
            typed = terminal.answer(), if !elsewhere => typed.map_err(Failure::unavailable)?,
            () = desk.changed() => {
                if !desk.has(&question.id) {
                    let _ = terminal.show("\n(answered elsewhere, or no longer asked)\n").await;
                }
                continue;
            }
        };
        let approve = match typed.as_str() {
            "o" | "once" | "y" | "yes" => Some(Scope::Once),
            "s" | "session" => Some(Scope::Session),
            "w" | "workspace" => Some(Scope::Workspace),
            "n" | "no" => None,
            _ => {
                terminal.show(&format!("\n{KEYS}")).await.map_err(Failure::unavailable)?;
                continue;
            }
        };
        let said = answer(&socket, &question, approve).await.unwrap_or_else(|failure| failure.message);
        terminal.show(&format!("{said}\n")).await.map_err(Failure::unavailable)?;
        while desk.has(&question.id) {
            desk.changed().await;
        }
    }
}

/// What is said of a question where the keyboard is a command's.
fn answered_elsewhere(question: &Question) -> String {
    format!("answer in another terminal: legion-controller approvals approve {0}, or deny {0}\n", question.id)
}

async fn answer(socket: &Path, question: &Question, approve: Option<Scope>) -> Outcome<String> {
    let gone = || Failure::unavailable("the controller is gone");
    let mut client = Client::connect(socket).await.ok_or_else(gone)?;
    client.ask(&Request::Answer { id: question.id.clone(), approve }).await?;
    Ok(approve.map_or("denied".to_owned(), |scope| format!("approved {}", scope.text())))
}

/// A question as a person reads it.
fn text(question: &Question) -> String {
    let mut lines = vec![format!("Legion: an agent asks ({})", question.id), format!("  {}", question.call)];
    lines.extend(question.cwd.as_ref().map(|cwd| format!("  in {cwd}, workspace {}", question.workspace)));
    let rule = question.rule.as_ref().map(|rule| format!("rule {rule}: ")).unwrap_or_default();
    lines.push(format!("  {rule}{}", question.why));
    lines.iter().map(|line| table::printable(line)).collect::<Vec<_>>().join("\n")
}
