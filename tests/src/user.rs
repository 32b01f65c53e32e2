//! Whom the processes under test run as.
//!
//! Invariant: people run Legion as an ordinary user, so when the tests run as root (CI, containers) every child
//! drops to `LEGION_TEST_USER` unless a test asks for [`Identity::Root`] by name.

use std::fs::File;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::{FlockOperation, flock};
use tokio::process::Command;

use crate::settings::settings;

/// The account a child runs as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity {
    /// The ordinary user: ourselves, or `LEGION_TEST_USER` when we are root.
    User,
    /// Root. Only possible when the tests run as root; see [`Identity::root`].
    Root,
}

/// An entry of the user database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Login name.
    pub name: String,
    /// Numeric user id.
    pub uid: u32,
    /// Numeric primary group id.
    pub gid: u32,
    /// Home directory.
    home: PathBuf,
}

/// Whether the test process itself is root.
pub fn we_are_root() -> bool {
    rustix::process::geteuid().is_root()
}

impl Identity {
    /// [`Identity::Root`], or `None` where the tests do not run as root.
    pub fn root() -> Option<Self> {
        we_are_root().then_some(Self::Root)
    }

    /// The account behind this identity.
    pub fn account(self) -> Account {
        match self {
            Self::Root => Account { name: "root".to_owned(), uid: 0, gid: 0, home: "/root".into() },
            Self::User => test_account().clone(),
        }
    }

    /// Makes `command` run as this identity, with no supplementary groups.
    pub fn apply(self, command: &mut Command) {
        let account = self.account();
        if we_are_root() && account.uid != 0 {
            command.uid(account.uid).gid(account.gid);
        }
    }

    /// Gives one path to this identity; nothing to do when it is ours already.
    pub fn own(self, path: &Path) {
        let account = self.account();
        if we_are_root() {
            chown(path, Some(account.uid), Some(account.gid))
                .unwrap_or_else(|error| panic!("cannot give {} away: {error}", path.display()));
        }
    }
}

fn test_account() -> &'static Account {
    static ACCOUNT: OnceLock<Account> = OnceLock::new();
    ACCOUNT.get_or_init(|| {
        let uid = rustix::process::geteuid().as_raw();
        if we_are_root() {
            let name = &settings().user;
            let account = find_account(|entry| &entry.name == name).unwrap_or_else(|| {
                panic!("no user {name}: run scripts/test, or `useradd -m -s /bin/bash {name}`")
            });
            share(&account.home);
            account
        } else {
            let gid = rustix::process::getegid().as_raw();
            find_account(|entry| entry.uid == uid).unwrap_or(Account {
                name: uid.to_string(),
                uid,
                gid,
                home: "/".into(),
            })
        }
    })
}

/// Holds a lock on the home of the test's user as long as this process lives: `scripts/test` looks for what was left behind
/// when nobody holds it.
fn share(home: &Path) {
    static HELD: OnceLock<File> = OnceLock::new();
    let file = File::open(home).unwrap_or_else(|error| panic!("cannot open {}: {error}", home.display()));
    flock(&file, FlockOperation::LockShared).expect("the lock is not held for long");
    HELD.set(file).expect("there is one test account");
}

fn find_account(wanted: impl Fn(&Account) -> bool) -> Option<Account> {
    let passwd = std::fs::read_to_string("/etc/passwd").expect("the user database is readable");
    passwd.lines().filter_map(parse_account).find(wanted)
}

fn parse_account(line: &str) -> Option<Account> {
    let mut fields = line.split(':');
    let name = fields.next()?.to_owned();
    let uid = fields.nth(1)?.parse().ok()?;
    let gid = fields.next()?.parse().ok()?;
    let home = fields.nth(1)?.into();
    Some(Account { name, uid, gid, home })
}
