//! Where the harness finds what it drives.
//!
//! Invariant: the only file of this crate that reads the environment of the test process. Children never
//! inherit it; they get what [`crate::scratch::Scratch::command`] builds.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The account that the binaries run as when the tests themselves run as root and `LEGION_TEST_USER` is unset.
const DEFAULT_TEST_USER: &str = "legion-test";

/// What the environment of the test process says.
#[derive(Debug)]
pub struct Settings {
    bin_dir: PathBuf,
    clients: PathBuf,
    /// `LEGION_TEST_USER`: the account for everything under test when the tests run as root.
    pub user: String,
    /// `LEGION_FUZZ_ROUNDS`: connections of each fuzz test, for a longer run than the suite's.
    pub fuzz_rounds: Option<u64>,
}

/// Reads the environment once.
pub fn settings() -> &'static Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    SETTINGS.get_or_init(|| Settings {
        bin_dir: variable("LEGION_BIN_DIR").map_or_else(beside_the_test, PathBuf::from),
        clients: variable("LEGION_CLIENTS_DIR")
            .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("clients"), PathBuf::from),
        user: variable("LEGION_TEST_USER").unwrap_or_else(|| DEFAULT_TEST_USER.to_owned()),
        fuzz_rounds: variable("LEGION_FUZZ_ROUNDS")
            .map(|rounds| rounds.parse().expect("LEGION_FUZZ_ROUNDS is a number")),
    })
}

impl Settings {
    /// A Legion binary: in `LEGION_BIN_DIR`, or where cargo put it. Panics when it is not there, because a
    /// test that cannot run must not pass.
    pub fn legion_binary(&self, name: &str) -> PathBuf {
        let path = self.bin_dir.join(name);
        assert!(
            path.is_file(),
            "{name} is not in {}: run scripts/test, or build the workspace and set LEGION_BIN_DIR",
            self.bin_dir.display()
        );
        path
    }

    /// The folder in which `npm ci` has put the pinned clients.
    pub fn node_modules(&self) -> PathBuf {
        let path = self.clients.join("node_modules");
        assert!(path.is_dir(), "{} is missing: run `npm ci` in {}", path.display(), self.clients.display());
        path
    }
}

/// Cargo puts a test into `<profile>/deps` and the binaries into `<profile>`.
fn beside_the_test() -> PathBuf {
    let test = std::env::current_exe().expect("the running test has a path");
    test.parent().and_then(Path::parent).expect("tests lie in <profile>/deps").to_owned()
}

#[expect(clippy::disallowed_methods, reason = "the one place where the tests read their environment")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
