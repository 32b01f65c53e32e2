//! What this server says about its surroundings: `environment/*` and `environmentConfig/read` (SPEC 9.1–9.3).

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use legion_protocol::bootstrap::{Bootstrap, CommandLimits};
use legion_protocol::environment::{
    ConfigLayers, ConfigRead, ConfigReadResult, EnvironmentInfo, EnvironmentStatus, Shell,
};
use legion_protocol::{ErrorObject, PathUri};
use rustix::fs::{Access, AtFlags, CWD, accessat};

use crate::error::Outcome;
use crate::process::env::Environment;

/// Facts that hold as long as the server runs.
pub(crate) struct Host {
    /// What a child inherits with `inherit: all`.
    pub(crate) env: Environment,
    /// The persona's limits on commands.
    pub(crate) limits: CommandLimits,
    info: EnvironmentInfo,
    home: PathUri,
}

/// What works of what a client may ask for (SPEC 9.1). `shellSnapshotV2` is not among them: a snapshot is accepted, but
/// changes nothing.
const CAPABILITIES: [&str; 8] = [
    "capabilityDiscoverySandbox",
    "capabilityDiscoveryV2",
    "environmentConfigRead",
    "fileWriteStreaming",
    "fsWatchMissing",
    "httpHeaderEnvVars",
    "legion",
    "sandboxedFileStreaming",
];

/// Shells in the order of preference.
const SHELLS: [&str; 3] = ["bash", "zsh", "sh"];

/// Where shells are looked for when `PATH` does not have them.
const SHELL_DIRECTORIES: &str = "/bin:/usr/bin:/usr/local/bin";

impl Host {
    /// The facts the controller handed over.
    pub(crate) fn from_bootstrap(bootstrap: Bootstrap) -> Self {
        let env: Environment =
            bootstrap.env.0.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        let shell = bootstrap.shell.unwrap_or_else(|| find_shell(&env));
        let temporary = vec![bootstrap.temp_dir.clone()];
        let limits = bootstrap.limits;
        let host =
            Self::new(env, shell, Some(bootstrap.cwd), bootstrap.home, Some(bootstrap.temp_dir), temporary);
        Self { limits, ..host }
    }

    /// The facts of this process itself.
    pub(crate) fn from_process(env: Environment, cwd: Option<PathBuf>) -> Self {
        let shell = find_shell(&env);
        let variable =
            |name| env.get(OsStr::new(name)).and_then(|value| PathUri::from_path(Path::new(value)));
        let temporary: Vec<PathUri> = variable("TMPDIR").into_iter().collect();
        let home = variable("HOME").unwrap_or_else(PathUri::root);
        let temp_dir = temporary.first().cloned().or_else(|| PathUri::from_path(Path::new("/tmp")));
        let cwd = cwd.and_then(|path| PathUri::from_path(&path));
        Self::new(env, shell, cwd, home, temp_dir, temporary)
    }

    fn new(
        env: Environment,
        shell: Shell,
        cwd: Option<PathUri>,
        home: PathUri,
        temp_dir: Option<PathUri>,
        temporary_directories: Vec<PathUri>,
    ) -> Self {
        let capabilities = CAPABILITIES.map(|name| (name.to_owned(), true));
        let info = EnvironmentInfo {
            shell,
            executor_version: env!("CARGO_PKG_VERSION").to_owned(),
            cwd,
            user_home_dir: Some(home.clone()),
            platform_os: "linux".to_owned(),
            prepend_path_dirs: Vec::new(),
            temporary_directories,
            temp_dir,
            capabilities: BTreeMap::from(capabilities),
        };
        Self { env, limits: CommandLimits::default(), info, home }
    }

    /// The session's `TMPDIR`.
    pub(crate) fn tmpdir(&self) -> Option<PathBuf> {
        self.env.get(OsStr::new("TMPDIR")).map(PathBuf::from)
    }

    /// `environment/info`.
    pub(crate) fn info(&self) -> &EnvironmentInfo {
        &self.info
    }

    /// `environment/status`: a server that answers is ready.
    pub(crate) fn status() -> EnvironmentStatus {
        EnvironmentStatus { status: "ready".to_owned() }
    }

    /// `environmentConfig/read`: there is no configuration inside, so there are no layers.
    ///
    /// # Errors
    /// -32602 when nothing is asked for, or a path without a key.
    pub(crate) fn read_config(&self, request: &ConfigRead) -> Outcome<ConfigReadResult> {
        if request.config_paths.is_empty() && request.requirements_paths.is_empty() {
            return Err(ErrorObject::invalid_params("at least one config or requirements path is required"));
        }
        if request.config_paths.iter().chain(&request.requirements_paths).any(Vec::is_empty) {
            return Err(ErrorObject::invalid_params("TOML paths must contain at least one key segment"));
        }
        let configured = self.env.get(OsStr::new("CODEX_HOME")).map(PathBuf::from);
        let codex_home = configured.unwrap_or_else(|| self.home.path().join(".codex"));
        Ok(ConfigReadResult {
            user_home_dir: self.home.clone(),
            codex_home_dir: PathUri::from_path(&codex_home).unwrap_or_else(|| self.home.clone()),
            hostname: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            config: ConfigLayers::default(),
            requirements: ConfigLayers::default(),
        })
    }
}

/// The first of [`SHELLS`] that is there; `/bin/sh` when none is, which then fails at the first command.
fn find_shell(env: &Environment) -> Shell {
    let path =
        env.get(OsStr::new("PATH")).map(|path| path.to_string_lossy().into_owned()).unwrap_or_default();
    let directories =
        || path.split(':').chain(SHELL_DIRECTORIES.split(':')).filter(|dir| dir.starts_with('/'));
    SHELLS
        .iter()
        .find_map(|name| {
            directories().map(|directory| format!("{directory}/{name}")).find_map(|path| {
                accessat(CWD, path.as_str(), Access::EXEC_OK, AtFlags::EACCESS)
                    .is_ok()
                    .then(|| Shell { name: (*name).to_owned(), path })
            })
        })
        .unwrap_or_else(|| Shell { name: "sh".to_owned(), path: "/bin/sh".to_owned() })
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    fn host() -> Host {
        let env = [("PATH", "/usr/bin"), ("HOME", "/home/x"), ("TMPDIR", "/var/tmp")];
        let env =
            env.into_iter().map(|(name, value)| (OsString::from(name), OsString::from(value))).collect();
        Host::from_process(env, Some("/work".into()))
    }

    #[test]
    fn only_what_works_is_advertised() {
        let info = serde_json::to_value(host().info()).unwrap();
        let capabilities = info["capabilities"].as_object().unwrap();
        assert!(capabilities.values().all(|works| works == true));
        assert_eq!(capabilities.keys().collect::<Vec<_>>(), CAPABILITIES);
        assert_eq!(info["cwd"], "file:///work");
        assert_eq!(info["userHomeDir"], "file:///home/x");
        assert_eq!(info["temporaryDirectories"], serde_json::json!(["file:///var/tmp"]));
        assert_eq!(info["tempDir"], "file:///var/tmp");
        assert!(info["shell"]["path"].as_str().unwrap().starts_with('/'));
    }

    #[test]
    fn config_requests_are_checked_and_answered_empty() {
        let host = host();
        let cwd = PathUri::from_path(Path::new("/")).unwrap();
        let request = |config_paths: Vec<Vec<String>>| ConfigRead {
            cwd: cwd.clone(),
            config_paths,
            requirements_paths: Vec::new(),
        };
        let refused = |paths| host.read_config(&request(paths)).unwrap_err().message;
        assert_eq!(refused(vec![]), "at least one config or requirements path is required");
        assert_eq!(refused(vec![vec![]]), "TOML paths must contain at least one key segment");
        let result = host.read_config(&request(vec![vec!["mcp_servers".into()]])).unwrap();
        assert!(result.config.layers.is_empty());
        assert_eq!(result.codex_home_dir.to_string(), "file:///home/x/.codex");
    }
}
