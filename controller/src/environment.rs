//! The process's surroundings, read once in `main`: variables, working directory, own path, user ids.
//!
//! Nothing else in this crate reads the environment, so everything below `main` can be tested with values.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A snapshot of the surroundings.
#[derive(Debug, Clone)]
pub struct Environment {
    /// Variables whose name and value are UTF-8.
    pub vars: BTreeMap<String, String>,
    /// Absolute.
    pub cwd: PathBuf,
    /// The running executable, links resolved.
    pub executable: PathBuf,
    /// Effective user id.
    pub uid: u32,
}

impl Environment {
    /// A variable that is set and not empty.
    pub fn var(&self, name: &str) -> Option<&str> {
        self.vars.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// `$HOME`, when it is an absolute path.
    pub fn home(&self) -> Option<&Path> {
        self.var("HOME").map(Path::new).filter(|path| path.is_absolute())
    }

    /// Where programs keep the user's configuration.
    pub fn config_home(&self) -> Option<PathBuf> {
        let named = self.var("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        named.or_else(|| self.home().map(|home| home.join(".config")))
    }

    /// Configuration files git on the host reads besides those of repositories, there or not.
    pub fn git_configs(&self) -> Vec<PathBuf> {
        let of_user = self.config_home().map(|base| base.join("git/config"));
        let in_home = self.home().map(|home| home.join(".gitconfig"));
        [PathBuf::from("/etc/gitconfig")].into_iter().chain(of_user).chain(in_home).collect()
    }

    /// An absolute path from the user: `~/` is home, anything relative starts at the working directory.
    pub fn resolve(&self, path: &Path) -> PathBuf {
        match (path.strip_prefix("~"), self.home()) {
            (Ok(rest), Some(home)) => home.join(rest),
            // `.` and `./x` are shown as people would write them.
            _ => self.cwd.join(path).components().collect(),
        }
    }

    /// The first executable regular file of this name in `$PATH`.
    pub fn find_program(&self, name: &str) -> Option<PathBuf> {
        let path = self.var("PATH").unwrap_or("/usr/local/bin:/usr/bin:/bin");
        path.split(':')
            .filter(|dir| dir.starts_with('/'))
            .map(|dir| Path::new(dir).join(name))
            .find(|file| file.is_file() && rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok())
    }
}
