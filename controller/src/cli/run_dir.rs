//! A private directory for one run of a client: its configuration, gone at the end.

use std::path::{Path, PathBuf};

use super::Context;
use crate::dirs::{self, CLIENTS};
use crate::failure::Outcome;

/// The directory, mode 0700. Dropping it removes it; of a run that was killed, a later one or a controller removes it.
pub(super) struct RunDir(PathBuf);

impl RunDir {
    /// Makes it below the run-time directory.
    pub(super) fn make(context: &Context) -> Outcome<Self> {
        let (dirs, uid) = (context.dirs()?, context.environment.uid);
        dirs::open_private(&dirs.state, uid)?;
        dirs::open_private(&dirs.run, uid)?;
        dirs::sweep(&dirs.run);
        let path = dirs.run.join(format!("{CLIENTS}{}", std::process::id()));
        // The number is ours now: what has its name is of a process that was killed.
        let _ = std::fs::remove_dir_all(&path);
        dirs::open_private(&path, uid)?;
        Ok(Self(path))
    }

    /// Absolute.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!(%error, "{} could not be removed", self.0.display());
        }
    }
}
