//! The actions a step can be, as the case files write them.
//!
//! Invariant: a step has exactly one action member, and every other member belongs to that action.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::case::{Step, members};

/// What the answer to a request must be.
#[derive(Clone, Debug, Default)]
pub(crate) enum Expect {
    Result(Value),
    Error(Value),
    /// The result or the error, where a race decides.
    Either(Value, Value),
    /// The server drops the connection instead of answering.
    Dropped,
    #[default]
    Nothing,
}

/// One action with its members.
pub(crate) enum Action {
    Call(Call),
    Start(Start),
    Notify(Notify),
    Raw(Raw),
    Frames(Frames),
    Response(Response),
    Process(Process),
    Note(Note),
    Silence(Silence),
    Connect(Connect),
    /// The server drops this connection: no error, no Close frame.
    Dropped(OnlyOn),
    Drop(Hangup),
    Close(Close),
    Pong(Pong),
    Sizes(Sizes),
    File(File),
    Make(Make),
    Remove(Remove),
    Http(Http),
    Witness(Witness),
    Repeat(Repeat),
    Spawn(Spawn),
    EndStdin(EndStdin),
    Restart,
}

/// The members every action may have next to its own.
macro_rules! action {
    ($(#[$doc:meta])* $name:ident { $($(#[$attr:meta])* $field:ident: $type:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Deserialize)]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        #[allow(clippy::struct_field_names, reason = "the member that names the action is called like it")]
        pub(crate) struct $name {
            /// Name of the connection.
            #[serde(default = "first")]
            #[allow(dead_code, reason = "not every action is about a connection")]
            pub(crate) on: String,
            $($(#[$attr])* pub(crate) $field: $type,)*
        }
    };
}

fn first() -> String {
    "a".into()
}

action!(
    /// A request; waits for its answer unless `pending`.
    Call {
        call: String,
        params: Option<Value>,
        id: Option<Value>,
        /// Further members of the envelope, such as `trace`.
        envelope: Option<Map<String, Value>>,
        #[serde(default)]
        pending: bool,
        result: Option<Value>,
        error: Option<Value>,
        dropped: Option<bool>,
        /// Milliseconds the answer may take, lowest and highest.
        takes_ms: Option<[u64; 2]>,
        /// An error code after which the request is sent again, as the real client does (SPEC 11.7).
        retry_on: Option<i64>,
    }
);
action!(
    /// `process/start` with the members every case needs filled in.
    Start {
        start: String,
        /// Short for `argv: ["/bin/sh", "-c", sh]`.
        sh: Option<String>,
        bash: Option<String>,
        argv: Option<Value>,
        /// Further members of params; they replace the usual ones.
        #[serde(default)]
        with: Map<String, Value>,
        /// Members of params that are left out.
        #[serde(default)]
        without: Vec<String>,
        id: Option<Value>,
        #[serde(default)]
        pending: bool,
        result: Option<Value>,
        error: Option<Value>,
        dropped: Option<bool>,
    }
);
action!(Notify { notify: String, params: Option<Value> });
action!(
    /// A text message as it is.
    Raw { raw: Value }
);
action!(Frames { frames: Vec<FrameSpec> });
action!(Response { response: Value, result: Option<Value>, error: Option<Value>, takes_ms: Option<[u64; 2]> });
action!(
    /// Waits for a process to get as far as `until`, then compares.
    Process {
        process: String,
        /// `closed` (default), `exited`, or an object of stream → text that must have been seen.
        until: Option<Value>,
        stdout: Option<Value>,
        stderr: Option<Value>,
        pty: Option<Value>,
        exit_code: Option<i64>,
        sandbox_denied: Option<bool>,
        events: Option<Vec<String>>,
        chunk_max: Option<usize>,
        last_seq: Option<Value>,
    }
);
action!(
    /// The next notification that is not about a process.
    Note { note: String, params: Value }
);
action!(
    /// Nothing may arrive for a while; `why` says what would.
    Silence { silence: u64, why: String }
);
action!(
    /// Opens a connection; with `handshake` (default) or `resume` also initializes it.
    Connect {
        connect: String,
        handshake: Option<bool>,
        resume: Option<String>,
        /// Without a handshake: whether the case is going to resume a session by itself.
        #[serde(default)]
        resuming: bool,
    }
);
action!(
    /// `dropped`, which has no members of its own.
    OnlyOn { #[serde(rename = "dropped")] _flag: bool }
);
action!(
    /// Sends a Close frame and waits for the end of the connection.
    Close {
        #[serde(rename = "close")]
        _flag: bool,
        /// Status in the frame; none: an empty frame.
        status: Option<u16>,
        /// Whether the server answers with a Close frame of its own.
        #[serde(default)]
        answered: bool,
    }
);
action!(Hangup {
    drop: String,
    #[serde(default)]
    reset: bool
});
action!(Pong { pong: String });
action!(
    /// What has been received on the connection so far.
    Sizes { #[serde(rename = "sizes")] _flag: bool, largest_frame: Option<Value>, largest_message: Option<Value>, most_frames: Option<Value> }
);
action!(
    /// Looks at a path in the scratch directory.
    File {
        file: String,
        kind: Option<String>,
        text: Option<Value>,
        mode: Option<String>,
        link: Option<String>,
        size: Option<u64>,
        same_inode: Option<bool>,
    }
);
action!(Make { make: Map<String, Value> });
action!(Remove { remove: String });
action!(
    /// Raw HTTP requests on one new connection. `upgrade` entries are WebSocket handshakes.
    Http { http: Vec<Value>, replies: Vec<Value> }
);
action!(
    /// The loopback port `${witness}`: `connected`, `alive` or `gone`.
    Witness { witness: String }
);
action!(
    /// The steps again and again, with `${i}` counting from 0.
    Repeat { repeat: u64, steps: Vec<Step> }
);
action!(
    /// Runs the server binary with these arguments; `original` arguments come after the sub-command.
    Spawn {
        spawn: Vec<String>,
        /// First line of stdout that is waited for before anything else.
        line: Option<Value>,
        signal: Option<String>,
        /// Its exit code, or `{"signal": N}`.
        exit: Value,
        /// All of stdout after the first line, if one was waited for.
        stdout: Value,
        stderr: Option<Value>,
    }
);
action!(
    /// Ends the input of a stdio server and waits for its end.
    EndStdin { #[serde(rename = "endStdin")] _flag: bool, exit: i32 }
);

action!(
    /// Ends the case's own server and starts it again, on another port.
    Restart { #[serde(rename = "restart")] _flag: bool }
);

/// One WebSocket frame to send.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FrameSpec {
    pub(crate) opcode: u8,
    #[serde(default = "yes")]
    pub(crate) fin: bool,
    #[serde(default)]
    pub(crate) rsv: u8,
    #[serde(default = "yes")]
    pub(crate) masked: bool,
    #[serde(default)]
    pub(crate) payload: Value,
    /// Payload bytes that are not text.
    pub(crate) bytes: Option<Vec<u8>>,
}

const fn yes() -> bool {
    true
}

impl Action {
    /// Reads the one action of a step.
    pub(crate) fn parse(step: &Step) -> Result<Self, String> {
        const NAMES: [&str; 24] = [
            "call", "start", "notify", "raw", "frames", "response", "process", "note", "silence", "connect",
            "dropped", "drop", "close", "pong", "sizes", "file", "make", "remove", "http", "witness",
            "repeat", "spawn", "endStdin", "restart",
        ];
        let mut found = NAMES.iter().filter(|name| step.contains_key(**name));
        let name = match (found.next(), found.next()) {
            // `dropped` is an expectation when there is another action.
            (Some(name), None | Some(&"dropped")) => *name,
            _ => return Err(format!("want exactly one action in {}", Value::Object(step.clone()))),
        };
        Ok(match name {
            "call" => Self::Call(members(step)?),
            "start" => Self::Start(members(step)?),
            "notify" => Self::Notify(members(step)?),
            "raw" => Self::Raw(members(step)?),
            "frames" => Self::Frames(members(step)?),
            "response" => Self::Response(members(step)?),
            "process" => Self::Process(members(step)?),
            "note" => Self::Note(members(step)?),
            "silence" => Self::Silence(members(step)?),
            "connect" => Self::Connect(members(step)?),
            "dropped" | "close" | "sizes" | "endStdin" | "restart" if step[name] != true => {
                return Err(format!("{name} can only be true in {}", Value::Object(step.clone())));
            }
            "dropped" => Self::Dropped(members(step)?),
            "drop" => Self::Drop(members(step)?),
            "close" => Self::Close(members(step)?),
            "pong" => Self::Pong(members(step)?),
            "sizes" => Self::Sizes(members(step)?),
            "file" => Self::File(members(step)?),
            "make" => Self::Make(members(step)?),
            "remove" => Self::Remove(members(step)?),
            "http" => Self::Http(members(step)?),
            "witness" => Self::Witness(members(step)?),
            "spawn" => Self::Spawn(members(step)?),
            "endStdin" => Self::EndStdin(members(step)?),
            "restart" => members(step).map(|_: Restart| Self::Restart)?,
            _ => {
                let repeat: Repeat = members(step)?;
                repeat.steps.iter().try_for_each(|step| Self::parse(step).map(drop))?;
                Self::Repeat(repeat)
            }
        })
    }
}

/// The expectation among the members of a request; `default` stands for none of them.
pub(crate) fn expectation(
    result: Option<&Value>,
    error: Option<&Value>,
    dropped: Option<bool>,
) -> Result<Expect, String> {
    match (result, error, dropped) {
        (Some(result), None, None) => Ok(Expect::Result(result.clone())),
        (None, Some(error), None) => Ok(Expect::Error(error.clone())),
        (Some(result), Some(error), None) => Ok(Expect::Either(result.clone(), error.clone())),
        (None, None, Some(true)) => Ok(Expect::Dropped),
        (None, None, None) => Ok(Expect::Nothing),
        _ => Err("want one of result, error, dropped: true".into()),
    }
}
