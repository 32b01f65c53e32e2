//! What OpenCode's sandbox shows besides the system: a read-only directory with its configuration, plugin and socket, and
//! OpenCode's own data.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::config::generated;
use super::user::{self, User};
use crate::cli::print_error;
use crate::config::{Mount, MountMode, Persona, View};
use crate::environment::Environment;
use crate::failure::{Failure, Outcome};
use crate::sandbox::spec::MINIMAL_HOME;

/// The directory's path inside.
const PLACE: &str = "/run/legion-client";

const PLUGIN: &str = include_str!("plugin.js");

/// What runs instead of a shell: OpenCode starts one for what is typed after `!`, for templates and for terminals.
const SHELL: &str = "#!/bin/sh\necho 'legion: there is no shell here, the project is in another sandbox: let the agent run it, or use \
                     legion-controller exec' >&2\nexit 77\n";

/// Which of OpenCode's directories are the user's own: variable and default of the base directory, and whether it is
/// writable. What lies in the cache is run, also outside.
const OWN: [(&str, &str, bool); 3] = [
    ("XDG_DATA_HOME", ".local/share", true),
    ("XDG_STATE_HOME", ".local/state", true),
    ("XDG_CACHE_HOME", ".cache", false),
];

/// Variables that are the same for all. `npm_config_offline`: else a plugin makes the start wait for an installation.
const VARIABLES: [(&str, &str); 6] = [
    ("OPENCODE_DISABLE_AUTOUPDATE", "true"),
    ("OPENCODE_DISABLE_EXTERNAL_SKILLS", "true"),
    ("OPENCODE_DISABLE_LSP_DOWNLOAD", "true"),
    ("OPENCODE_DISABLE_MODELS_FETCH", "true"),
    ("OPENCODE_DISABLE_PROJECT_CONFIG", "true"),
    ("npm_config_offline", "true"),
];

/// Locks others out of a server that OpenCode may open.
const PASSWORD: &str = "OPENCODE_SERVER_PASSWORD";

/// The directory on the host. What it lies in is private, so it can be readable for whoever the sandbox runs as.
pub(super) struct Inside(PathBuf);

impl Inside {
    /// Makes it in a private directory.
    pub(super) fn make(private: &Path, user: &User) -> Outcome<Self> {
        let inside = Self(private.join("inside"));
        let (config, left_out) = generated(&user.config, &format!("{PLACE}/shell"));
        let config = serde_json::to_vec(&config).map_err(Failure::internal)?;
        inside.directory("config/plugin")?;
        // Where OpenCode misses it, it wants to write it.
        inside.write("config/.gitignore", b"*\n", 0o644)?;
        inside.write("config/opencode.json", &config, 0o644)?;
        inside.write("config/plugin/legion.js", PLUGIN.as_bytes(), 0o644)?;
        inside.write("shell", SHELL.as_bytes(), 0o755)?;
        if !left_out.is_empty() {
            let names = left_out.into_iter().collect::<Vec<_>>().join(", ");
            print_error(&format!("of your OpenCode configuration this is not used here: {names}"));
        }
        Ok(inside)
    }

    /// Where the plugin's calls arrive.
    pub(super) fn socket(&self) -> PathBuf {
        self.0.join("tools.sock")
    }

    /// Instructions for every conversation.
    pub(super) fn instruct<'a>(&self, texts: impl Iterator<Item = &'a String>) -> Outcome<()> {
        let text = texts.map(String::as_str).collect::<Vec<_>>().join("\n\n");
        if text.is_empty() { Ok(()) } else { self.write("config/AGENTS.md", text.as_bytes(), 0o644) }
    }

    /// Makes a persona's sandbox one for OpenCode. `subcommand` is OpenCode's.
    pub(super) fn adapt(
        &self,
        environment: &Environment,
        persona: &mut Persona,
        user: &User,
        secret: &str,
        subcommand: Option<&str>,
    ) -> Outcome<()> {
        persona.workspace_parts = Some(Vec::new());
        persona.connect = None;
        persona.mounts.push(Mount { mode: MountMode::Ro, from: Some(self.0.clone()), to: PLACE.into() });
        let home = match (persona.view, environment.home()) {
            (View::HostRo, Some(home)) => home,
            _ => Path::new(MINIMAL_HOME),
        };
        for (variable, below_home, writable) in OWN {
            let from = user::base(environment, variable, below_home)?.join("opencode");
            let to = home.join(below_home).join("opencode");
            let mode = if writable { MountMode::Rw } else { MountMode::RoTry };
            if writable {
                make_directory(&from)?;
            }
            persona.mounts.push(Mount { mode, from: Some(from), to });
        }
        let password = if let Some(password) = environment.var(PASSWORD) {
            password.to_owned()
        } else {
            let password = super::bridge::secret()?;
            if matches!(subcommand, Some("serve" | "web")) {
                print_error(&format!("{PASSWORD} of this run is {}", *password));
            }
            password.to_string()
        };
        let set = &mut persona.env.set;
        set.extend(VARIABLES.map(|(name, value)| (name.to_owned(), value.to_owned())));
        set.extend(user.variables.clone());
        set.extend([
            (PASSWORD.to_owned(), password),
            ("OPENCODE_CONFIG_DIR".to_owned(), format!("{PLACE}/config")),
            ("LEGION_TOOLS_SOCKET".to_owned(), format!("{PLACE}/tools.sock")),
            ("LEGION_TOOLS_SECRET".to_owned(), secret.to_owned()),
        ]);
        Ok(())
    }

    fn directory(&self, name: &str) -> Outcome<()> {
        let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(self.0.join(name));
        made.map_err(|error| failed(&self.0.join(name), &error))
    }

    fn write(&self, name: &str, content: &[u8], mode: u32) -> Outcome<()> {
        let path = self.0.join(name);
        let written = fs::write(&path, content)
            .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(mode)));
        written.map_err(|error| failed(&path, &error))
    }
}

/// OpenCode makes them itself where it can.
fn make_directory(path: &Path) -> Outcome<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|error| failed(path, &error))
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    Failure::unavailable(format_args!("cannot make {} for OpenCode: {error}", path.display()))
}
