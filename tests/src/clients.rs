//! The pinned clients that `npm ci` has installed: their native binaries, not the scripts around them.
//!
//! Invariant: versions are those of `clients/package.json`; nothing is looked up on `PATH`.

use std::path::{Path, PathBuf};

use crate::settings::settings;

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
    fn package(self) -> &'static str {
        match self {
            Self::V0_171 => "@openai/codex",
            Self::V0_150 => "codex-0.150",
            Self::V0_130 => "codex-0.130",
        }
    }

    /// The native program of this version.
    pub fn program(self) -> PathBuf {
        let (platform, triple) = match std::env::consts::ARCH {
            "aarch64" => ("codex-linux-arm64", "aarch64-unknown-linux-musl"),
            _ => ("codex-linux-x64", "x86_64-unknown-linux-musl"),
        };
        let modules = settings().node_modules();
        let own_modules = modules.join(self.package()).join("node_modules");
        // npm puts the platform package beside the first of several versions, and inside of the others.
        let vendor = [own_modules, modules].map(|place| place.join("@openai").join(platform).join("vendor"));
        // 0.130 has it in `codex/`, later ones in `bin/`.
        let candidates = vendor.iter().flat_map(|vendor| in_vendor(&vendor.join(triple)));
        let found = candidates.into_iter().find(|path| path.is_file());
        found.unwrap_or_else(|| panic!("no native codex for {self:?} below {}", vendor[1].display()))
    }
}

fn in_vendor(directory: &Path) -> [PathBuf; 2] {
    [directory.join("bin/codex"), directory.join("codex/codex")]
}
