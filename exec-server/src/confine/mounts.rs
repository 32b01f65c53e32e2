//! One file by several paths: bind mounts, as those of a workspace that is also `/workspace`.
//!
//! Landlock grants by what a directory is, not by what it is called, and a policy goes by names. So a rule that takes
//! something away is repeated for every other name that the mount table gives to the same place, and so is one that gives
//! something. Pure, but for reading the table.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use crate::limits::MAX_MOUNT_TABLE_BYTES;

/// Where the mount table is.
const TABLE: &str = "/proc/self/mountinfo";

/// A part of a file system, and where it is seen.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mount {
    /// `major:minor` of the file system.
    device: Vec<u8>,
    /// Inside the file system.
    root: PathBuf,
    /// Where it is mounted.
    point: PathBuf,
}

/// All mounts, later ones on top of earlier ones.
#[derive(Debug, Default)]
pub(super) struct Mounts(Vec<Mount>);

impl Mounts {
    /// Those of this process.
    ///
    /// # Errors
    /// The table cannot be read, or is longer than anybody needs.
    pub(super) fn read() -> io::Result<Self> {
        let mut text = Vec::new();
        let limit = MAX_MOUNT_TABLE_BYTES as u64;
        std::fs::File::open(TABLE)?.take(limit + 1).read_to_end(&mut text)?;
        if text.len() > MAX_MOUNT_TABLE_BYTES {
            return Err(io::Error::other(format!("{TABLE} has more than {limit} bytes")));
        }
        Ok(Self::parse(&text))
    }

    fn parse(text: &[u8]) -> Self {
        Self(text.split(|byte| *byte == b'\n').filter_map(parse_line).collect())
    }

    /// What a real path is: a file system, and where in it.
    fn place(&self, path: &Path) -> Option<(&[u8], PathBuf)> {
        let covering = self.0.iter().filter(|mount| path.starts_with(&mount.point));
        // The one with the longest path counts, and of several there the last.
        let mount = covering.max_by_key(|mount| mount.point.as_os_str().len())?;
        let rest = path.strip_prefix(&mount.point).ok()?;
        Some((&mount.device, joined(&mount.root, rest)))
    }

    /// Other paths of what is at a real path, and those of parts of it that are mounted elsewhere.
    pub(super) fn aliases(&self, path: &Path) -> Vec<PathBuf> {
        let Some((device, inside)) = self.place(path) else { return Vec::new() };
        let others = self.0.iter().filter(|other| other.device == device);
        let alias = |other: &Mount| match inside.strip_prefix(&other.root) {
            Ok(rest) => Some(joined(&other.point, rest)),
            Err(_) => other.root.starts_with(&inside).then(|| other.point.clone()),
        };
        others.filter_map(alias).filter(|alias| alias != path).collect()
    }

    /// Other paths that lead to exactly what is at a real path: no part of it, and nothing that is mounted over it.
    pub(super) fn names(&self, path: &Path) -> Vec<PathBuf> {
        let place = self.place(path);
        let mut names = self.aliases(path);
        names.retain(|name| self.place(name) == place);
        names
    }
}

/// Without the slash that joining nothing adds.
fn joined(base: &Path, rest: &Path) -> PathBuf {
    if rest.as_os_str().is_empty() { base.to_owned() } else { base.join(rest) }
}

/// `36 35 98:0 /root /point rw,noatime …`
fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = fields.nth(2)?.to_vec();
    let root = unescaped(fields.next()?);
    let point = unescaped(fields.next()?);
    Some(Mount { device, root, point })
}

/// Spaces, tabs, line feeds and backslashes are written as three octal digits.
fn unescaped(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, more @ ..] = rest {
        let digits = match rest {
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..] => {
                Some((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'))
            }
            _ => None,
        };
        bytes.push(digits.unwrap_or(*first));
        rest = if digits.is_some() { &more[3..] } else { more };
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"1 0 0:1 / / rw - tmpfs tmpfs rw
2 1 8:1 /home/u/work\\040space /home/u/work\\040space rw - ext4 /dev/sda1 rw
3 1 8:1 /home/u/work\\040space /workspace rw - ext4 /dev/sda1 rw
4 2 8:1 /home/u/work\\040space/.git /home/u/work\\040space/.git ro - ext4 /dev/sda1 rw
5 1 8:1 /usr /usr ro - ext4 /dev/sda1 rw
6 1 8:1 /home/u/work\\040space/deep/part /part rw - ext4 /dev/sda1 rw
7 1 0:9 / /tmp rw - tmpfs tmpfs rw
8 3 0:10 / /workspace/over rw - tmpfs tmpfs rw
";

    fn aliases(path: &str) -> Vec<String> {
        let found = Mounts::parse(TEXT).aliases(Path::new(path));
        found.iter().map(|path| path.to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn a_place_has_all_the_names_its_mounts_give_it() {
        let w = "/home/u/work space";
        assert_eq!(aliases(&format!("{w}/a.env")), ["/workspace/a.env"]);
        assert_eq!(aliases("/workspace/a.env"), [format!("{w}/a.env")]);
        assert_eq!(aliases(&format!("{w}/.git/config")), ["/workspace/.git/config"]);
        assert_eq!(aliases(&format!("{w}/deep")), ["/workspace/deep", "/part"]);
        assert_eq!(aliases(&format!("{w}/deep/part/x")), ["/workspace/deep/part/x", "/part/x"]);
        assert_eq!(aliases("/part/x"), [format!("{w}/deep/part/x"), "/workspace/deep/part/x".to_owned()]);
        assert_eq!(aliases(w), ["/workspace", &format!("{w}/.git"), "/part"]);
        assert!(aliases("/tmp/x").is_empty() && aliases("/usr/bin").is_empty());
    }

    #[test]
    fn a_part_is_no_other_name_nor_is_what_something_is_mounted_over() {
        let names = |path: &str| Mounts::parse(TEXT).names(Path::new(path));
        let w = "/home/u/work space";
        assert_eq!(names(w), [Path::new("/workspace")]);
        assert_eq!(names(&format!("{w}/.git")), [Path::new("/workspace/.git")]);
        assert_eq!(names(&format!("{w}/over")), [] as [&Path; 0]);
    }

    #[test]
    fn the_table_of_this_process_is_understood() {
        let mounts = Mounts::read().unwrap();
        assert!(mounts.0.iter().any(|mount| mount.point == Path::new("/")));
    }
}
