//! The retained output of one process: a bounded log with one sequence counter for output, exit and close (SPEC 7.3,
//! 7.4). Pure.
//!
//! Invariant: sequence numbers start at 1 and are given out without a gap; retained chunks are the newest ones, whole,
//! in order. Bytes lie in one ring, so a chunk costs 16 bytes besides its own.

use std::collections::VecDeque;

use legion_protocol::Chunk;
use legion_protocol::limits::RETAINED_OUTPUT_BYTES;
use legion_protocol::process::{ReadChunk, ReadResult, Stream};

use super::denial;
use crate::limits::MAX_RETAINED_CHUNKS;

/// See the module.
#[derive(Debug)]
pub(crate) struct OutputLog {
    bytes: VecDeque<u8>,
    chunks: VecDeque<Retained>,
    next_seq: u64,
    exited: Option<Exit>,
    sandbox_denied: bool,
    closed: bool,
}

#[derive(Debug)]
struct Retained {
    seq: u64,
    length: u32,
    stream: Stream,
}

#[derive(Debug, Clone, Copy)]
struct Exit {
    seq: u64,
    code: i32,
}

impl Default for OutputLog {
    fn default() -> Self {
        Self {
            bytes: VecDeque::new(),
            chunks: VecDeque::new(),
            next_seq: 1,
            exited: None,
            sandbox_denied: false,
            closed: false,
        }
    }
}

impl OutputLog {
    /// Retains `bytes`, evicting the oldest chunks when there is no room, and returns their sequence number.
    /// Chunks are never longer than `MAX_OUTPUT_CHUNK_BYTES`, far below the retention.
    pub(crate) fn append(&mut self, stream: Stream, bytes: &[u8]) -> u64 {
        while self.bytes.len() + bytes.len() > RETAINED_OUTPUT_BYTES
            || self.chunks.len() >= MAX_RETAINED_CHUNKS
        {
            let Some(oldest) = self.chunks.pop_front() else { break };
            self.bytes.drain(..(oldest.length as usize).min(self.bytes.len()));
        }
        let seq = self.take_seq();
        self.bytes.extend(bytes);
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.chunks.push_back(Retained { seq, length, stream });
        seq
    }

    /// Notes the exit of the direct child; returns its sequence number.
    pub(crate) fn exit(&mut self, code: i32) -> u64 {
        let seq = self.take_seq();
        self.exited = Some(Exit { seq, code });
        seq
    }

    /// Notes whether a confined command that has failed blames that it is confined; to be told with its exit.
    pub(crate) fn look_for_denial(&mut self) -> bool {
        self.sandbox_denied = denial::is_told_by(self.bytes.as_slices());
        self.sandbox_denied
    }

    /// Notes that nothing will follow; returns the last sequence number.
    pub(crate) fn close(&mut self) -> u64 {
        self.closed = true;
        // What is retained now is final: give back the spare capacity, the entry may live on for its time to live.
        self.bytes.shrink_to_fit();
        self.chunks.shrink_to_fit();
        self.take_seq()
    }

    fn take_seq(&mut self) -> u64 {
        let seq = self.next_seq;
        self.next_seq += 1;
        seq
    }

    /// Whether the direct child was reaped.
    pub(crate) fn has_exited(&self) -> bool {
        self.exited.is_some()
    }

    /// Memory that holds what is retained.
    pub(crate) fn retained(&self) -> usize {
        self.bytes.len() + self.chunks.len() * size_of::<Retained>()
    }

    /// Whether `read` has something newer than `after`, or nothing will ever come: a long poll ends (SPEC 7.4).
    pub(crate) fn has_news(&self, after: u64) -> bool {
        self.closed
            || self.chunks.back().is_some_and(|chunk| chunk.seq > after)
            || self.exited.is_some_and(|exit| exit.seq > after)
    }

    /// The retained chunks after `after`, up to `max_bytes` but at least one.
    pub(crate) fn read(&self, after: u64, max_bytes: Option<u64>) -> ReadResult {
        let mut first = self.chunks.len();
        let mut offset = self.bytes.len();
        while first > 0 && self.chunks[first - 1].seq > after {
            first -= 1;
            offset -= (self.chunks[first].length as usize).min(offset);
        }
        let mut left = max_bytes.unwrap_or(u64::MAX);
        let mut chunks = Vec::new();
        let mut next_seq = self.next_seq;
        for retained in self.chunks.range(first..) {
            if u64::from(retained.length) > left && !chunks.is_empty() {
                next_seq = chunks.last().map_or(next_seq, |chunk: &ReadChunk| chunk.seq + 1);
                break;
            }
            left = left.saturating_sub(u64::from(retained.length));
            let end = (offset + retained.length as usize).min(self.bytes.len());
            let bytes = self.bytes.range(offset..end).copied().collect();
            offset = end;
            chunks.push(ReadChunk { seq: retained.seq, stream: retained.stream, chunk: Chunk(bytes) });
        }
        ReadResult {
            chunks,
            next_seq,
            exited: self.exited.is_some(),
            exit_code: self.exited.map(|exit| exit.code),
            closed: self.closed,
            failure: None,
            sandbox_denied: self.sandbox_denied,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_are_bounded_but_never_empty_when_there_is_output() {
        let mut log = OutputLog::default();
        for line in 1..=5 {
            log.append(Stream::Stdout, format!("line{line}\n").as_bytes());
        }
        let seqs = |after, max| {
            let result = log.read(after, max);
            (result.chunks.iter().map(|chunk| chunk.seq).collect::<Vec<_>>(), result.next_seq)
        };
        assert_eq!(seqs(0, None), (vec![1, 2, 3, 4, 5], 6));
        assert_eq!(seqs(2, Some(7)), (vec![3], 4));
        assert_eq!(seqs(0, Some(0)), (vec![1], 2));
        assert_eq!(seqs(0, Some(12)), (vec![1, 2], 3));
        assert_eq!(seqs(99, None), (vec![], 6));
    }

    #[test]
    fn exit_and_close_share_the_counter() {
        let mut log = OutputLog::default();
        assert!(!log.has_news(0));
        assert_eq!(log.append(Stream::Pty, b"x"), 1);
        assert!(log.has_news(0) && !log.has_news(1));
        assert_eq!(log.exit(7), 2);
        assert!(log.has_news(1) && !log.has_news(2));
        assert_eq!(log.append(Stream::Pty, b"late"), 3);
        assert_eq!(log.close(), 4);
        assert!(log.has_news(100));
        let result = log.read(3, None);
        assert_eq!((result.next_seq, result.exit_code, result.closed), (5, Some(7), true));
    }

    #[derive(Debug, Clone)]
    enum Step {
        Append(Stream, usize),
        Read(u64, Option<u64>),
        Exit,
    }

    fn any_step() -> impl Strategy<Value = Step> {
        let stream = prop_oneof![Just(Stream::Stdout), Just(Stream::Stderr)];
        // Up to the largest chunk, so that a few dozen steps evict.
        let append =
            (stream, prop_oneof![1usize..20, 30_000usize..65_536]).prop_map(|(s, n)| Step::Append(s, n));
        let read =
            (0u64..80, prop::option::of(0u64..200_000)).prop_map(|(after, max)| Step::Read(after, max));
        prop_oneof![6 => append, 2 => read, 1 => Just(Step::Exit)]
    }

    proptest! {
        /// Against a list that keeps everything: what is retained is a suffix of what was appended, byte for byte, at
        /// most the bound, never less than what fits, and reads are windows of it.
        #[test]
        fn the_log_is_the_newest_part_of_everything(steps in prop::collection::vec(any_step(), 1..80)) {
            let mut log = OutputLog::default();
            let mut all: Vec<(u64, Stream, Vec<u8>)> = Vec::new();
            let (mut next, mut exit) = (1, 0);
            for (index, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Append(stream, length) => {
                        let bytes: Vec<u8> = (0..length).map(|at| u8::try_from((at * 31 + index) % 251).unwrap()).collect();
                        prop_assert_eq!(log.append(stream, &bytes), next);
                        all.push((next, stream, bytes));
                        next += 1;
                    }
                    Step::Exit if !log.has_exited() => {
                        prop_assert_eq!(log.exit(0), next);
                        exit = next;
                        next += 1;
                    }
                    Step::Exit => {}
                    Step::Read(after, max) => {
                        let mut kept = all.len();
                        let mut size = 0;
                        while kept > 0 && size + all[kept - 1].2.len() <= RETAINED_OUTPUT_BYTES {
                            kept -= 1;
                            size += all[kept].2.len();
                        }
                        prop_assert_eq!(log.retained(), size + (all.len() - kept) * size_of::<Retained>());
                        let wanted: Vec<_> = all[kept..].iter().filter(|(seq, ..)| *seq > after).collect();
                        // Who waits is woken for exactly what a read would show.
                        prop_assert_eq!(log.has_news(after), !wanted.is_empty() || exit > after);
                        let result = log.read(after, max);
                        prop_assert!(result.chunks.len() <= wanted.len());
                        prop_assert!(!result.chunks.is_empty() || wanted.is_empty());
                        let mut taken = 0;
                        for (chunk, (seq, stream, bytes)) in result.chunks.iter().zip(&wanted) {
                            prop_assert_eq!((chunk.seq, chunk.stream), (*seq, *stream));
                            prop_assert_eq!(&chunk.chunk.0, bytes);
                            taken += bytes.len() as u64;
                        }
                        if result.chunks.len() == wanted.len() {
                            prop_assert_eq!(result.next_seq, next);
                        } else {
                            let cut = &wanted[result.chunks.len()];
                            prop_assert!(taken + cut.2.len() as u64 > max.unwrap());
                            prop_assert_eq!(result.next_seq, result.chunks.last().unwrap().seq + 1);
                        }
                        prop_assert!(result.chunks.len() <= 1 || taken <= max.unwrap_or(u64::MAX));
                    }
                }
            }
        }
    }
}
