//! The real `codex exec-server`, as the reference that proves a test right before Legion is held to it.
//!
//! Invariant: the server listens on a free loopback port and asks for a token unless told otherwise.

use crate::child::Child;
use crate::clients::CodexVersion;
use crate::codex::Reach;
use crate::scratch::Scratch;

/// The bearer token of the original server in every test.
const TOKEN: &str = "the-original-server-trusts-this-token";

/// A running original server.
#[derive(Debug)]
pub struct Original {
    /// Keep it: the server ends with it.
    pub child: Child,
    /// `ws://127.0.0.1:PORT`.
    pub url: String,
    token: Option<&'static str>,
}

impl Original {
    /// 0.171.0 with a token.
    pub async fn start(scratch: &Scratch) -> Self {
        let token_file = scratch.write("original-token", TOKEN);
        let token_file = token_file.to_str().expect("scratch paths are ASCII");
        let flags = ["--ws-auth", "capability-token", "--ws-token-file", token_file];
        Self::launch(scratch, CodexVersion::V0_171, &flags, Some(TOKEN)).await
    }

    /// Any version without a token, for clients that cannot send one.
    pub async fn start_open(scratch: &Scratch, version: CodexVersion) -> Self {
        Self::launch(scratch, version, &[], None).await
    }

    async fn launch(
        scratch: &Scratch,
        version: CodexVersion,
        flags: &[&str],
        token: Option<&'static str>,
    ) -> Self {
        // Not below the temporary directory: SPEC section 10.
        scratch.make_directory("original-home");
        let mut command = scratch.command(version.program());
        command
            .env("CODEX_HOME", scratch.root().join("original-home"))
            .env("TMPDIR", scratch.tmp())
            .args(["exec-server", "--listen", "ws://127.0.0.1:0"])
            .args(flags);
        let mut child = Child::spawn("codex exec-server", command);
        let url = child.first_line().await;
        Self { child, url, token }
    }

    /// How Codex gets to it.
    pub fn reach(&self) -> Reach {
        Reach::Url { url: self.url.clone(), token: self.token.map(str::to_owned) }
    }

    /// The same server as a program on standard input and output; nothing has to be started.
    pub fn as_program(scratch: &Scratch) -> Reach {
        scratch.make_directory("original-home");
        let home = scratch.root().join("original-home");
        Reach::Program {
            program: CodexVersion::V0_171.program(),
            args: ["exec-server", "--listen", "stdio"].map(str::to_owned).to_vec(),
            env: [("CODEX_HOME", home), ("TMPDIR", scratch.tmp())]
                .map(|(name, path)| (name.to_owned(), path.display().to_string()))
                .to_vec(),
        }
    }
}
