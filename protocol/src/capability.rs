//! `capabilities/discoverV2` and `capabilityRoots/discoverV1` (SPEC 9.4, 9.5).

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::sandbox::Sandbox;
use crate::{PathUri, object};

/// Parameters of `capabilities/discoverV2`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Discover {
    /// The directory to look from.
    pub cwd: PathUri,
    /// The client's own wish for a narrower sandbox.
    #[serde(default, deserialize_with = "object::optional")]
    pub sandbox: Option<Sandbox>,
}

/// Result of `capabilities/discoverV2`; always empty, as in the original without plugins.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Discovered {
    /// Plugins found.
    pub plugins: Vec<Box<RawValue>>,
    /// Skills found.
    pub skills: Vec<Box<RawValue>>,
    /// What could not be read.
    pub warnings: Vec<String>,
}

/// A directory to look for skills in.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Root {
    /// The client's name for the root.
    pub id: String,
    /// The directory.
    pub path: PathUri,
    /// The client's own wish for a narrower sandbox.
    #[serde(default, deserialize_with = "object::optional")]
    pub sandbox: Option<Sandbox>,
}

/// Parameters of `capabilityRoots/discoverV1`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DiscoverRoots {
    /// The directories to look in.
    #[serde(deserialize_with = "object::list")]
    pub roots: Vec<Root>,
}

/// Result of `capabilityRoots/discoverV1`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DiscoveredRoots {
    /// As many as were asked about, in their order.
    pub roots: Vec<DiscoveredRoot>,
}

/// What was found below one root.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiscoveredRoot {
    /// As in the request.
    pub id: String,
    /// As in the request.
    pub path: PathUri,
    /// The root itself is a plugin.
    pub plugin: Option<Plugin>,
    /// By path.
    pub skills: Vec<Skill>,
    /// Plugin manifests the skills belong to: in the root, and the nearest one above it.
    pub namespace_manifests: Vec<TextFile>,
    /// What could not be read, a line each.
    pub warnings: Vec<String>,
    /// Why the root could not be looked at; then the rest is empty.
    pub error: Option<String>,
}

/// A file and its whole text.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TextFile {
    /// Where it lies.
    pub path: PathUri,
    /// UTF-8.
    pub contents: String,
}

/// A `SKILL.md` and what lies beside it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Skill {
    /// The `SKILL.md`.
    pub instructions: TextFile,
    /// `agents/openai.yaml`.
    pub metadata: Option<TextFile>,
}

/// A plugin's manifest and the files it stands for.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Plugin {
    /// `.codex-plugin/plugin.json` or one of its relatives.
    pub manifest: TextFile,
    /// What the manifest calls `mcpServers`, else `.mcp.json`.
    pub mcp_config: Option<TextFile>,
    /// What the manifest calls `apps`, else `.app.json`.
    pub apps_config: Option<TextFile>,
}
