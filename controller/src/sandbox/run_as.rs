//! As whom bwrap runs (security.md 0.1). Pure.
//!
//! Invariant: never as uid 0. A process inside with the global root uid could write host sysctls and leave setuid-root
//! files in the workspace, whatever its capabilities.

/// First of the otherwise unused user ids that stand for root in sandboxes of root's own workspaces. Above the range of
/// system and login users, below that of containers.
const FIRST_STAND_IN: u32 = 70_001;

/// How many there are; two sandboxes share one only if more run at once.
const STAND_INS: u32 = 4096;

/// The user bwrap runs as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunAs {
    /// The controller's own, an ordinary user.
    Own {
        /// Never 0.
        uid: u32,
    },
    /// The workspace's owner, because the controller is root.
    Owner {
        /// Never 0.
        uid: u32,
        /// Never 0.
        gid: u32,
    },
    /// Nobody else: the workspace is root's own. It is mounted with ids mapped, so that what this user makes is root's
    /// on disk.
    StandIn {
        /// User and group id.
        id: u32,
    },
}

/// Chooses the user. `number` tells sandboxes of one controller apart.
pub fn choose(own_uid: u32, owner: (u32, u32), number: u32) -> RunAs {
    match (own_uid, owner) {
        (0, (0, _)) => RunAs::StandIn { id: FIRST_STAND_IN + number % STAND_INS },
        // A root group would open group-readable host files.
        (0, (uid, 0)) => RunAs::Owner { uid, gid: uid },
        (0, (uid, gid)) => RunAs::Owner { uid, gid },
        (uid, _) => RunAs::Own { uid },
    }
}

impl RunAs {
    /// The user id on the host.
    pub const fn uid(self) -> u32 {
        match self {
            Self::Own { uid } | Self::Owner { uid, .. } => uid,
            Self::StandIn { id } => id,
        }
    }

    /// The ids to change to, when the controller is root.
    pub const fn drop_to(self) -> Option<(u32, u32)> {
        match self {
            Self::Own { .. } => None,
            Self::Owner { uid, gid } => Some((uid, gid)),
            Self::StandIn { id } => Some((id, id)),
        }
    }

    /// The id that stands for root in mounts of the workspace.
    pub const fn stand_in(self) -> Option<u32> {
        match self {
            Self::StandIn { id } => Some(id),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_never_chosen() {
        assert_eq!(choose(1000, (0, 0), 0), RunAs::Own { uid: 1000 });
        assert_eq!(choose(0, (1000, 100), 0), RunAs::Owner { uid: 1000, gid: 100 });
        assert_eq!(choose(0, (1000, 0), 0), RunAs::Owner { uid: 1000, gid: 1000 });
        for number in [0, 1, u32::MAX] {
            let run_as = choose(0, (0, 0), number);
            assert!(run_as.uid() > 65_535 && run_as.drop_to() == Some((run_as.uid(), run_as.uid())));
        }
    }
}
