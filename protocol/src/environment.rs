//! `environment/*` and `environmentConfig/read` (SPEC 9.1–9.3).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::PathUri;

/// The one shell a client may use.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub struct Shell {
    /// `bash`, `zsh`, `sh`…
    pub name: String,
    /// Absolute path inside the sandbox.
    pub path: String,
}

/// Result of `environment/info`, and part of that of `initialize`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EnvironmentInfo {
    /// The client builds `[path, "-lc", command]` from it; without it the client drops the connection.
    pub shell: Shell,
    /// Version of this exec-server.
    pub executor_version: String,
    /// The server's working directory, as the client should see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<PathUri>,
    /// `HOME` inside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_home_dir: Option<PathUri>,
    /// Always `linux`.
    pub platform_os: String,
    /// Directories put in front of `PATH`; Legion has none.
    #[serde(default)]
    pub prepend_path_dirs: Vec<PathUri>,
    /// `$TMPDIR` when it is set.
    #[serde(default)]
    pub temporary_directories: Vec<PathUri>,
    /// The directory for temporary files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temp_dir: Option<PathUri>,
    /// What else this server answers; only what works is listed.
    #[serde(default)]
    pub capabilities: BTreeMap<String, bool>,
}

/// Result of `environment/status`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EnvironmentStatus {
    /// Always `ready`.
    pub status: String,
}

/// Parameters of `environmentConfig/read`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigRead {
    /// The directory whose project layer is asked for.
    pub cwd: PathUri,
    /// Keys asked for; each a path of key segments.
    pub config_paths: Vec<Vec<String>>,
    /// Requirement keys asked for.
    pub requirements_paths: Vec<Vec<String>>,
}

/// A stack of configuration layers, lowest first.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigLayers {
    /// Always empty: Legion's exec-server has no configuration of its own.
    pub layers: Vec<ConfigLayer>,
    /// Where a client would insert cloud layers.
    pub cloud_insertion_index: usize,
}

/// One layer.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigLayer {
    /// `user (<path>)` or `project (<path>)`.
    pub source: String,
    /// Where relative paths of the layer start.
    pub base_dir: PathUri,
    /// The asked keys, as TOML text.
    pub toml: String,
}

/// Result of `environmentConfig/read`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigReadResult {
    /// `HOME` inside.
    pub user_home_dir: PathUri,
    /// Where the client's configuration would lie inside; nothing is there.
    pub codex_home_dir: PathUri,
    /// Host name inside.
    pub hostname: String,
    /// Configuration layers.
    pub config: ConfigLayers,
    /// Requirement layers.
    pub requirements: ConfigLayers,
}
