//! The running commands of a session: what the audit, a listing and those who watch want to know of them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use tokio::time::Instant;

use super::recording::Recorder;
use super::{Session, millis};
use crate::audit::record::{Object, Outcome, Source};
use crate::audit::{Event, Record};
use crate::controller::Controller;
use crate::limits::MAX_SHOWN_COMMAND_CHARS;
use crate::redaction::tape::Piece;

/// A command as listings and recordings name it.
#[derive(Debug, Clone)]
pub struct Command {
    /// Its words, without secrets, shortened.
    pub text: String,
    /// Whether it has a terminal.
    pub is_terminal: bool,
    /// Columns and rows of the terminal.
    pub size: (u16, u16),
}

/// Columns and rows of a terminal nobody has resized (SPEC 7.1).
const SIZE: (u16, u16) = (80, 24);

impl Default for Command {
    fn default() -> Self {
        Self { text: String::new(), is_terminal: false, size: SIZE }
    }
}

impl Command {
    /// The command of a call that starts one.
    pub fn of(object: &Object, size: Option<(u16, u16)>) -> Option<Self> {
        let mut text = object.argv.as_ref()?.join(" ");
        if let Some((end, _)) = text.char_indices().nth(MAX_SHOWN_COMMAND_CHARS) {
            text.truncate(end);
            text.push('…');
        }
        Some(Self { text, is_terminal: object.tty == Some(true), size: size.unwrap_or(SIZE) })
    }
}

/// What names a command in a session: clients that are connected at the same time may use the same ids.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ProcessKey {
    /// The exec-server's name for the client, which outlives a connection.
    pub client: Rc<str>,
    /// The client's name for the command.
    pub id: String,
}

/// A command whose end the audit waits for.
pub struct RunningCommand {
    /// Number of its `call` record.
    pub call: u64,
    /// What it is.
    pub command: Command,
    /// When it was forwarded.
    pub started: Instant,
    /// Output seen so far.
    pub output_bytes: u64,
    /// Processes killed for want of memory before it began.
    memory_kills: u64,
    /// Which limit it was killed for, as the exec-server says.
    pub limit: Option<String>,
    /// Set once the direct child was reaped: its code and when.
    pub exited: Option<(i32, Instant)>,
    /// Its recording, when there is one.
    pub recorder: Option<Recorder>,
}

impl Session {
    /// The commands whose end is awaited.
    pub fn running(&self) -> &RefCell<HashMap<ProcessKey, RunningCommand>> {
        &self.running
    }

    /// Remembers a command that was started.
    pub fn track(
        &self,
        controller: &Controller,
        key: ProcessKey,
        call: u64,
        started: Instant,
        command: Command,
    ) {
        let recorder = self.persona.record.and_then(|_| self.recorder(controller, call, &command));
        let command = RunningCommand {
            call,
            command,
            started,
            output_bytes: 0,
            memory_kills: self.memory_kills(),
            limit: None,
            exited: None,
            recorder,
        };
        self.running.borrow_mut().insert(key, command);
    }

    fn recorder(&self, controller: &Controller, call: u64, command: &Command) -> Option<Recorder> {
        let (state, uid) = (&controller.dirs.state, controller.environment.uid);
        let room = Rc::clone(&self.record_room);
        let recorder = Recorder::start(state, uid, (&self.id, call), command, room);
        recorder.inspect_err(|error| tracing::error!(%error, "a command is not recorded")).ok()
    }

    /// Notes the size of a terminal; whether it is there.
    pub fn resized(&self, key: &ProcessKey, size: (u16, u16)) -> bool {
        let mut running = self.running.borrow_mut();
        let Some(command) = running.get_mut(key) else { return false };
        if let Some(recorder) = &mut command.recorder {
            recorder.resized(size);
        }
        true
    }

    /// Shows what a command printed to its recording and to those who watch.
    pub fn show(&self, key: &ProcessKey, pieces: &[Piece]) {
        let mut running = self.running.borrow_mut();
        let Some(command) = running.get_mut(key) else { return };
        for piece in pieces {
            if let Some(recorder) = &mut command.recorder {
                recorder.output(piece.stream, &piece.bytes);
            }
            self.watchers.output(command.call, piece.stream, &piece.bytes);
        }
    }

    /// Writes the outcome of every command whose end will not be seen any more.
    pub(super) fn close_running(&self, controller: &Controller, why: &str) {
        let running: Vec<_> = self.running.borrow_mut().drain().collect();
        for (key, mut command) in running {
            let pieces = self.tapes.find(&key, |tape| tape.flush(controller.redactor.patterns()));
            if let Some(recorder) = &mut command.recorder {
                pieces.iter().flatten().for_each(|piece| recorder.output(piece.stream, &piece.bytes));
            }
            self.note_end(controller, &key, &mut command, why);
        }
    }

    /// Writes the outcome of a command; `why` says what kept it from a seen end.
    pub fn note_end(
        &self,
        controller: &Controller,
        key: &ProcessKey,
        command: &mut RunningCommand,
        why: &str,
    ) {
        let has_gaps = self.tapes.find(key, |tape| tape.has_gaps());
        if let (Some(recorder), Some(true)) = (&mut command.recorder, has_gaps) {
            recorder.missed();
        }
        controller.note(&self.outcome_of(command, why));
        self.watchers.ended(command.call, command.exited.map(|(code, _)| code));
    }

    fn outcome_of(&self, command: &RunningCommand, why: &str) -> Record {
        let mut record = Record::new(Event::Outcome).of_session(&self.id);
        let (exit_code, end) = command.exited.map_or((None, Instant::now()), |(code, end)| (Some(code), end));
        record.call = Some(command.call);
        record.method = Some("process/start".to_owned());
        record.outcome = Some(Outcome {
            ok: Some(exit_code.is_some()),
            exit_code,
            output_bytes: Some(command.output_bytes),
            recording: command.recorder.as_ref().map(Recorder::done),
            duration_ms: Some(millis(end - command.started)),
            message: match exit_code {
                None => Some(why.to_owned()),
                Some(_) if self.memory_kills() > command.memory_kills => {
                    Some("the sandbox ran out of memory (limits.memory)".to_owned())
                }
                Some(_) => command.limit.clone(),
            },
            error: None,
        });
        record.source = if exit_code.is_some() { Source::ExecServer } else { Source::Controller };
        record
    }
}
