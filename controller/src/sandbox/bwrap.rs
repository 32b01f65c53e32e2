//! Which bubblewrap there is and what it can do. Options are probed, version numbers are not compared: distributions
//! carry options back.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::environment::Environment;
use crate::failure::{Failure, Outcome};

/// Options no sandbox of ours does without.
const REQUIRED: [&str; 12] = [
    "--add-seccomp-fd",
    "--args",
    "--as-pid-1",
    "--assert-userns-disabled",
    "--block-fd",
    "--clearenv",
    "--disable-userns",
    "--json-status-fd",
    "--perms",
    "--ro-bind-data",
    "--size",
    "--unshare-all",
];

/// A usable bubblewrap.
#[derive(Debug, Clone)]
pub struct Bwrap {
    /// Absolute.
    pub path: PathBuf,
    /// What `--version` prints.
    pub version: String,
    /// Whether `--bind-fd` and `--ro-bind-fd` exist.
    pub bind_fd: bool,
}

impl Bwrap {
    /// Finds bwrap in `$PATH` and asks it for its options.
    ///
    /// # Errors
    /// Exit 69 when it is missing, too old, or setuid root.
    pub fn probe(environment: &Environment) -> Outcome<Self> {
        let path = environment.find_program("bwrap").ok_or_else(|| {
            Failure::unavailable(
                "bubblewrap (bwrap) is not installed, and nothing runs without its sandbox: install the package \
                 bubblewrap, e.g. apt-get install bubblewrap",
            )
        })?;
        let ask = |option: &str| -> Outcome<String> {
            let output = Command::new(&path).arg(option).env_clear().stdin(Stdio::null()).output().map_err(
                |error| Failure::unavailable(format_args!("cannot run {}: {error}", path.display())),
            )?;
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        };
        let help = ask("--help")?;
        let has = |option: &str| help.split_whitespace().any(|word| word == option);
        if let Some(missing) = REQUIRED.iter().find(|option| !has(option)) {
            return Err(Failure::unavailable(format_args!(
                "{} does not know {missing}: install bubblewrap 0.8 or newer",
                path.display()
            )));
        }
        let version = ask("--version")?.trim().to_owned();
        Ok(Self { version, bind_fd: has("--bind-fd") && has("--ro-bind-fd"), path })
    }
}
