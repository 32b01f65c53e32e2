//! Every bound both tiers share, each with its reason. Sizes are bytes, times are `Duration`s.
//!
//! A bound that only one tier knows lives in that tier's own `limits` module.

use std::time::Duration;

/// Largest message accepted from a peer, in one frame or in fragments. The real client writes every request as one
/// frame and never sends a message above 64 MiB (SPEC 14).
pub const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// Largest frame sent to a client, and through the WebSocket library; longer messages are fragmented. The client drops a
/// connection at a 16 MiB frame (SPEC 11.8), pings pass between fragments, and the library moves what is left of its buffer
/// after each write to the socket: with one frame of 11 MiB that was half of the time of the controller. What is longer goes
/// to the exec-server past the library, as one frame.
pub const MAX_FRAGMENT_BYTES: usize = 256 << 10;

/// Read buffer of one WebSocket. The library's default of 128 KiB is zeroed for each read and makes a small round
/// trip 2.5 times slower.
pub const WEBSOCKET_READ_BUFFER_BYTES: usize = 16 << 10;

/// What the kernel is asked to hold of what was sent between the two tiers and not yet read; it gives what the system's
/// limit allows. With its default both sides wait for each other at every 200 KiB of a long message.
pub const SOCKET_SEND_BUFFER_BYTES: usize = 1 << 20;

/// Buffered outgoing bytes of one WebSocket before `feed` writes to the socket.
pub const WEBSOCKET_WRITE_BUFFER_BYTES: usize = 128 << 10;

/// Hard bound on the outgoing bytes of one WebSocket: one largest message and its frame headers.
pub const WEBSOCKET_MAX_WRITE_BUFFER_BYTES: usize = MAX_MESSAGE_BYTES * 2;

/// Most JSON values in one message (SPEC 14): its members, their members, and so on.
pub const MAX_JSON_VALUES: usize = 262_144;

/// Longest HTTP request head accepted before an upgrade.
pub const MAX_UPGRADE_HEAD_BYTES: usize = 8 << 10;

/// Most header fields accepted before an upgrade.
pub const MAX_UPGRADE_HEADERS: usize = 64;

/// Time a peer has to send its whole upgrade request.
pub const UPGRADE_TIMEOUT: Duration = Duration::from_secs(5);

/// Requests one connection may have in flight: enough for any client seen (64 at most), small enough to bound memory.
pub const MAX_REQUESTS_IN_FLIGHT: usize = 4096;

/// Retained output of one process, newest bytes kept (SPEC 7.4).
pub const RETAINED_OUTPUT_BYTES: usize = 1 << 20;

/// Raw output bytes put into one `process/output` frame; its base64 text stays below the frame bound.
pub const MAX_OUTPUT_CHUNK_BYTES: usize = 64 << 10;

/// How long a detached session lives, and how long an ended process can still be read (SPEC 3.2, 7.4). The client
/// tries to resume for 45 s.
pub const DETACHED_SESSION_TTL: Duration = Duration::from_secs(80);

/// See [`DETACHED_SESSION_TTL`].
pub const CLOSED_PROCESS_TTL: Duration = Duration::from_secs(80);

/// Idle interval after which the server pings (SPEC 1.4).
pub const PING_INTERVAL: Duration = Duration::from_secs(30);

/// Longest process id. Clients use `<number>-<uuid>`; the original accepts any string.
pub const MAX_PROCESS_ID_BYTES: usize = 8 << 10;

/// Largest file that `fs/readFile` returns (SPEC 8).
pub const MAX_READ_FILE_BYTES: u64 = 512 << 20;

/// Most entries that `fs/readDirectory` returns (SPEC 8).
pub const MAX_DIRECTORY_ENTRIES: usize = 50_000;

/// Upper bounds of the `fs/walk` options (SPEC 8).
pub const MAX_WALK_DEPTH: u64 = 64;
/// See [`MAX_WALK_DEPTH`].
pub const MAX_WALK_DIRECTORIES: u64 = 10_000;
/// See [`MAX_WALK_DEPTH`].
pub const MAX_WALK_ENTRIES: u64 = 50_000;

/// Largest JSON object handed over at start (`bootstrap`): environment and paths.
pub const MAX_BOOTSTRAP_BYTES: usize = 1 << 20;
