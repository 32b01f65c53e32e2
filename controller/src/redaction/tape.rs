//! The output of one process on its way to somebody: secrets are taken out across the borders of its pieces. Pure.
//!
//! Invariant: pieces keep their numbers and their order; where nothing is found they stay as they are. A piece whose end
//! may be the beginning of a secret waits for more, at most as many bytes as the longest secret has; what comes after pieces
//! that were missed waits for the client to read those; the caller bounds the time.

use std::collections::{BTreeMap, VecDeque};

use legion_protocol::limits::RETAINED_OUTPUT_BYTES;
use legion_protocol::process::{ReadChunk, ReadResult, Stream};

use super::wrapped::digits_at_end;
use super::{Patterns, shown};
use crate::limits::MAX_MISSED_RANGES;

/// One piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Its number in the output of the process.
    pub seq: u64,
    /// Where it came from.
    pub stream: Stream,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl Piece {
    fn of(chunk: &ReadChunk) -> Self {
        Self { seq: chunk.seq, stream: chunk.stream, bytes: chunk.chunk.0.clone() }
    }
}

/// What becomes of a piece.
#[derive(Debug, PartialEq, Eq)]
pub enum Passed {
    /// It goes on as it is.
    Same,
    /// These go on instead: none, while it waits; more, when others have waited for it.
    Instead(Vec<Piece>),
    /// It has been here before: this goes on once more.
    Again(Piece),
}

struct Waiting {
    piece: Piece,
    /// Bytes at its beginning that belong to a secret of a piece before.
    skip: usize,
    /// What is shown of it, once that is certain.
    shown: Option<Vec<u8>>,
}

/// The state between two pieces.
#[derive(Default)]
pub struct Tape {
    waiting: VecDeque<Waiting>,
    /// What came after pieces that were missed.
    ahead: VecDeque<Piece>,
    last: u64,
    /// Bytes so far.
    total: u64,
    /// Digits at the end of what is not waited with any more, by stream.
    digits: [usize; 3],
    /// What was shown instead of a piece, and the total after it; for as long as it can be read again.
    changed: BTreeMap<u64, (Vec<u8>, u64)>,
    /// Numbers that were never seen, first and last.
    missed: Vec<(u64, u64)>,
}

impl Tape {
    /// Takes the next piece.
    pub fn push(&mut self, patterns: &Patterns, piece: Piece) -> Passed {
        if piece.seq <= self.last {
            return self.again(piece);
        }
        if piece.seq > self.last + 1 {
            self.ahead.push_back(piece);
            let bytes: usize = self.ahead.iter().map(|piece| piece.bytes.len()).sum();
            // Who has not read what was missed by now will not get it any more.
            return Passed::Instead(if bytes > RETAINED_OUTPUT_BYTES {
                self.flush(patterns)
            } else {
                Vec::new()
            });
        }
        if self.waiting.is_empty() && self.ahead.is_empty() {
            let before = self.digits[slot(piece.stream)];
            let (found, certain) = patterns.look(&piece.bytes, before);
            if found.is_empty() && certain == piece.bytes.len() {
                self.count(&piece);
                self.digits[slot(piece.stream)] = digits_at_end(&piece.bytes, before);
                return Passed::Same;
            }
        }
        self.take(patterns, piece);
        self.go_on(patterns);
        Passed::Instead(self.release())
    }

    /// Something else had this number; what is missing before it was missed.
    pub fn skip(&mut self, seq: u64) {
        if seq > self.last + 1 {
            self.miss(self.last + 1, seq - 1);
        }
        self.last = self.last.max(seq);
    }

    /// Whether something was missed.
    pub fn has_gaps(&self) -> bool {
        !self.missed.is_empty()
    }

    /// No more is waited for.
    pub fn flush(&mut self, patterns: &Patterns) -> Vec<Piece> {
        self.reach(patterns, u64::MAX);
        self.settle_all(patterns);
        self.release()
    }

    /// Whether pieces wait.
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty() || !self.ahead.is_empty()
    }

    /// What a client reads again must be what it was shown, and what it missed is looked through now, together with what
    /// waited for that. Given back is what was missed, as it is shown here, and what of all that goes on besides.
    pub fn reread(&mut self, patterns: &Patterns, read: &mut ReadResult) -> (Vec<Piece>, Vec<Piece>) {
        for chunk in &read.chunks {
            if chunk.seq > self.last {
                // What is not here although it is before this one cannot be read any more.
                self.reach(patterns, chunk.seq);
                self.ahead.pop_front_if(|ahead| ahead.seq == chunk.seq);
                self.take(patterns, Piece::of(chunk));
            }
        }
        self.go_on(patterns);
        // Nothing comes any more, and nothing was left out here.
        if read.closed && read.chunks.last().is_none_or(|last| read.next_seq > last.seq + 1) {
            self.settle_all(patterns);
        }
        let mut fresh = self.look_at_missed(patterns, read);
        let is_read = |piece: &Piece| read.chunks.iter().any(|chunk| chunk.seq == piece.seq);
        let (missed, more): (Vec<_>, Vec<_>) = self.release().into_iter().partition(is_read);
        fresh.extend(missed.iter().map(|piece| (piece.seq, piece.bytes.clone())));
        self.cut_waiting(read);
        for chunk in &mut read.chunks {
            if let Some(shown) =
                fresh.get(&chunk.seq).or_else(|| self.changed.get(&chunk.seq).map(|(shown, _)| shown))
            {
                chunk.chunk.0.clone_from(shown);
            }
        }
        (missed, more)
    }

    /// What waits cannot be read either.
    fn cut_waiting(&self, read: &mut ReadResult) {
        let first = self.waiting.front().map(|waiting| waiting.piece.seq);
        let Some(first) = first.or_else(|| self.ahead.front().map(|piece| piece.seq)) else { return };
        if let Some(at) = read.chunks.iter().position(|chunk| chunk.seq >= first) {
            read.chunks.truncate(at);
            read.next_seq = first;
            // More is to come.
            read.exited = false;
            read.closed = false;
            read.exit_code = None;
        }
    }

    /// What is shown of the pieces that were missed for good.
    fn look_at_missed(&self, patterns: &Patterns, read: &ReadResult) -> BTreeMap<u64, Vec<u8>> {
        let mut fresh = BTreeMap::new();
        let mut unseen = Self::default();
        let mut keep =
            |pieces: Vec<Piece>| fresh.extend(pieces.into_iter().map(|piece| (piece.seq, piece.bytes)));
        let is_missed = |chunk: &&ReadChunk| chunk.seq <= self.last && !self.has_seen(chunk.seq);
        for chunk in read.chunks.iter().filter(is_missed) {
            if chunk.seq != unseen.last + 1 {
                keep(unseen.flush(patterns));
                unseen = Self { last: chunk.seq - 1, ..Self::default() };
            }
            if let Passed::Instead(pieces) = unseen.push(patterns, Piece::of(chunk)) {
                keep(pieces);
            }
        }
        keep(unseen.flush(patterns));
        fresh
    }

    fn again(&self, piece: Piece) -> Passed {
        let is_waiting = self.waiting.iter().any(|waiting| waiting.piece.seq == piece.seq);
        if is_waiting || !self.has_seen(piece.seq) {
            // It goes on when it does, or is read when it was given up.
            return Passed::Instead(Vec::new());
        }
        let bytes = self.changed.get(&piece.seq).map(|(shown, _)| shown.clone());
        Passed::Again(Piece { bytes: bytes.unwrap_or(piece.bytes), ..piece })
    }

    fn has_seen(&self, seq: u64) -> bool {
        seq <= self.last && !self.missed.iter().any(|(first, last)| (*first..=*last).contains(&seq))
    }

    fn miss(&mut self, first: u64, last: u64) {
        self.missed.push((first, last));
        if self.missed.len() > MAX_MISSED_RANGES {
            // What lies between was seen; looking through it once more does no harm.
            let (first, _) = self.missed.remove(0);
            self.missed[0].0 = first;
        }
        // What comes next does not go on where the last piece ended.
        self.digits = Default::default();
    }

    fn count(&mut self, piece: &Piece) {
        self.last = piece.seq;
        self.total += piece.bytes.len() as u64;
        // One piece more than the exec-server keeps.
        let kept = 2 * RETAINED_OUTPUT_BYTES as u64;
        self.changed.retain(|_, (_, after)| self.total - *after <= kept);
    }

    fn take(&mut self, patterns: &Patterns, piece: Piece) {
        self.count(&piece);
        let stream = piece.stream;
        self.waiting.push_back(Waiting { piece, skip: 0, shown: None });
        self.settle(patterns, stream, false);
    }

    /// Takes what waited for the pieces that have been taken now.
    fn go_on(&mut self, patterns: &Patterns) {
        let next = |ahead: &mut Piece, last: u64| ahead.seq <= last + 1;
        while let Some(piece) = self.ahead.pop_front_if(|ahead| next(ahead, self.last)) {
            if piece.seq > self.last {
                self.take(patterns, piece);
            }
        }
    }

    /// Gives up what was missed before this number.
    fn reach(&mut self, patterns: &Patterns, seq: u64) {
        while let Some(first) = self.ahead.front().map(|piece| piece.seq).filter(|first| *first < seq) {
            self.give_up(patterns, first);
            self.go_on(patterns);
        }
        if seq < u64::MAX {
            self.give_up(patterns, seq);
        }
    }

    fn give_up(&mut self, patterns: &Patterns, next: u64) {
        if next > self.last + 1 {
            self.settle_all(patterns);
            self.miss(self.last + 1, next - 1);
            self.last = next - 1;
        }
    }

    fn settle_all(&mut self, patterns: &Patterns) {
        for stream in [Stream::Stdout, Stream::Stderr, Stream::Pty] {
            self.settle(patterns, stream, true);
        }
    }

    /// Decides what is shown of the waiting pieces of a stream, as far as that is certain.
    fn settle(&mut self, patterns: &Patterns, stream: Stream, is_end: bool) {
        let open: Vec<usize> = (0..self.waiting.len())
            .filter(|at| self.waiting[*at].piece.stream == stream && self.waiting[*at].shown.is_none())
            .collect();
        let Some(first) = open.first().map(|at| &self.waiting[*at]) else { return };
        let before = digits_at_end(&first.piece.bytes[..first.skip], self.digits[slot(stream)]);
        let mut bytes = Vec::new();
        for at in &open {
            let Waiting { piece, skip, .. } = &self.waiting[*at];
            bytes.extend_from_slice(&piece.bytes[*skip..]);
        }
        let (found, certain) = if is_end {
            (patterns.look_at_all(&bytes, before), bytes.len())
        } else {
            patterns.look(&bytes, before)
        };
        let mut start = 0;
        for at in open {
            let waiting = &mut self.waiting[at];
            let end = start + waiting.piece.bytes.len() - waiting.skip;
            if end <= certain {
                waiting.shown = Some(shown(&bytes, &found, start, end));
                let digits = &mut self.digits[slot(stream)];
                *digits = digits_at_end(&waiting.piece.bytes, *digits);
            } else {
                // The secret that reaches into it was shown with the piece it began in.
                let reaching = found.iter().find(|found| found.start < start && found.end > start);
                waiting.skip += reaching.map_or(0, |found| found.end - start);
                return;
            }
            start = end;
        }
    }

    fn release(&mut self) -> Vec<Piece> {
        let mut pieces = Vec::new();
        while let Some(waiting) = self.waiting.pop_front() {
            let Some(shown) = waiting.shown else {
                self.waiting.push_front(waiting);
                break;
            };
            if shown != waiting.piece.bytes {
                self.changed.insert(waiting.piece.seq, (shown.clone(), self.total));
            }
            pieces.push(Piece { bytes: shown, ..waiting.piece });
        }
        pieces
    }
}

const fn slot(stream: Stream) -> usize {
    match stream {
        Stream::Stdout => 0,
        Stream::Stderr => 1,
        Stream::Pty => 2,
    }
}

#[cfg(test)]
mod tests;
