//! What a model says in the Responses API: the output items that the tests' scripts are made of.
//!
//! Invariant: shapes only. Argument names are those that Codex 0.171.0 offers to the model.

use std::path::Path;

use serde_json::{Value, json};

/// How long Codex waits for output before it reports a command as still running, in milliseconds: the least it
/// accepts. For commands that are meant to be seen running.
pub const SHORT_YIELD_MS: u64 = 250;

/// The most it accepts. The call returns earlier when the command ends, so this delays nothing.
pub const LONG_YIELD_MS: u64 = 30_000;

/// A call of one of Codex's function tools.
pub fn function_call(call_id: &str, name: &str, arguments: &Value) -> Value {
    json!({ "type": "function_call", "call_id": call_id, "name": name, "arguments": arguments.to_string() })
}

/// Runs `cmd` to its end.
pub fn exec(call_id: &str, cmd: &str) -> Value {
    function_call(call_id, "exec_command", &json!({ "cmd": cmd, "yield_time_ms": LONG_YIELD_MS }))
}

/// Runs `cmd`, and lets it go on in the background.
pub fn exec_in_background(call_id: &str, cmd: &str, tty: bool) -> Value {
    let arguments = json!({ "cmd": cmd, "tty": tty, "yield_time_ms": SHORT_YIELD_MS });
    function_call(call_id, "exec_command", &arguments)
}

/// Types `chars` into the command that Codex runs as `session`, then waits for it to end.
pub fn write_stdin(call_id: &str, session: u64, chars: &str) -> Value {
    write_stdin_and_yield(call_id, session, chars, LONG_YIELD_MS)
}

/// As [`write_stdin`], for a command that goes on.
pub fn write_stdin_and_yield(call_id: &str, session: u64, chars: &str, yield_ms: u64) -> Value {
    let arguments = json!({ "session_id": session, "chars": chars, "yield_time_ms": yield_ms });
    function_call(call_id, "write_stdin", &arguments)
}

/// Shows an image file to the model.
pub fn view_image(call_id: &str, path: &Path) -> Value {
    function_call(call_id, "view_image", &json!({ "path": path }))
}

/// Applies a patch in Codex's own format.
pub fn apply_patch(call_id: &str, patch: &str) -> Value {
    json!({ "type": "custom_tool_call", "call_id": call_id, "name": "apply_patch", "input": patch })
}

/// Plain text; ends the turn when nothing else is asked.
pub fn say(text: &str) -> Value {
    json!({ "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": text }] })
}
