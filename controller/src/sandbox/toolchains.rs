//! Toolchains under the user's home, shown read-only (`toolchains = true`): programs and libraries, never the
//! credentials and configuration beside them.

use std::path::{Path, PathBuf};

use crate::config::{Mount, MountMode};

/// Directories of toolchains, and the variable that tells their programs where they are.
const KNOWN: [(&str, Option<&str>); 15] = [
    (".asdf", Some("ASDF_DATA_DIR")),
    (".bun/bin", None),
    (".cargo/bin", None),
    (".deno/bin", None),
    (".local/bin", None),
    (".local/share/mise", Some("MISE_DATA_DIR")),
    (".local/share/uv", None),
    (".nvm", Some("NVM_DIR")),
    (".pyenv", Some("PYENV_ROOT")),
    (".rbenv", Some("RBENV_ROOT")),
    (".rustup", Some("RUSTUP_HOME")),
    (".sdkman/candidates", None),
    (".volta", Some("VOLTA_HOME")),
    (".opencode/bin", None),
    ("go/bin", None),
];

/// What a sandbox is given of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Toolchains {
    /// Each at its host path.
    pub mounts: Vec<Mount>,
    /// Names and values.
    pub variables: Vec<(&'static str, String)>,
    /// Entries of the user's own `PATH` that lie in them, in order.
    pub path: Vec<String>,
}

/// Finds the toolchains of a home. `path` is the user's own `PATH`.
pub fn find(home: &Path, path: &str) -> Toolchains {
    let mut found = Toolchains::default();
    let mut shown: Vec<PathBuf> = Vec::new();
    for (name, variable) in KNOWN {
        let dir = home.join(name);
        // A link could lead to anything; what it leads to is not a toolchain's place.
        if !dir.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
            continue;
        }
        found.mounts.push(Mount { mode: MountMode::Ro, from: Some(dir.clone()), to: dir.clone() });
        found.variables.extend(variable.map(|variable| (variable, dir.display().to_string())));
        shown.push(dir);
    }
    let inside = |entry: &&str| shown.iter().any(|dir| Path::new(entry).starts_with(dir));
    found.path = path.split(':').filter(inside).map(str::to_owned).collect();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_shown_and_what_lies_beside_them_is_not() {
        let home = tempfile::tempdir().unwrap();
        for dir in
            [".cargo/bin", ".cargo/registry", ".rustup/toolchains", ".nvm/versions/node/v20/bin", ".ssh"]
        {
            std::fs::create_dir_all(home.path().join(dir)).unwrap();
        }
        std::fs::write(home.path().join(".cargo/credentials.toml"), "x").unwrap();
        std::os::unix::fs::symlink("/etc", home.path().join(".pyenv")).unwrap();
        let at = |name: &str| home.path().join(name).display().to_string();
        let path =
            format!("{}:/usr/bin:{}:{}", at(".nvm/versions/node/v20/bin"), at(".cargo/bin"), at("bin"));
        let found = find(home.path(), &path);
        let shown: Vec<String> = found.mounts.iter().map(|mount| mount.to.display().to_string()).collect();
        assert_eq!(shown, [at(".cargo/bin"), at(".nvm"), at(".rustup")]);
        assert_eq!(found.path, [at(".nvm/versions/node/v20/bin"), at(".cargo/bin")]);
        assert_eq!(found.variables, [("NVM_DIR", at(".nvm")), ("RUSTUP_HOME", at(".rustup"))]);
    }
}
