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
