//! What a played script leaves behind: the model's requests, and through them what the client did.
//!
//! Invariant: the last request repeats the whole conversation, so it alone is looked at for what was done.

use legion_tests::codex::{exit_code, session_id};
use legion_tests::mock_model::{MockModel, ModelRequest};
use serde_json::Value;

/// All that can be asserted after a run.
pub(crate) struct Played {
    requests: Vec<ModelRequest>,
}

/// A command that the model has asked for and the client has run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CommandRun {
    /// The script given to the shell.
    pub(crate) cmd: String,
    /// Its exit code, if the client has told it to the model.
    pub(crate) exit_code: Option<i32>,
}

impl Played {
    /// Takes the requests of a script that has been played to its end.
    pub(crate) fn of(model: MockModel) -> Self {
        Self { requests: model.finish() }
    }

    /// What the model saw first: instructions, environment, tools.
    pub(crate) fn first_request(&self) -> &ModelRequest {
        self.requests.first().expect("the model was asked")
    }

    /// The last request; it repeats all that came before.
    pub(crate) fn last_request(&self) -> &ModelRequest {
        self.requests.last().expect("the model was asked")
    }

    /// The tool output that the model got for a call, as text.
    pub(crate) fn output(&self, call_id: &str) -> String {
        self.last_request().output_text(call_id)
    }

    /// The commands that have run. Those that Codex takes for a patch, or refuses, start no process.
    pub(crate) fn commands(&self) -> Vec<CommandRun> {
        self.calls("exec_command").filter_map(|call| self.command(call)).collect()
    }

    /// Files that patches have written, and files they have deleted, as the client reports them.
    pub(crate) fn patched(&self) -> (Vec<String>, Vec<String>) {
        let (mut written, mut deleted) = (Vec::new(), Vec::new());
        let ids = self.calls("apply_patch").chain(self.calls("exec_command"));
        for call in ids {
            let output = self.output(call["call_id"].as_str().expect("calls have ids"));
            let Some((_, files)) = output.split_once("Success. Updated the following files:\n") else {
                continue;
            };
            for line in files.lines() {
                match line.split_once(' ') {
                    Some(("A" | "M", path)) => written.push(path.to_owned()),
                    Some(("D", path)) => deleted.push(path.to_owned()),
                    _ => {}
                }
            }
        }
        (written, deleted)
    }

    fn calls(&self, tool: &str) -> impl Iterator<Item = &Value> {
        let input = self.last_request().body["input"].as_array().expect("a conversation");
        input.iter().filter(move |item| item["name"] == tool)
    }

    fn command(&self, call: &Value) -> Option<CommandRun> {
        let arguments: Value = serde_json::from_str(call["arguments"].as_str()?).ok()?;
        let output = self.output(call["call_id"].as_str()?);
        let cmd = arguments["cmd"].as_str()?.to_owned();
        let ran = !cmd.starts_with("apply_patch") && output.contains("Output:\n");
        ran.then(|| CommandRun {
            cmd,
            exit_code: exit_code(&output).or_else(|| self.later_exit_code(&output)),
        })
    }

    /// The exit code of a command that went on in the background, from the calls that asked for it.
    fn later_exit_code(&self, first_output: &str) -> Option<i32> {
        let session = session_id(first_output);
        self.calls("write_stdin").find_map(|call| {
            let arguments: Value = serde_json::from_str(call["arguments"].as_str()?).ok()?;
            let output = self.output(call["call_id"].as_str()?);
            (arguments["session_id"] == session).then(|| exit_code(&output)).flatten()
        })
    }
}
