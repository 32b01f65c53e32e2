//! Output on its way down: what of it the harness gets, what is recorded, what watchers see.
//!
//! Invariant: the numbers and the order of pieces stay as the exec-server gave them; nothing here waits.

use legion_protocol::chunk::OutputFrameWriter;
use legion_protocol::process;
use tokio::time::Instant;

use super::Connection;
use crate::limits::REDACTION_HOLD;
use crate::redaction::tape::{self, Piece};

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
        let persona = &self.session.persona;
        !persona.redact && persona.record.is_none() && self.session.watchers.is_empty()
    }

    pub(super) fn output(&self, output: process::Output) -> Passed {
        let process::Output { process_id, seq, stream, chunk } = output;
        let piece = Piece { seq, stream, bytes: chunk.0 };
        let persona = &self.session.persona;
        if !persona.redact && persona.record.is_none() {
            self.session.show(&self.key(&process_id), &[piece]);
            return Passed::Same;
        }
        let passed = {
            let mut tapes = self.tapes.borrow_mut();
            let tape = tapes.entry(process_id.clone()).or_default();
            let passed = tape.push(self.controller.redactor.patterns(), piece.clone());
            if tape.is_waiting() && self.waiting_until.get().is_none() {
                self.waiting_until.set(Some(Instant::now() + REDACTION_HOLD));
            }
            passed
        };
        match passed {
            tape::Passed::Same => {
                self.session.show(&self.key(&process_id), &[piece]);
                Passed::Same
            }
            tape::Passed::Instead(pieces) => {
                let frames = self.shown(&process_id, &pieces);
                if persona.redact { Passed::Instead(frames) } else { Passed::Same }
            }
        }
    }

    fn shown(&self, process_id: &str, pieces: &[Piece]) -> Vec<String> {
        self.session.show(&self.key(process_id), pieces);
        let frame =
            |piece: &Piece| OutputFrameWriter::new(process_id, piece.stream).frame(piece.seq, &piece.bytes);
        if self.session.persona.redact { pieces.iter().map(frame).collect() } else { Vec::new() }
    }

    /// What of a process has waited for more, now that something else is said of it.
    pub(super) fn no_more_of(&self, process_id: &str) -> Vec<String> {
        let pieces = match self.tapes.borrow_mut().get_mut(process_id) {
            Some(tape) => tape.flush(self.controller.redactor.patterns()),
            None => return Vec::new(),
        };
        self.shown(process_id, &pieces)
    }

    /// What has waited long enough.
    pub(super) fn waited(&self) -> Vec<String> {
        self.waiting_until.set(None);
        let waiting: Vec<String> = {
            let tapes = self.tapes.borrow();
            tapes.iter().filter(|(_, tape)| tape.is_waiting()).map(|(id, _)| id.clone()).collect()
        };
        waiting.iter().flat_map(|process_id| self.no_more_of(process_id)).collect()
    }

    /// What a client reads again.
    pub(super) fn reread(&self, process_id: &str, read: &mut process::ReadResult) {
        let mut tapes = self.tapes.borrow_mut();
        let tape = tapes.entry(process_id.to_owned()).or_default();
        tape.reread(self.controller.redactor.patterns(), read);
    }
}
