//! As whom bwrap runs (security.md 0.1). Pure.
//!
//! Invariant: never as uid 0. A process inside with the global root uid could write host sysctls and leave setuid-root
//! files in the workspace, whatever its capabilities.

use std::path::Path;

use crate::failure::{Failure, Outcome};

/// The user bwrap runs as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunAs {
    /// Never 0.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Whether the controller has to change its user for it.
    pub drop: bool,
}

/// Chooses the user: the controller's own, or the workspace's owner when the controller is root.
///
/// # Errors
/// Exit 69 when both are root.
pub fn choose(own: (u32, u32), owner: (u32, u32), workspace: &Path) -> Outcome<RunAs> {
    if own.0 != 0 {
        return Ok(RunAs { uid: own.0, gid: own.1, drop: false });
    }
    if owner.0 == 0 {
        return Err(Failure::unavailable(format_args!(
            "the workspace {} belongs to root and a sandbox must not run as root: start Legion as an ordinary user, or \
             give the workspace to one with chown -R",
            workspace.display()
        )));
    }
    // A root group would open group-readable host files.
    let gid = if owner.1 == 0 { owner.0 } else { owner.1 };
    Ok(RunAs { uid: owner.0, gid, drop: true })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_never_chosen() {
        let path = Path::new("/w");
        assert_eq!(choose((1000, 1000), (0, 0), path).unwrap(), RunAs { uid: 1000, gid: 1000, drop: false });
        assert_eq!(choose((0, 0), (1000, 100), path).unwrap(), RunAs { uid: 1000, gid: 100, drop: true });
        assert_eq!(choose((0, 0), (1000, 0), path).unwrap(), RunAs { uid: 1000, gid: 1000, drop: true });
        assert_eq!(choose((0, 0), (0, 0), path).unwrap_err().exit.code(), 69);
    }
}
