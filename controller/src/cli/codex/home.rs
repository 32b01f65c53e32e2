//! Codex's directory when Legion starts it: the user's own by links, but with a configuration that is Legion's.
//!
//! It stays from run to run: Codex notes conversations by their path, and goes on with them without Legion as well.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::dirs::{self, Dirs};
use crate::environment::Environment;
use crate::failure::{Failure, Outcome};
use crate::limits::{MAX_CLIENT_DIRECTORY_ENTRIES, MAX_CONFIG_BYTES};

/// What Codex keeps from run to run in directories; they are made where the user has none yet.
const DIRECTORIES: [&str; 6] =
    ["archived_sessions", "log", "memories", "sessions", "shell_snapshots", "thread-writer-locks"];

/// The same in files; a link that leads nowhere yet becomes one when Codex writes it.
const FILES: [&str; 5] = [LOGIN, "auth.lock", "history.jsonl", "installation_id", "session_index.jsonl"];

const LOGIN: &str = "auth.json";

/// What is Legion's: the configuration, and what belongs to one run.
const PRIVATE: [&str; 4] = ["config.toml", "environments.toml", "tmp", ".tmp"];

/// Both directories.
pub(super) struct CodexHome {
    /// The user's own; absolute, without links.
    pub(super) own: PathBuf,
    /// Legion's; absolute.
    pub(super) path: PathBuf,
    databases: String,
}

impl CodexHome {
    /// Makes Legion's directory what it should be; `environments` says where Codex's commands run.
    pub(super) fn prepare(environment: &Environment, dirs: &Dirs, environments: &str) -> Outcome<Self> {
        let own = find(environment)?;
        let failed = |error: io::Error| {
            Failure::config(format_args!("cannot use Codex's directory {}: {error}", own.display()))
        };
        for name in DIRECTORIES {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(own.join(name)).map_err(failed)?;
        }
        let own = own.canonicalize().map_err(failed)?;
        let entries = fs::read_dir(&own).map_err(failed)?.take(MAX_CLIENT_DIRECTORY_ENTRIES);
        let names = entries.map(|entry| entry.map(|entry| entry.file_name()));
        let mut names = names.collect::<io::Result<Vec<_>>>().map_err(failed)?;
        names.extend(FILES.iter().map(Into::into));
        let path = dirs.state.join("codex");
        dirs::open_private(&dirs.state, environment.uid)?;
        let dir = dirs::open_private(&path, environment.uid)?;
        let databases = environment.var("CODEX_SQLITE_HOME").map(str::to_owned);
        let databases = databases.unwrap_or_else(|| own.display().to_string());
        let home = Self { own, path, databases };
        for name in names.iter().filter(|name| is_linked(name)) {
            home.link(name).map_err(|error| home.failed(name, &error))?;
        }
        home.write(&dir, "config.toml", &private_configuration(&home.own.join("config.toml"))?)?;
        home.write(&dir, "environments.toml", environments)?;
        Ok(home)
    }

    /// What tells Codex of both directories. Its databases have files beside them that come and go, so they are not linked
    /// but found where they are.
    pub(super) fn variables(&self) -> BTreeMap<String, String> {
        BTreeMap::from([
            ("CODEX_HOME".to_owned(), self.path.display().to_string()),
            ("CODEX_SQLITE_HOME".to_owned(), self.databases.clone()),
        ])
    }

    /// Keeps what Codex did to a link instead of what it leads to: a new file in its place, or, for the login, none.
    pub(super) fn keep(&self) -> Outcome<()> {
        for name in FILES {
            let (ours, own) = (self.path.join(name), self.own.join(name));
            let kept = match fs::symlink_metadata(&ours) {
                Ok(meta) if meta.is_file() => replace(&ours, &own).and_then(|()| relink(&own, &ours)),
                Err(error) if error.kind() == io::ErrorKind::NotFound && name == LOGIN => remove(&own),
                _ => Ok(()),
            };
            kept.map_err(|error| self.failed(OsStr::new(name), &error))?;
        }
        Ok(())
    }

    /// A link to what the user has, unless something of Codex's own has the name.
    fn link(&self, name: &OsStr) -> io::Result<()> {
        let (ours, own) = (self.path.join(name), self.own.join(name));
        match fs::symlink_metadata(&ours) {
            Ok(meta) if meta.is_symlink() && fs::read_link(&ours)? == own => return Ok(()),
            Ok(meta) if meta.is_symlink() => return relink(&own, &ours),
            // A run that was killed could not keep it.
            Ok(meta) if meta.is_file() && FILES.iter().any(|file| name == *file) => {
                replace(&ours, &own)?;
                return relink(&own, &ours);
            }
            Ok(_) => return Ok(()),
            Err(_) => {}
        }
        match std::os::unix::fs::symlink(&own, &ours) {
            // Another run of Codex has just made it.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            made => made,
        }
    }

    fn write(&self, dir: &OwnedFd, name: &str, text: &str) -> Outcome<()> {
        dirs::write_private(dir, name, text.as_bytes()).map_err(|error| self.failed(OsStr::new(name), &error))
    }

    fn failed(&self, name: &OsStr, error: &io::Error) -> Failure {
        let (path, name) = (self.path.display(), name.to_string_lossy());
        Failure::unavailable(format_args!("cannot keep Codex's {name} in {path}: {error}"))
    }
}

/// Puts a link in the place of whatever is there, in one step: another run may look at it.
fn relink(own: &Path, ours: &Path) -> io::Result<()> {
    let mut new = ours.as_os_str().to_owned();
    new.push(format!(".{}", std::process::id()));
    remove(Path::new(&new))?;
    std::os::unix::fs::symlink(own, &new)?;
    fs::rename(&new, ours)
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn find(environment: &Environment) -> Outcome<PathBuf> {
    let explicit = environment.var("CODEX_HOME").map(|home| environment.resolve(Path::new(home)));
    explicit
        .or_else(|| environment.home().map(|home| home.join(".codex")))
        .ok_or_else(|| Failure::config("no place for Codex's configuration: set HOME or CODEX_HOME"))
}

fn is_linked(name: &OsStr) -> bool {
    let text = name.to_string_lossy();
    !PRIVATE.contains(&&*text) && !text.contains(".sqlite")
}

/// The file as a whole: nobody sees half of it.
fn replace(from: &Path, to: &Path) -> io::Result<()> {
    let new = to.with_extension("legion-new");
    let _ = fs::remove_file(&new);
    fs::copy(from, &new)?;
    fs::rename(new, to)
}

/// The user's `config.toml`, in which Codex does without a sandbox of its own unless the user has decided otherwise:
/// Legion is the sandbox, and decides.
fn private_configuration(path: &Path) -> Outcome<String> {
    let fail = |why: &dyn std::fmt::Display| {
        Failure::config(format_args!("cannot read Codex's configuration {}: {why}", path.display()))
    };
    let text = match fs::metadata(path) {
        Ok(meta) if meta.len() > MAX_CONFIG_BYTES => {
            return Err(fail(&format_args!("it is larger than {MAX_CONFIG_BYTES} bytes")));
        }
        Ok(_) => fs::read_to_string(path).map_err(|error| fail(&error))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(fail(&error)),
    };
    let table = text.parse::<toml::Table>().map_err(|error| fail(&error.message()))?;
    let merged = with_defaults(table);
    toml::to_string(&merged).map_err(Failure::internal)
}

fn with_defaults(mut table: toml::Table) -> toml::Table {
    if !table.contains_key("default_permissions") {
        table.entry("sandbox_mode").or_insert_with(|| "danger-full-access".into());
    }
    table.entry("approval_policy").or_insert_with(|| "never".into());
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_user_has_decided_stays() {
        let merged = |text: &str| toml::to_string(&with_defaults(text.parse().unwrap())).unwrap();
        let plain = merged("model = \"m\"\n[model_providers.x]\nname = \"x\"\n");
        for line in ["model = \"m\"", "sandbox_mode = \"danger-full-access\"", "approval_policy = \"never\""]
        {
            assert!(plain.lines().any(|found| found == line), "{plain}");
        }
        let own = merged("sandbox_mode = \"read-only\"\napproval_policy = \"on-request\"\n");
        assert!(own.contains("read-only") && own.contains("on-request"), "{own}");
        assert!(!merged("default_permissions = \":workspace\"\n").contains("sandbox_mode"));
    }

    #[test]
    fn neither_configuration_nor_databases_are_linked() {
        let linked = |name: &str| is_linked(OsStr::new(name));
        assert!(
            linked("auth.json") && linked("sessions") && linked("AGENTS.md") && linked("work.config.toml")
        );
        assert!(!linked("config.toml") && !linked("environments.toml") && !linked("state_5.sqlite-wal"));
    }
}
