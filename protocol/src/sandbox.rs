//! The `sandbox` object: a client's own wish to narrow one command or file operation (SPEC 10).
//!
//! It may only narrow; what cannot be enforced is refused, never ignored.

use serde::{Deserialize, Serialize};

use crate::{PathUri, object};

/// The `sandbox` member of `process/start` and `fs/*`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sandbox {
    /// What stays allowed.
    #[serde(deserialize_with = "object::nested")]
    pub permissions: Permissions,
    /// Directory the special paths refer to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<PathUri>,
    /// Directories that `project_roots` stands for.
    #[serde(default, deserialize_with = "object::or_default")]
    pub workspace_roots: Vec<PathUri>,
    /// Required by the original, without meaning here.
    pub windows_sandbox_level: String,
    /// In the fs form: overrides `cwd` and `workspaceRoots`.
    #[serde(default, deserialize_with = "object::optional", skip_serializing_if = "Option::is_none")]
    pub policy_context: Option<PolicyContext>,
    /// `HOME` as the client knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_home_dir: Option<PathUri>,
}

impl Sandbox {
    /// Whether it asks for nothing that this process's surroundings do not already give.
    pub fn is_disabled(&self) -> bool {
        matches!(
            self.permissions,
            Permissions::Disabled | Permissions::External { network: NetworkPermission::Enabled }
        )
    }
}

/// Directories of the policy.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyContext {
    /// See [`Sandbox::cwd`].
    pub cwd: PathUri,
    /// See [`Sandbox::workspace_roots`].
    pub workspace_roots: Vec<PathUri>,
}

/// What stays allowed.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Permissions {
    /// File system and network are narrowed.
    Managed {
        /// File system.
        file_system: FileSystem,
        /// Network.
        network: NetworkPermission,
    },
    /// No narrowing.
    Disabled,
    /// The surroundings narrow the file system; only the network is asked for.
    External {
        /// Network.
        network: NetworkPermission,
    },
}

/// Whether the network may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetworkPermission {
    /// No network.
    Restricted,
    /// As the surroundings allow.
    Enabled,
}

/// Which paths may be used.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FileSystem {
    /// All.
    Unrestricted,
    /// Only the listed ones.
    Restricted {
        /// Later entries win for the paths they name.
        entries: Vec<Entry>,
    },
}

/// One rule on paths.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Entry {
    /// What it is about.
    pub path: EntryPath,
    /// What it allows.
    pub access: Access,
    /// What a missing path means.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing_path_behavior: Option<MissingPathBehavior>,
}

/// The paths of a rule.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum EntryPath {
    /// A path and what is below it.
    Path {
        /// The path.
        path: PathUri,
    },
    /// All paths that match.
    GlobPattern {
        /// The pattern.
        pattern: String,
    },
    /// A well-known place.
    Special {
        /// Which one.
        value: Special,
    },
}

/// A well-known place, perhaps a path below it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Special {
    /// Which one.
    pub kind: SpecialKind,
    /// Below it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subpath: Option<String>,
}

/// The well-known places.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SpecialKind {
    /// `/`
    Root,
    /// What a program needs to start.
    Minimal,
    /// The command's directory.
    CurrentWorkingDirectory,
    /// The workspace roots.
    ProjectRoots,
    /// `$TMPDIR`
    Tmpdir,
    /// `/tmp`
    SlashTmp,
    /// Of a newer client.
    Unknown,
}

/// What a rule allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Reading.
    Read,
    /// Reading and writing.
    Write,
    /// Nothing.
    Deny,
    /// Nothing.
    None,
}

/// What a missing path means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MissingPathBehavior {
    /// The rule does not count.
    Skip,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_real_clients_send_are_decoded() {
        let old = r#"{"permissions":{"type":"disabled"},"windowsSandboxLevel":"disabled","windowsSandboxPrivateDesktop":true,"useLegacyLandlock":false}"#;
        assert!(object::from_object::<Sandbox>(old).unwrap().is_disabled());
        let managed = r#"{"permissions":{"type":"managed","file_system":{"type":"restricted","entries":[
            {"path":{"type":"special","value":{"kind":"project_roots","subpath":".git"}},"access":"read","missing_path_behavior":"skip"}
        ]},"network":"restricted"},"cwd":"file:///w","workspaceRoots":["file:///w"],"windowsSandboxLevel":"disabled"}"#;
        let sandbox = object::from_object::<Sandbox>(managed).unwrap();
        assert!(!sandbox.is_disabled());
        assert!(matches!(
            sandbox.permissions,
            Permissions::Managed { network: NetworkPermission::Restricted, .. }
        ));
    }

    #[test]
    fn unknown_words_are_named() {
        let text = r#"{"permissions":{"type":"xx"},"windowsSandboxLevel":"disabled"}"#;
        let error = object::from_object::<Sandbox>(text).unwrap_err();
        assert_eq!(
            object::detail(&error),
            "unknown variant `xx`, expected one of `managed`, `disabled`, `external`"
        );
    }
}
