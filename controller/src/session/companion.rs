//! The second session of a persona that connects: a harness in one sandbox, its commands in another.

use std::path::PathBuf;
use std::rc::Rc;

use super::{EndReason, Session};
use crate::config::Connect;
use crate::token::Token;

/// What a session has of its second one.
#[derive(Default)]
pub struct Companion {
    session: Option<Rc<Session>>,
    /// Files shown in the first sandbox: path inside, content.
    pub files: Vec<(PathBuf, Vec<u8>)>,
}

impl Companion {
    /// Makes the harness's configuration point at a session.
    pub fn of(connect: &Connect, session: &Rc<Session>, url: &str, token: &Token) -> Self {
        let environments = environments_toml(&format!(
            "url = {}\nauth_bearer_token = {}\n",
            toml::Value::from(url),
            toml::Value::from(token.text.as_str())
        ));
        let path = connect.codex_home.as_ref().map(|home| home.join("environments.toml"));
        Self {
            session: Some(Rc::clone(session)),
            files: path.map(|path| (path, environments.into_bytes())).into_iter().collect(),
        }
    }

    /// Ends the second session.
    pub(super) fn end(&self) {
        if let Some(session) = &self.session {
            session.end(EndReason::ClientLeft);
        }
    }
}

/// The first line of a file that is ours to replace.
pub const MARK: &str = "# Written by legion-controller.";

/// Codex's `environments.toml` with Legion as the only environment.
pub fn environments_toml(transport: &str) -> String {
    format!(
        "{MARK}\ndefault = \"legion\"\ninclude_local = false\n\n[[environments]]\nid = \"legion\"\n{transport}"
    )
}
