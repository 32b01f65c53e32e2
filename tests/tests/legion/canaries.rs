//! Files of the host that the ordinary user may write and no session may: beside the workspace, in HOME, in /tmp.
//!
//! Invariant: they belong to the user the commands run as, so only a sandbox keeps them as they are.

use std::fs;
use std::path::{Path, PathBuf};

use legion_tests::scratch::Scratch;
use tempfile::NamedTempFile;

/// What is in them.
const UNTOUCHED: &str = "nobody has touched this\n";

/// The planted files. They go when dropped.
pub(crate) struct Canaries {
    paths: [PathBuf; 3],
    _in_tmp: NamedTempFile,
}

impl Canaries {
    pub(crate) fn plant(scratch: &Scratch) -> Self {
        let in_tmp = tempfile::Builder::new().prefix("legion-canary-").tempfile_in("/tmp").unwrap();
        fs::write(in_tmp.path(), UNTOUCHED).unwrap();
        scratch.identity().own(in_tmp.path());
        let [home, outside] = ["home/canary", "outside/canary"].map(|path| scratch.write(path, UNTOUCHED));
        Self { paths: [home, outside, in_tmp.path().to_owned()], _in_tmp: in_tmp }
    }

    pub(crate) fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Which of them have been changed.
    pub(crate) fn touched(&self) -> Vec<&Path> {
        let is_touched = |path: &&PathBuf| fs::read_to_string(path).ok().as_deref() != Some(UNTOUCHED);
        self.paths.iter().filter(is_touched).map(PathBuf::as_path).collect()
    }
}
