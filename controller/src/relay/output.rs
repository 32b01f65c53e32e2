//! Output on its way down: what of it the harness gets, what is recorded, what watchers see.
//!
//! Invariant: the numbers and the order of pieces stay as the exec-server gave them; nothing here waits.

use legion_protocol::chunk::OutputFrameWriter;
use legion_protocol::process;
use tokio::time::Instant;

use super::Connection;
use crate::limits::REDACTION_HOLD;
use crate::redaction::Patterns;
use crate::redaction::tape::{self, Piece, Tape};

/// What is forwarded for a frame.
pub(super) enum Passed {
    /// The same bytes.
    Same,
    /// Other frames, or none.
    Instead(Vec<String>),
}

impl From<bool> for Passed {
    fn from(forward: bool) -> Self {
        if forward { Self::Same } else { Self::Instead(Vec::new()) }
    }
}

impl Connection {
    /// Whether output need not be looked at.
    pub(super) fn is_plain(&self) -> bool {
        !self.is_looked_through() && self.session.watchers.is_empty()
    }

    /// Whether secrets are looked for in output.
    pub(super) fn is_looked_through(&self) -> bool {
        self.session.persona.redact || self.session.persona.record.is_some()
    }

    pub(super) fn output(&self, output: process::Output) -> Passed {
        let process::Output { process_id, seq, stream, chunk } = output;
        let piece = Piece { seq, stream, bytes: chunk.0 };
        let persona = &self.session.persona;
        if !self.is_looked_through() {
            self.session.show(&self.key(&process_id), &[piece]);
            return Passed::Same;
        }
        let passed = self.with_tape(&process_id, |tape, patterns| tape.push(patterns, piece.clone()));
        match passed {
            tape::Passed::Same => {
                self.session.show(&self.key(&process_id), &[piece]);
                Passed::Same
            }
            tape::Passed::Again(piece) if persona.redact => Passed::Instead(vec![frame(&process_id, &piece)]),
            tape::Passed::Again(_) => Passed::Same,
            tape::Passed::Instead(pieces) => {
                let frames = self.shown(&process_id, &pieces);
                if persona.redact { Passed::Instead(frames) } else { Passed::Same }
            }
        }
    }

    /// Does something with the tape of a process; what waits then waits only so long.
    fn with_tape<T>(&self, process_id: &str, act: impl FnOnce(&mut Tape, &Patterns) -> T) -> T {
        let patterns = self.controller.redactor.patterns();
        self.session.tapes.with(&self.key(process_id), self.session.running(), |tape| {
            let done = act(tape, patterns);
            if tape.is_waiting() && self.waiting_until.get().is_none() {
                self.waiting_until.set(Some(Instant::now() + REDACTION_HOLD));
            }
            done
        })
    }

    fn shown(&self, process_id: &str, pieces: &[Piece]) -> Vec<String> {
        self.session.show(&self.key(process_id), pieces);
        let frames = pieces.iter().map(|piece| frame(process_id, piece));
        if self.session.persona.redact { frames.collect() } else { Vec::new() }
    }

    /// What of a process has waited for more, now that something else is said of it.
    pub(super) fn no_more_of(&self, process_id: &str) -> Vec<String> {
        let patterns = self.controller.redactor.patterns();
        let pieces = self.session.tapes.find(&self.key(process_id), |tape| tape.flush(patterns));
        pieces.map_or_else(Vec::new, |pieces| self.shown(process_id, &pieces))
    }

    /// What has waited long enough.
    pub(super) fn waited(&self) -> Vec<String> {
        self.waiting_until.set(None);
        let waiting = self.session.tapes.waiting(&self.client.borrow());
        waiting.iter().flat_map(|process_id| self.no_more_of(process_id)).collect()
    }

    /// What a client reads again, and what goes on besides now that it has.
    pub(super) fn reread(&self, process_id: &str, read: &mut process::ReadResult) -> Vec<String> {
        let (missed, more) = self.with_tape(process_id, |tape, patterns| tape.reread(patterns, read));
        self.session.show(&self.key(process_id), &missed);
        self.shown(process_id, &more)
    }
}

fn frame(process_id: &str, piece: &Piece) -> String {
    OutputFrameWriter::new(process_id, piece.stream).frame(piece.seq, &piece.bytes)
}
