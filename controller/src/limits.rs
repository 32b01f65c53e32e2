//! The bounds only the controller knows, each with its reason. Shared ones are in `legion_protocol::limits`.

use std::time::Duration;

/// Life of a token when the caller names none: a working day.
pub const DEFAULT_TTL: Duration = Duration::from_hours(8);

/// Longest life of a token: a forgotten one must not outlive a month.
pub const MAX_TTL: Duration = Duration::from_hours(30 * 24);

/// A session nobody is connected to ends after this.
pub const DEFAULT_IDLE: Duration = Duration::from_mins(30);

/// Processes and threads of a sandbox, unless the persona says otherwise: room for a parallel build, not for a bomb.
pub const DEFAULT_PIDS: u64 = 4096;

/// Open files of one process inside, unless the persona says otherwise.
pub const DEFAULT_OPEN_FILES: u64 = 65_536;

/// In-memory file systems of a sandbox, unless the persona says otherwise. What is written there is memory.
pub const DEFAULT_TMP_BYTES: u64 = 1 << 30;
/// See [`DEFAULT_TMP_BYTES`].
pub const DEFAULT_HOME_BYTES: u64 = 1 << 30;
/// See [`DEFAULT_TMP_BYTES`].
pub const DEFAULT_SHM_BYTES: u64 = 256 << 20;

/// Directories looked through for paths to protect, outermost first: a monorepo's, not a package cache's.
pub const MAX_PROTECT_DIRECTORIES: usize = 20_000;

/// How deep protected paths are looked for.
pub const MAX_PROTECT_DEPTH: usize = 12;

/// Most protected paths of one workspace; each is a mount, twice.
pub const MAX_PROTECTED_PATHS: usize = 2_000;

/// New names tools on the host obey that are told of one sandbox, one record each.
pub const MAX_NEW_NAMES: usize = 256;

/// Of a git configuration made inside, at most this much is judged line by line; a larger one is set aside.
pub const MAX_DISARMED_CONFIG_BYTES: u64 = 1 << 20;

/// Names tried for something that is set aside, each used by an earlier session.
pub const MAX_SET_ASIDE_NAMES: usize = 100;

/// Sessions of one controller.
pub const MAX_SESSIONS: usize = 512;

/// Ended sessions remembered for `session list` and for telling "expired" from "unknown" in the audit.
pub const MAX_ENDED_SESSIONS: usize = 256;

/// Harness connections of one session: an agent and its subagents.
pub const MAX_CONNECTIONS_PER_SESSION: usize = 64;

/// Connections that have not finished their handshake, per listener. The oldest gives way to the next one.
pub const MAX_PENDING_HANDSHAKES: usize = 128;

/// Time a handshake has before it may have to give way. An honest one takes milliseconds; the backlog of a socket, 1024
/// silent peers, is through in a second.
pub const HANDSHAKE_GRACE: Duration = Duration::from_millis(100);

/// A refused handshake is answered this late, one at a time, so that guessing is slow for everybody together.
pub const REFUSAL_DELAY: Duration = Duration::from_millis(100);

/// Refused handshakes that wait for their answer; more are dropped unanswered and counted in the next record.
pub const MAX_WAITING_REFUSALS: usize = 32;

/// Time from spawning bwrap to the exec-server's first answer. It takes milliseconds; a loaded machine may need more.
pub const SANDBOX_START_TIMEOUT: Duration = Duration::from_secs(10);

/// Time a killed sandbox has to disappear before that is an error.
pub const SANDBOX_KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest line of bwrap's status.
pub const MAX_SANDBOX_STATUS_BYTES: usize = 4 << 10;

/// What is kept of bwrap's stderr, for the error message.
pub const MAX_SANDBOX_STDERR_BYTES: usize = 4 << 10;

/// Longest request or answer line on the control socket.
pub const MAX_CONTROL_LINE_BYTES: usize = 1 << 20;

/// Time a control client has to send its request.
pub const CONTROL_TIMEOUT: Duration = Duration::from_secs(10);

/// Connections to the control socket at once.
pub const MAX_CONTROL_CONNECTIONS: usize = 256;

/// Entries looked at in a client's own directory: a client keeps some dozens, not thousands.
pub const MAX_CLIENT_DIRECTORY_ENTRIES: usize = 4096;

/// Largest configuration file, and largest `.env`.
pub const MAX_CONFIG_BYTES: u64 = 1 << 20;

/// Variables in `.env`.
pub const MAX_ENV_FILE_VARIABLES: usize = 4096;

/// Secret values shorter than this are not searched for in records: `1` or `true` would blank out half a log.
pub const MIN_REDACTED_BYTES: usize = 6;

/// All forms of all secrets together, in bytes: what the automaton that finds them may cost in memory.
pub const MAX_PATTERN_BYTES: usize = 4 << 20;

/// Digits in a line from which on the next may go on where it ends: `xxd -p` prints 60, `openssl` 64, `base64` 76.
pub const MIN_WRAPPED_LINE: usize = 60;

/// States of output that are kept to show the same when it is read again; beyond it, those of running processes only.
pub const MAX_TAPES: usize = 1024;

/// How long output that may be the beginning of a secret waits for more.
pub const REDACTION_HOLD: Duration = Duration::from_secs(1);

/// Gaps remembered in the output of one process that a client may read again.
pub const MAX_MISSED_RANGES: usize = 64;

/// Characters of a command in a listing or a recording's title.
pub const MAX_SHOWN_COMMAND_CHARS: usize = 200;

/// Those who watch one session at once.
pub const MAX_WATCHERS: usize = 16;

/// Pieces of output on their way to one who watches.
pub const MAX_QUEUED_SHOWN: usize = 64;

/// Longest single text (an argument, a path) in an audit record; the rest is cut and its length and hash are kept.
pub const MAX_RECORD_TEXT_BYTES: usize = 8 << 10;

/// Most items of a list (arguments, environment names) in an audit record.
pub const MAX_RECORD_ITEMS: usize = 256;

/// Longest line of the audit log: the bound on a reader, far above what the two bounds before allow for honest calls.
pub const MAX_RECORD_LINE_BYTES: usize = 4 << 20;

/// Longest record in such a line: what is left beside its number and its two hashes.
pub const MAX_RECORD_BYTES: usize = MAX_RECORD_LINE_BYTES - 256;

/// Read at once from the end of a file of the audit log, to find its last record: more than most records have.
pub const AUDIT_TAIL_BYTES: u64 = 64 << 10;

/// Longest a file of the audit log gets unless the configuration says otherwise: what an editor still opens.
pub const DEFAULT_AUDIT_FILE_BYTES: u64 = 64 << 20;

/// Least the configuration may ask for: the records of a few calls.
pub const MIN_AUDIT_FILE_BYTES: u64 = 4 << 10;

/// Records between two signatures: a forger gains at most these.
pub const CHECKPOINT_RECORDS: u64 = 100;

/// Time after which fewer are signed.
pub const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(10);

/// Largest private key that is read; Ed25519 in PKCS#8 takes 83 bytes.
pub const MAX_KEY_BYTES: u64 = 4 << 10;

/// How far the clock may be put right without a record: what time services do all day.
pub const CLOCK_TOLERANCE: Duration = Duration::from_secs(1);

/// Records kept while nothing can be written; beyond it they are counted.
pub const MAX_KEPT_RECORDS: usize = 4 * MAX_DEFERRED_RECORDS;

/// Bytes of such records after which no more are kept: refused calls may be long.
pub const MAX_KEPT_RECORD_BYTES: usize = 16 << 20;

/// Records that could not be written are tried again so often.
pub const AUDIT_RETRY: Duration = Duration::from_secs(1);

/// Milliseconds between two records of what was lost.
pub const LOSS_INTERVAL: i64 = 10_000;

/// Records on their way to syslog.
pub const MAX_QUEUED_SYSLOG: usize = 4096;

/// Longest message to syslog: it must fit a datagram.
pub const MAX_SYSLOG_BYTES: usize = 60 << 10;

/// Time a receiver of syslog has to take a message.
pub const SYSLOG_TIMEOUT: Duration = Duration::from_secs(1);

/// After a failure nothing is sent for so long.
pub const SYSLOG_RETRY: Duration = Duration::from_secs(1);

/// Longest shell script that is taken apart; a longer one is opaque to the policy.
pub const MAX_SCRIPT_BYTES: usize = 64 << 10;

/// Most tokens of a script that is taken apart.
pub const MAX_SCRIPT_TOKENS: usize = 4096;

/// Constructs of a script that could lie in each other: the parser's time doubles with each.
pub const MAX_SCRIPT_NESTING: usize = 16;

/// Here-documents of one script that are looked at.
pub const MAX_HERE_DOCUMENTS: usize = 32;

/// How deep scripts in scripts and programs that run programs are followed.
pub const MAX_READING_DEPTH: usize = 16;

/// Programs of one command that are looked at.
pub const MAX_COMMAND_PARTS: usize = 256;

/// Words of one program that are looked at.
pub const MAX_COMMAND_WORDS: usize = 4096;

/// Rules of one persona, or of one workspace: each call is held against all of them.
pub const MAX_RULES: usize = 1024;

/// Calls of all sessions that wait for a person.
pub const MAX_QUESTIONS: usize = 128;

/// Of those, calls of one session: no agent takes the place of the others.
pub const MAX_SESSION_QUESTIONS: usize = 32;

/// Bytes of the frames that are kept meanwhile.
pub const MAX_HELD_BYTES: usize = 64 << 20;

/// Time a person has to answer unless the persona says otherwise: the agent waits as long.
pub const DEFAULT_ASK_TIMEOUT: Duration = Duration::from_mins(5);

/// Approvals remembered for the sessions of one controller.
pub const MAX_SESSION_GRANTS: usize = 4096;

/// Approvals for good of one user.
pub const MAX_SAVED_APPROVALS: usize = 1024;

/// Largest file of those.
pub const MAX_APPROVALS_BYTES: u64 = 4 << 20;

/// What a person is shown of a call.
pub const MAX_QUESTION_CHARS: usize = 2000;

/// Longest answer typed in a terminal.
pub const MAX_ANSWER_BYTES: usize = 256;

/// Controllers that have started meanwhile are looked for this often by `approvals watch`; who has a question and is not in
/// front of its terminal looks as often whether it is.
pub const APPROVALS_LOOK: Duration = Duration::from_secs(1);

/// Desktop notifications come this often at most.
pub const NOTIFY_INTERVAL: Duration = Duration::from_secs(2);

/// Time `notify-send` has to end.
pub const NOTIFY_TIMEOUT: Duration = Duration::from_secs(5);

/// Largest `.legion.toml`: the agent may write one.
pub const MAX_WORKSPACE_RULES_BYTES: u64 = 64 << 10;

/// Changes of a workspace's rules are looked at this often at most: taking them up costs up to a tenth of a second.
pub const WORKSPACE_RULES_INTERVAL: Duration = Duration::from_millis(300);

/// Tests in a configuration.
pub const MAX_RULE_TESTS: usize = 4096;

/// Paths of a workspace that `policy check` tries patterns on.
pub const MAX_CHECKED_PATHS: usize = 200_000;

/// What a person or a model is shown of one command or path.
pub const MAX_SHOWN_PART_CHARS: usize = 200;

/// Links followed on the way of one path, as the kernel counts them.
pub const MAX_LINKS: usize = 40;

/// Changes of one workspace not looked at yet; beyond it everything protected is looked at instead.
pub const MAX_QUEUED_CHANGES: usize = 65_536;

/// Outcomes kept back to be written together.
pub const MAX_DEFERRED_RECORDS: usize = 1024;

/// Messages of this size leave memory behind that is worth giving back.
pub const LARGE_MESSAGE_BYTES: usize = 256 << 10;

/// Quiet time after the last large message before memory is given back.
pub const TRIM_AFTER: Duration = Duration::from_secs(1);

/// Records written within this window share one `fdatasync`.
pub const AUDIT_COMMIT_WINDOW: Duration = Duration::from_millis(20);

/// How long the exec-server is still listened to after a harness left: commands it had killed end in milliseconds, and
/// one that resumes finds the session taken over at once.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Refusals and errors on their way to one harness.
pub const MAX_QUEUED_ANSWERS: usize = 256;

/// Open files of one connection whose blocks are recorded with their path: as many as the exec-server lets it have.
pub const MAX_TRACKED_HANDLES: usize = 128;

/// Processes of one session whose exit the audit waits for.
pub const MAX_TRACKED_PROCESSES: usize = 65_536;

/// Requests of one of our own clients that wait to be written to its connection.
pub const MAX_QUEUED_REQUESTS: usize = 64;

/// Events of one process that its reader has not taken; pieces of output have 64 KiB at most.
pub const MAX_QUEUED_EVENTS: usize = 16;

/// Tool calls of one harness at a time; more wait.
pub const MAX_TOOL_CALLS: usize = 64;

/// Refusals of one connection that are told in the terminal of `start`; an agent can try for ever.
pub const MAX_TOLD_REFUSALS: u32 = 50;

/// Connections of a harness's plugin, one a call; more wait.
pub const MAX_TOOL_CONNECTIONS: usize = 256;

/// A project's instructions for agents: they are in every request to the model.
pub const MAX_INSTRUCTIONS_BYTES: u64 = 256 << 10;

/// Text of one tool's answer, as the harnesses bound it: more would only push other things out of a model's memory.
pub const MAX_TOOL_OUTPUT_BYTES: usize = 50 << 10;

/// Time a command of the bash tool has when the model names none, as in the harnesses.
pub const DEFAULT_TOOL_TIMEOUT: Duration = Duration::from_mins(2);

/// Longest time a model may ask for.
pub const MAX_TOOL_TIMEOUT: Duration = Duration::from_hours(24);

/// Time a killed command has to be gone; the kernel needs milliseconds.
pub const TOOL_KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// Output that comes after a command has ended is of what it left in the background; it is waited for this long.
pub const TOOL_OUTPUT_GRACE: Duration = Duration::from_millis(200);

/// Lines that the read tool gives when the model names no number.
pub const DEFAULT_READ_LINES: u64 = 2000;

/// Characters of one line that the tools show.
pub const MAX_LINE_CHARS: usize = 2000;

/// Bytes the read tool looks through for the first line asked for.
pub const MAX_READ_SCAN_BYTES: u64 = 1 << 30;

/// Largest image handed to a model; what the providers take.
pub const MAX_IMAGE_BYTES: u64 = 5 << 20;

/// Output in one progress notification; older output that was not sent yet is left out.
pub const MAX_PROGRESS_BYTES: usize = 4 << 10;

/// Progress is sent this often at most.
pub const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// And at least this often, so that a client which waits for a sign of life goes on waiting.
pub const PROGRESS_HEARTBEAT: Duration = Duration::from_secs(10);

/// What a harness may call itself in the audit.
pub const MAX_CLIENT_NAME_BYTES: usize = 200;

/// Largest file that the edit and patch tools change; they take it as a whole.
pub const MAX_EDIT_BYTES: u64 = 16 << 20;

/// All files of one patch together, before and after it: they are held until every part is known to fit.
pub const MAX_PATCH_BYTES: usize = 64 << 20;

/// A file before and after a change, together, whose difference is shown on a screen; of larger ones the name is.
pub const MAX_SHOWN_CHANGE_BYTES: usize = 512 << 10;

/// Time to find the shortest difference; after it, one that is longer than it need be is shown.
pub const DIFF_TIMEOUT: Duration = Duration::from_millis(50);

/// Files of one glob and lines of one grep, as the harnesses bound them.
pub const MAX_FOUND: usize = 100;

/// What of all that was found is sorted by age; a search ends when it has found so much.
pub const MAX_SORTED: usize = 2000;
/// See [`MAX_SORTED`]; the names are handed to one command.
pub const MAX_SORTED_BYTES: usize = 256 << 10;

/// What is kept of one line that a search has found.
pub const MAX_FOUND_LINE_BYTES: usize = 16 << 10;

/// Time a command has to end after SIGTERM or SIGHUP was passed on, as service managers give; then its sandbox goes.
pub const TERMINATION_GRACE: Duration = Duration::from_secs(10);

/// Time to hand out the last output of a command that was told to end.
pub const LAST_OUTPUT_TIMEOUT: Duration = Duration::from_secs(1);

/// Time one of our own clients has to write its last messages when it leaves.
pub const FAREWELL_TIMEOUT: Duration = Duration::from_secs(1);

/// Time the calls of an MCP client that has nothing more to ask have to be answered; the SDK waits as long.
pub const LAST_ANSWERS_TIMEOUT: Duration = Duration::from_secs(5);

/// Time to reach a session's exec-server: above what the start of a sandbox is given.
pub const SESSION_CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// Time of one tool call about files; they take milliseconds, a search of a large tree seconds.
pub const TOOL_CALL_TIMEOUT: Duration = Duration::from_mins(5);
