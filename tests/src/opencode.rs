//! The real OpenCode as a user of the test's own has it: installed in the home, with a provider that is the mock model.
//!
//! Invariant: nothing but the model is reached over the network, because nothing else is there; data, state and cache
//! are the test's own.

use std::fs;

use serde_json::{Value, json};
use tokio::process::Command;

use crate::chat_model;
use crate::child::{Child, Finished};
use crate::clients;
use crate::legion;
use crate::mock_model::ModelRequest;
use crate::scratch::Scratch;

/// Where OpenCode's own installer puts it.
const PROGRAMS: &str = "home/.opencode/bin";

/// Puts the program into the test's home.
pub fn install(scratch: &Scratch) {
    let program = scratch.root().join(PROGRAMS).join("opencode");
    scratch.make_directory(PROGRAMS);
    // A link where the file system allows one; it is a large file.
    if fs::hard_link(clients::opencode(), &program).is_err() {
        scratch.copy_program(&clients::opencode(), program);
    }
}

/// A configuration with the mock as a provider of two models, `mock/m` and one of the kind that gets `apply_patch`.
pub fn provider(base_url: &str) -> Value {
    json!({
        "provider": { "mock": {
            "npm": "@ai-sdk/openai-compatible",
            "options": { "baseURL": base_url, "apiKey": "provider-key-7001" },
            "models": { "m": { "tool_call": true }, "gpt-5-mock": { "tool_call": true } }
        } },
        "model": "mock/m"
    })
}

/// What plugins and tools in these directories may import is there: OpenCode would get it from the registry of npm for every
/// directory it looks for them in, wait for that before it loads any, and may not be done with it when the test is over.
pub fn has_dependencies(scratch: &Scratch, directories: &[&str]) {
    let lock = json!({ "packages": { "": { "dependencies": { "@opencode-ai/plugin": "*" } } } });
    for directory in directories {
        scratch.make_directory(format!("{directory}/node_modules"));
        scratch.write(format!("{directory}/package-lock.json"), lock.to_string());
    }
}

/// OpenCode as it is, in the test's workspace.
pub fn plain(scratch: &Scratch, args: &[&str]) -> Command {
    has_dependencies(scratch, &["config/opencode", "home/.opencode"]);
    let mut command = scratch.command(scratch.root().join(PROGRAMS).join("opencode"));
    // It unpacks its libraries into the temporary directory, and leaves them there.
    command.env("TMPDIR", scratch.tmp()).args(args).current_dir(scratch.workspace());
    command
}

/// `legion-controller ARGS…` in the test's workspace, with OpenCode in `PATH`.
pub fn command(scratch: &Scratch, args: &[&str]) -> Command {
    let mut command = legion::command(scratch, args);
    command
        .env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", scratch.root().join(PROGRAMS).display()))
        .current_dir(scratch.workspace());
    command
}

/// Runs [`command`] to its end.
pub async fn run(scratch: &Scratch, args: &[&str]) -> Finished {
    Child::spawn("legion-controller", command(scratch, args)).finish().await
}

/// The requests for the next thing to do, without those for a title.
pub fn steps(requests: Vec<ModelRequest>) -> Vec<ModelRequest> {
    requests.into_iter().filter(|request| !chat_model::asks_for_title(&request.body)).collect()
}
