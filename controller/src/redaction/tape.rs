//! The output of one process on its way to somebody: secrets are taken out across the borders of its pieces. Pure.
//!
//! Invariant: pieces keep their numbers and their order; where nothing is found they stay as they are. A piece whose end
//! may be the beginning of a secret waits for more, at most as many bytes as the longest secret has; the caller bounds
//! the time.

use std::collections::{BTreeMap, VecDeque};

use legion_protocol::limits::RETAINED_OUTPUT_BYTES;
use legion_protocol::process::{ReadChunk, ReadResult, Stream};

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

/// What becomes of a piece.
#[derive(Debug, PartialEq, Eq)]
pub enum Passed {
    /// It goes on as it is.
    Same,
    /// These go on instead: none, while it waits; more, when others have waited for it.
    Instead(Vec<Piece>),
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
    last: u64,
    /// Bytes so far.
    total: u64,
    /// What was shown instead of a piece, and the total after it; for as long as it can be read again.
    changed: BTreeMap<u64, (Vec<u8>, u64)>,
    /// Numbers that were never seen, first and last.
    missed: Vec<(u64, u64)>,
}

impl Tape {
    /// Takes the next piece.
    pub fn push(&mut self, patterns: &Patterns, piece: Piece) -> Passed {
        self.count(&piece);
        if self.waiting.is_empty() {
            let (found, certain) = patterns.look(&piece.bytes);
            if found.is_empty() && certain == piece.bytes.len() {
                return Passed::Same;
            }
        }
        let stream = piece.stream;
        self.waiting.push_back(Waiting { piece, skip: 0, shown: None });
        self.settle(patterns, stream, false);
        Passed::Instead(self.release())
    }

    /// No more is waited for.
    pub fn flush(&mut self, patterns: &Patterns) -> Vec<Piece> {
        for stream in [Stream::Stdout, Stream::Stderr, Stream::Pty] {
            self.settle(patterns, stream, true);
        }
        self.release()
    }

    /// Whether pieces wait.
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// What a client reads again must be what it was shown, and what it missed is looked through now.
    pub fn reread(&self, patterns: &Patterns, read: &mut ReadResult) {
        if let Some(first) = self.waiting.front().map(|waiting| waiting.piece.seq)
            && let Some(at) = read.chunks.iter().position(|chunk| chunk.seq >= first)
        {
            read.chunks.truncate(at);
            read.next_seq = first;
            // More is to come.
            read.exited = false;
            read.closed = false;
            read.exit_code = None;
        }
        let mut unseen = Self::default();
        let mut fresh = BTreeMap::new();
        let mut keep =
            |pieces: Vec<Piece>| fresh.extend(pieces.into_iter().map(|piece| (piece.seq, piece.bytes)));
        for chunk in read.chunks.iter().filter(|chunk| !self.has_seen(chunk.seq)) {
            let ReadChunk { seq, stream, chunk } = chunk;
            let piece = Piece { seq: *seq, stream: *stream, bytes: chunk.0.clone() };
            if let Passed::Instead(pieces) = unseen.push(patterns, piece) {
                keep(pieces);
            }
        }
        keep(unseen.flush(patterns));
        for chunk in &mut read.chunks {
            if let Some(shown) =
                fresh.get(&chunk.seq).or_else(|| self.changed.get(&chunk.seq).map(|(shown, _)| shown))
            {
                chunk.chunk.0.clone_from(shown);
            }
        }
    }

    fn has_seen(&self, seq: u64) -> bool {
        seq <= self.last && !self.missed.iter().any(|(first, last)| (*first..=*last).contains(&seq))
    }

    fn count(&mut self, piece: &Piece) {
        if piece.seq > self.last + 1 {
            self.missed.push((self.last + 1, piece.seq - 1));
            if self.missed.len() > MAX_MISSED_RANGES {
                // What lies between was seen; looking through it once more does no harm.
                let (first, _) = self.missed.remove(0);
                self.missed[0].0 = first;
            }
        }
        self.last = self.last.max(piece.seq);
        self.total += piece.bytes.len() as u64;
        // One piece more than the exec-server keeps.
        let kept = 2 * RETAINED_OUTPUT_BYTES as u64;
        self.changed.retain(|_, (_, after)| self.total - *after <= kept);
    }

    /// Decides what is shown of the waiting pieces of a stream, as far as that is certain.
    fn settle(&mut self, patterns: &Patterns, stream: Stream, is_end: bool) {
        let open: Vec<usize> = (0..self.waiting.len())
            .filter(|at| self.waiting[*at].piece.stream == stream && self.waiting[*at].shown.is_none())
            .collect();
        let mut bytes = Vec::new();
        for at in &open {
            let Waiting { piece, skip, .. } = &self.waiting[*at];
            bytes.extend_from_slice(&piece.bytes[*skip..]);
        }
        let (found, certain) =
            if is_end { (patterns.look_at_all(&bytes), bytes.len()) } else { patterns.look(&bytes) };
        let mut start = 0;
        for at in open {
            let waiting = &mut self.waiting[at];
            let end = start + waiting.piece.bytes.len() - waiting.skip;
            if end <= certain {
                waiting.shown = Some(shown(&bytes, &found, start, end));
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

#[cfg(test)]
mod tests {
    use legion_protocol::Chunk;
    use proptest::prelude::*;

    use super::super::tests::patterns;
    use super::*;

    const SECRETS: [(&str, &str); 3] = [("A", "hunter22"), ("B", "er22-and-more"), ("C", "aaaaaa")];

    /// Pushes these and flushes; what came out, by number.
    fn play(pieces: &[Piece]) -> Vec<Piece> {
        let patterns = patterns(&SECRETS);
        let mut tape = Tape::default();
        let mut out = Vec::new();
        for piece in pieces {
            match tape.push(&patterns, piece.clone()) {
                Passed::Same => out.push(piece.clone()),
                Passed::Instead(pieces) => out.extend(pieces),
            }
        }
        out.extend(tape.flush(&patterns));
        out
    }

    fn pieces(text: &[u8], cuts: &[usize], stream: Stream) -> Vec<Piece> {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (text.len() + 1)).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let pairs = cuts.windows(2).zip(1..);
        pairs.map(|(pair, seq)| Piece { seq, stream, bytes: text[pair[0]..pair[1]].to_vec() }).collect()
    }

    fn joined(pieces: &[Piece], stream: Stream) -> String {
        let bytes: Vec<u8> = pieces
            .iter()
            .filter(|piece| piece.stream == stream)
            .flat_map(|piece| piece.bytes.clone())
            .collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    #[test]
    fn a_secret_is_found_wherever_it_is_cut() {
        let text = "it is hunter22, and hunter22-and-more";
        for cut in 0..text.len() {
            let shown = play(&pieces(text.as_bytes(), &[cut, cut + 1, cut + 3], Stream::Stdout));
            assert_eq!(
                joined(&shown, Stream::Stdout),
                "it is <redacted:A>, and <redacted:A>-and-more",
                "{cut}"
            );
            assert_eq!(shown.iter().map(|piece| piece.seq).collect::<Vec<_>>(), [1, 2, 3, 4]);
        }
    }

    #[test]
    fn what_does_not_begin_a_secret_does_not_wait() {
        let patterns = patterns(&SECRETS);
        let mut tape = Tape::default();
        let piece = |seq, bytes: &[u8]| Piece { seq, stream: Stream::Pty, bytes: bytes.to_vec() };
        assert_eq!(tape.push(&patterns, piece(1, b"$ ")), Passed::Same);
        assert_eq!(tape.push(&patterns, piece(2, b"echo hun")), Passed::Instead(Vec::new()));
        assert!(tape.is_waiting());
        let both = vec![piece(2, b"echo hun"), piece(3, b"dred")];
        assert_eq!(tape.push(&patterns, piece(3, b"dred")), Passed::Instead(both));
        assert!(!tape.is_waiting());
    }

    #[test]
    fn what_is_read_again_is_what_was_shown() {
        let patterns = patterns(&SECRETS);
        let mut tape = Tape::default();
        let chunk = |seq, text: &str| ReadChunk { seq, stream: Stream::Stdout, chunk: Chunk(text.into()) };
        let piece = |seq, text: &str| Piece { seq, stream: Stream::Stdout, bytes: text.into() };
        let read = |tape: &Tape, chunks: Vec<ReadChunk>| {
            let text = r#"{"chunks":[],"nextSeq":9,"exited":true,"exitCode":0,"closed":true,"failure":null,"sandboxDenied":false}"#;
            let mut read: ReadResult = serde_json::from_str(text).unwrap();
            read.chunks = chunks;
            tape.reread(&patterns, &mut read);
            let texts: Vec<_> =
                read.chunks.iter().map(|chunk| String::from_utf8(chunk.chunk.0.clone()).unwrap()).collect();
            (texts, read.next_seq, read.closed)
        };
        tape.push(&patterns, piece(1, "a hunt"));
        // While it waits it cannot be read either.
        assert_eq!(read(&tape, vec![chunk(1, "a hunt")]), (vec![], 1, false));
        tape.push(&patterns, piece(2, "er22 b"));
        let shown = vec!["a <redacted:A>".to_owned(), " b".to_owned()];
        assert_eq!(read(&tape, vec![chunk(1, "a hunt"), chunk(2, "er22 b")]), (shown, 9, true));
        assert_eq!(read(&tape, vec![chunk(2, "er22 b")]).0, [" b"]);
        // Three and four were missed.
        tape.push(&patterns, piece(5, "c"));
        let missed = vec![chunk(3, "hun"), chunk(4, "ter22"), chunk(5, "c"), chunk(6, "hunter22")];
        assert_eq!(read(&tape, missed).0, ["<redacted:A>", "", "c", "<redacted:A>"]);
    }

    proptest! {
        /// However it is cut, the same is shown as of the whole; without a secret nothing changes.
        #[test]
        fn pieces_are_shown_as_the_whole(
            words in prop::collection::vec(prop_oneof![
                Just("hunter22"), Just("hunter"), Just("er22-and-more"), Just("22-and"), Just("aaaa"), Just(" "), Just("x")], 0..12),
            cuts in prop::collection::vec(any::<usize>(), 0..12),
            others in prop::collection::vec(any::<bool>(), 12),
        ) {
            let text = words.concat();
            let whole = joined(&play(&pieces(text.as_bytes(), &[], Stream::Stdout)), Stream::Stdout);
            let cut = pieces(text.as_bytes(), &cuts, Stream::Stdout);
            prop_assert_eq!(&joined(&play(&cut), Stream::Stdout), &whole);
            prop_assert!(!whole.contains("hunter22") && !whole.contains("aaaaaa"));
            // Another stream in between changes neither.
            let mut mixed = Vec::new();
            for (piece, other) in cut.into_iter().zip(others.iter().cycle()) {
                mixed.push(Piece { seq: mixed.len() as u64 + 1, ..piece });
                if *other {
                    mixed.push(Piece { seq: mixed.len() as u64 + 1, stream: Stream::Stderr, bytes: b"hunt".to_vec() });
                }
            }
            let count = mixed.len() as u64;
            let shown = play(&mixed);
            prop_assert_eq!(&joined(&shown, Stream::Stdout), &whole);
            prop_assert_eq!(joined(&shown, Stream::Stderr), "hunt".repeat(joined(&shown, Stream::Stderr).len() / 4));
            prop_assert_eq!(shown.iter().map(|piece| piece.seq).collect::<Vec<_>>(), (1..=count).collect::<Vec<_>>());
        }
    }
}
