//! Runs the real `codex exec` against the mock model and one execution environment.
//!
//! Invariant: `CODEX_HOME` is the test's own and the environment under test is the only one
//! (`include_local = false`), so a command that runs at all runs through it.

use std::path::{Path, PathBuf};

use serde_json::json;
use tokio::process::Command;

use crate::child::{Child, Finished};
use crate::clients::CodexVersion;
use crate::mock_model::MockModel;
use crate::scratch::Scratch;

/// How Codex gets to its execution environment.
#[derive(Debug, Clone)]
pub enum Reach {
    /// It starts this program and speaks over its standard input and output.
    Program {
        /// Absolute path.
        program: PathBuf,
        /// Arguments.
        args: Vec<String>,
        /// Variables added to those of Codex.
        env: Vec<(String, String)>,
    },
    /// It connects to this URL, with a bearer token in the header if given.
    Url {
        /// `ws://` or `wss://`.
        url: String,
        /// `auth_bearer_token`.
        token: Option<String>,
    },
    /// It takes the URL from `CODEX_EXEC_SERVER_URL`: all that old versions know.
    UrlVariable(String),
}

/// One run of `codex exec`, being prepared.
#[derive(Debug)]
pub struct Codex<'a> {
    scratch: &'a Scratch,
    version: CodexVersion,
    directory: PathBuf,
    sandbox: Option<&'static str>,
    extra_env: Vec<(String, PathBuf)>,
}

impl<'a> Codex<'a> {
    /// The current version in the test's workspace.
    pub fn new(scratch: &'a Scratch) -> Self {
        let directory = scratch.workspace();
        Self { scratch, version: CodexVersion::V0_171, directory, sandbox: None, extra_env: Vec::new() }
    }

    /// Another version.
    #[must_use]
    pub fn version(mut self, version: CodexVersion) -> Self {
        self.version = version;
        self
    }

    /// Another working directory (`-C`).
    #[must_use]
    pub fn directory(mut self, directory: &Path) -> Self {
        directory.clone_into(&mut self.directory);
        self
    }

    /// With a sandbox of its own wish (`--sandbox`), which it asks the environment for.
    #[must_use]
    pub fn sandbox(mut self, mode: &'static str) -> Self {
        self.sandbox = Some(mode);
        self
    }

    /// One more variable in the environment of Codex.
    #[must_use]
    pub fn env(mut self, name: &str, value: &Path) -> Self {
        self.extra_env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Starts it.
    pub fn spawn(self, reach: &Reach, model: &MockModel) -> Child {
        let mut command = self.command(model);
        match reach {
            Reach::UrlVariable(url) => {
                command.env("CODEX_EXEC_SERVER_URL", url);
            }
            Reach::Program { .. } | Reach::Url { .. } => {
                self.scratch.write("codex/environments.toml", environments(reach));
            }
        }
        Child::spawn("codex exec", command)
    }

    /// Starts it with the `environments.toml` that somebody else has put into its directory, `codex` of the scratch.
    pub fn as_set_up(self, model: &MockModel) -> Child {
        Child::spawn("codex exec", self.command(model))
    }

    fn command(&self, model: &MockModel) -> Command {
        let codex_home = self.scratch.root().join("codex");
        self.scratch.write("codex/config.toml", config(&model.base_url()));
        let mut command = self.scratch.command(self.version.program());
        // Codex keeps things of all its runs in the temporary directory.
        command.env("CODEX_HOME", &codex_home).env("TMPDIR", self.scratch.tmp());
        for (name, value) in &self.extra_env {
            command.env(name, value);
        }
        let sandbox = match self.sandbox {
            Some(mode) => vec!["--sandbox", mode],
            None => vec!["--dangerously-bypass-approvals-and-sandbox"],
        };
        command
            .arg("exec")
            .args(sandbox)
            .args(["--skip-git-repo-check", "-C"])
            .arg(&self.directory)
            .arg("Do what the script says.")
            .current_dir(&self.directory);
        command
    }

    /// Runs it to its end.
    pub async fn run(self, reach: &Reach, model: &MockModel) -> Finished {
        self.spawn(reach, model).finish().await
    }
}

fn config(base_url: &str) -> String {
    format!(
        r#"model = "gpt-5.5"
model_provider = "mock"
[model_providers.mock]
name = "mock"
base_url = {base_url:?}
wire_api = "responses"
requires_openai_auth = false
request_max_retries = 0
stream_max_retries = 0
"#
    )
}

/// A JSON string is a valid TOML basic string, and a JSON array of strings a valid TOML array.
fn environments(reach: &Reach) -> String {
    let mut lines = vec![
        r#"default = "box""#.to_owned(),
        "include_local = false".to_owned(),
        "[[environments]]".to_owned(),
        r#"id = "box""#.to_owned(),
    ];
    match reach {
        Reach::Program { program, args, env } => {
            lines.push(format!("program = {}", json!(program)));
            lines.push(format!("args = {}", json!(args)));
            let pairs: Vec<_> =
                env.iter().map(|(name, value)| format!("{name} = {}", json!(value))).collect();
            lines.push(format!("env = {{ {} }}", pairs.join(", ")));
        }
        Reach::Url { url, token } => {
            lines.push(format!("url = {}", json!(url)));
            lines.extend(token.iter().map(|token| format!("auth_bearer_token = {}", json!(token))));
        }
        Reach::UrlVariable(_) => {}
    }
    lines.join("\n") + "\n"
}

/// The number by which Codex names a running command, out of a tool output that says "still running".
pub fn session_id(output: &str) -> u64 {
    let (_, rest) =
        output.split_once("session ID ").unwrap_or_else(|| panic!("it should still be running: {output}"));
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect("digits only")
}

/// What a command has printed, out of the text that Codex gives the model.
pub fn printed(output: &str) -> &str {
    output.split_once("Output:\n").map_or_else(|| panic!("no output section in: {output}"), |(_, text)| text)
}

/// The exit code, out of the text that Codex gives the model; `None` while the command runs.
pub fn exit_code(output: &str) -> Option<i32> {
    let (_, rest) = output.split_once("Process exited with code ")?;
    rest.lines().next()?.parse().ok()
}

/// The command of this tool output has ended with `code` after printing exactly `text`.
pub fn assert_ran(output: &str, code: i32, text: &str) {
    assert_eq!((exit_code(output), printed(output)), (Some(code), text), "{output}");
}
