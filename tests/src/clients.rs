//! The pinned clients that `npm ci` has installed: their native programs, not the scripts around them.
//!
//! Invariant: versions are those of `clients/package.json`; nothing is looked up on `PATH`.

use std::path::PathBuf;

use crate::settings::settings;

/// The native program of OpenCode.
pub fn opencode() -> PathBuf {
    let path = settings().node_modules().join("opencode-linux-x64/bin/opencode");
    assert!(path.is_file(), "{} is missing: run `npm ci` again", path.display());
    path
}

/// Inside each Codex package, the folder of the one platform that the lock file pins.
const VENDOR: &str = "vendor/x86_64-unknown-linux-musl";

/// The Codex versions that the tests drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodexVersion {
    /// 0.171.0: the one Legion is made for.
    V0_171,
    /// 0.150.0: `file:` URIs, but no setting for a token (SPEC section 13).
    V0_150,
    /// 0.130.0: plain paths, no `writeId`, no resume (SPEC section 13).
    V0_130,
}

impl CodexVersion {
    /// The native program of this version.
    pub fn program(self) -> PathBuf {
        let (package, program) = match self {
            Self::V0_171 => ("@openai/codex", "bin/codex"),
            Self::V0_150 => ("codex-0.150", "bin/codex"),
            Self::V0_130 => ("codex-0.130", "codex/codex"),
        };
        let path = settings().node_modules().join(package).join(VENDOR).join(program);
        assert!(path.is_file(), "{} is missing: run `npm ci` again", path.display());
        path
    }
}
