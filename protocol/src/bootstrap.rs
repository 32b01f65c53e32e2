//! What the controller hands to the exec-server at its start, as one JSON object over an inherited descriptor.
//!
//! Secrets the persona allows travel here, never in arguments or in the exec-server's own environment: `/proc/1`
//! inside the sandbox shows neither.

use serde::{Deserialize, Serialize};

use crate::environment::Shell;
use crate::{PathUri, StringMap};

/// The session's facts, read once and to the end of the descriptor (at most `limits::MAX_BOOTSTRAP_BYTES`).
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Bootstrap {
    /// SHA-256 of the inner bearer token, 64 hex digits. Only the controller knows the token.
    pub token_sha256: String,
    /// The environment a child inherits with `inherit: all`.
    pub env: StringMap,
    /// Where commands start when the client names no other place; the workspace as the client knows it.
    pub cwd: PathUri,
    /// `HOME` inside.
    pub home: PathUri,
    /// For temporary files, inside.
    pub temp_dir: PathUri,
    /// The shell clients are told to use; absent: the exec-server looks for `bash`, then `sh`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell: Option<Shell>,
    /// Bounds the exec-server keeps itself to and puts on every command.
    #[serde(default)]
    pub limits: CommandLimits,
}

/// Bounds on commands; an absent one is no bound.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CommandLimits {
    /// Processes and threads of the whole sandbox (`RLIMIT_NPROC`, counted in its user namespace).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,
    /// Private writable memory of one process, in bytes (`RLIMIT_DATA`): set where no cgroup bounds the sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_bytes: Option<u64>,
    /// Open files of one process (`RLIMIT_NOFILE`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u64>,
    /// Run time of one command in milliseconds; then it is killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall_ms: Option<u64>,
    /// Output of one command in bytes; then it is killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_bytes: Option<u64>,
}

impl std::fmt::Debug for Bootstrap {
    /// Names only: values may be secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bootstrap")
            .field("env", &self.env.0.keys().collect::<Vec<_>>())
            .field("cwd", &self.cwd)
            .field("home", &self.home)
            .field("temp_dir", &self.temp_dir)
            .field("shell", &self.shell)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}
