//! `initialize` and `initialized` (SPEC 3).

use serde::{Deserialize, Serialize};

use crate::environment::EnvironmentInfo;

/// Parameters of `initialize`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Initialize {
    /// Free text; the real client sends `codex-environment`.
    pub client_name: String,
    /// The session to take over after a lost connection.
    #[serde(default)]
    pub resume_session_id: Option<String>,
}

/// Result of `initialize`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Initialized {
    /// UUID v4, valid until the session has been detached for its time to live.
    pub session_id: String,
    /// What `environment/info` would answer.
    pub environment_info: EnvironmentInfo,
}
