//! Every bound that only the exec-server knows, each with its reason. Bounds shared with the controller live in
//! `legion_protocol::limits`. Sizes are bytes, times are `Duration`s.

use std::time::Duration;

/// Connections that have not finished their HTTP upgrade. Beyond it the oldest gives way.
pub(crate) const MAX_PENDING_HANDSHAKES: usize = 32;

/// Time a handshake has before it may have to give way. An honest one takes milliseconds.
pub(crate) const HANDSHAKE_GRACE: Duration = Duration::from_millis(100);

/// Requests answered on one connection without an upgrade.
pub(crate) const MAX_REQUESTS_BEFORE_UPGRADE: usize = 16;

/// Upgraded connections at one time. A session has one; the rest is room for dead links not yet noticed.
pub(crate) const MAX_CONNECTIONS: usize = 256;

/// Pause after `accept` failed (no descriptors left): the next event that could help cannot be awaited.
pub(crate) const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Sessions kept, detached ones included. Beyond it the longest detached one is given up.
pub(crate) const MAX_SESSIONS: usize = 256;

/// Unfinished `process/*` entries of one session; the sandbox's own pid limit is lower.
pub(crate) const MAX_RUNNING_PROCESSES: usize = 16_384;

/// Ended processes that can still be read; beyond it the oldest vanish before their time to live.
pub(crate) const MAX_CLOSED_PROCESSES: usize = 16_384;

/// Memory held for ended processes of one session, all together: output, and ids of writes. Beyond it the oldest vanish
/// early.
pub(crate) const MAX_CLOSED_BYTES: usize = 64 << 20;

/// Chunks retained for one process besides the byte bound: single-byte chunks must not cost a multiple of their size.
pub(crate) const MAX_RETAINED_CHUNKS: usize = 32_768;

/// Output queued for one connection above which the pipes of its processes are not read. Small enough to stay in a
/// core's cache, large enough to keep the socket busy.
pub(crate) const OUTPUT_HIGH_WATER_BYTES: usize = 256 << 10;

/// Anything queued for one connection above which no more of its requests are read.
pub(crate) const OUTGOING_PAUSE_BYTES: usize = 16 << 20;

/// Requests of one connection that are being worked on, in bytes of their text. Two largest messages.
pub(crate) const MAX_REQUEST_BYTES_IN_FLIGHT: usize = 2 * legion_protocol::limits::MAX_MESSAGE_BYTES;

/// Messages taken from a connection before what they caused is sent.
pub(crate) const REQUEST_BATCH: usize = 64;

/// Reads at the exit of a process before `process/exited` is sent, so that its own last output comes first. A
/// background child that floods the pipe must not hold the exit back.
pub(crate) const MAX_READS_AT_EXIT: usize = 32;

/// Capacity asked for the pipe of a child that fills its default of 64 KiB: more lets it write while output is sent. Not
/// for all, because the pages of all pipes of a user are bounded.
pub(crate) const PIPE_CAPACITY_BYTES: usize = 256 << 10;

/// Bytes queued for the stdin of one process.
pub(crate) const STDIN_QUEUE_BYTES: u32 = 16 << 20;

/// Writes queued for the stdin of one process (SPEC 7.5).
pub(crate) const STDIN_QUEUE_WRITES: u32 = 128;

/// `writeId`s remembered for one process, newest kept. The original remembers at least 3000 (SPEC 7.5).
pub(crate) const MAX_WRITE_IDS: usize = 8192;

/// Memory one of them takes besides its text: a counted string, and its places in a set and in a queue.
pub(crate) const WRITE_ID_OVERHEAD_BYTES: usize = 80;

/// Longest `writeId`; clients count.
pub(crate) const MAX_WRITE_ID_BYTES: usize = 256;

/// Longest wait of `process/read`; a longer `waitMs` returns empty after it.
pub(crate) const MAX_READ_WAIT: Duration = Duration::from_hours(1);

/// Files up to this size are read and written at once on the event loop: quicker than handing them to a thread.
pub(crate) const INLINE_FILE_BYTES: usize = 64 << 10;

/// Bytes of a file that does not tell its size, as those of `/proc`: its answer has a place in the budget before it is
/// read.
pub(crate) const MAX_UNSIZED_FILE_BYTES: usize = 32 << 20;

/// Bytes read from a file at a time, a multiple of three so that base64 pieces join without padding.
pub(crate) const FILE_BLOCK_BYTES: usize = 192 << 10;

/// Memory that the long file operations of one connection may use at one time, in MiB. One largest `fs/readFile`
/// answer (683 MiB) fits.
pub(crate) const FILE_BUDGET_MIB: u32 = 768;

/// What a long operation without a known size (walk, copy, remove) takes of [`FILE_BUDGET_MIB`].
pub(crate) const TREE_COST_MIB: u32 = 32;

/// Files one connection may have open for block access, and the longest name of one (SPEC 8).
pub(crate) const MAX_FILE_HANDLES: usize = 128;
/// See [`MAX_FILE_HANDLES`].
pub(crate) const MAX_HANDLE_ID_BYTES: usize = 32;

/// Largest block of `fs/readBlock` and `fs/writeBlock` (SPEC 8).
pub(crate) const MAX_BLOCK_BYTES: usize = 1 << 20;

/// Paths of one `fs/watchMissing` (SPEC 8).
pub(crate) const MAX_WATCHED_PATHS: usize = 64;

/// Names one `fs/watchMissing` looks for on the way to its paths; a client needs a few dozen.
pub(crate) const MAX_WATCHED_NAMES: usize = 4096;

/// Links followed on the way to one path, as many as the kernel follows.
pub(crate) const MAX_LINKS: usize = 40;

/// Roots of one `capabilityRoots/discoverV1`, as in the original.
pub(crate) const MAX_CAPABILITY_ROOTS: usize = 128;

/// How a capability root is walked, as in the original: levels, directories, entries.
pub(crate) const CAPABILITY_WALK: (u64, u64, u64) = (6, 2000, 20_000);

/// One skill or manifest, as in the original.
pub(crate) const MAX_CAPABILITY_FILE_BYTES: usize = 1 << 20;

/// All texts found below one root, as in the original.
pub(crate) const MAX_CAPABILITY_ROOT_BYTES: usize = 16 << 20;

/// All texts of one answer: one a client can still take.
pub(crate) const MAX_CAPABILITY_BYTES: usize = 32 << 20;

/// Warnings of one root; the rest says nothing new.
pub(crate) const MAX_CAPABILITY_WARNINGS: usize = 1000;

/// Rules on paths of one `sandbox` object, once its patterns have been resolved.
pub(crate) const MAX_POLICY_RULES: usize = 4096;

/// Mount table of this process: in a sandbox it has some kilobytes.
pub(crate) const MAX_MOUNT_TABLE_BYTES: usize = 4 << 20;

/// Files and directories one pattern of a `sandbox` object is compared with.
pub(crate) const MAX_GLOB_ENTRIES: usize = 500_000;

/// Patterns that one with `{a,b}` stands for.
pub(crate) const MAX_GLOB_ALTERNATIVES: usize = 256;

/// Rules of one Landlock ruleset: names beside protected ones are granted one by one.
pub(crate) const MAX_LANDLOCK_RULES: usize = 16_384;

/// Confined commands at one time: each has a thread that answers its calls.
pub(crate) const MAX_BROKERS: usize = 512;

/// Stack of such a thread. What it works on is on the heap.
pub(crate) const BROKER_STACK_BYTES: usize = 256 << 10;

/// Confined file operations of one connection at one time, each on a thread of its own.
pub(crate) const MAX_CONFINED_OPERATIONS: usize = 8;

/// Stack of such a thread.
pub(crate) const OPERATION_STACK_BYTES: usize = 1 << 20;

/// `http/request`s of one connection at one time.
pub(crate) const MAX_HTTP_REQUESTS: usize = 64;

/// Threads that may wait for name servers: half of those for file operations.
pub(crate) const MAX_HTTP_LOOKUPS: usize = BLOCKING_THREADS / 2;

/// Addresses of one host that are tried.
pub(crate) const MAX_HTTP_ADDRESSES: usize = 16;

/// Wait for one address to answer before the next is tried.
pub(crate) const HTTP_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Redirections of one request that are followed, as in the original.
pub(crate) const MAX_HTTP_REDIRECTS: usize = 10;

/// Head of a response, and its header fields.
pub(crate) const MAX_HTTP_HEAD_BYTES: usize = 64 << 10;
/// See [`MAX_HTTP_HEAD_BYTES`].
pub(crate) const MAX_HTTP_HEADERS: usize = 128;

/// Body of a response that is returned as a whole: one whose base64 text a client can still take (SPEC 11.8).
pub(crate) const MAX_HTTP_BODY_BYTES: usize = 47 << 20;

/// Bodies of one connection that are read as a whole at one time.
pub(crate) const MAX_HTTP_BUFFERED_BYTES: usize = 128 << 20;

/// Bytes of a body in one `http/request/bodyDelta`.
pub(crate) const MAX_HTTP_DELTA_BYTES: usize = 64 << 10;

/// For a request without `timeoutMs`: until its headers are there, and its body when it is returned as a whole.
pub(crate) const HTTP_TIMEOUT: Duration = Duration::from_mins(10);

/// For a streamed body without `timeoutMs`: event streams stay open, but not for ever.
pub(crate) const HTTP_STREAM_TIMEOUT: Duration = Duration::from_hours(1);

/// Longest `timeoutMs` that counts.
pub(crate) const HTTP_MAX_TIMEOUT: Duration = Duration::from_hours(24);

/// PEM file of certificate authorities; those of distributions have a quarter of a MiB.
pub(crate) const MAX_CERTIFICATE_BYTES: usize = 8 << 20;

/// Threads for long file operations.
pub(crate) const BLOCKING_THREADS: usize = 8;

/// Nesting of a tree that `fs/remove` and `fs/copy` descend into; each level holds a descriptor.
pub(crate) const MAX_TREE_DEPTH: usize = 256;

/// Names of one directory that `fs/walk` looks at: to list them in order all have to be held.
pub(crate) const MAX_WALK_NAMES: usize = 200_000;

/// Paths in the answer of `fs/walk`, all together: a message a client can still take.
pub(crate) const MAX_WALK_PATH_BYTES: usize = 16 << 20;

/// Messages of this size leave memory behind that is worth giving back.
pub(crate) const LARGE_MESSAGE_BYTES: usize = 256 << 10;

/// Quiet time after the last large message before memory is given back.
pub(crate) const TRIM_AFTER: Duration = Duration::from_secs(1);

/// Default terminal (SPEC 7.1).
pub(crate) const TERMINAL_ROWS: u16 = 24;
/// See [`TERMINAL_ROWS`].
pub(crate) const TERMINAL_COLUMNS: u16 = 80;
