//! The files of the log: `audit-000001.jsonl` and on. A directory may hold other things, too.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{AtFlags, Dir, Mode, OFlags};

/// Name of the file of a number.
pub fn name(number: u32) -> String {
    format!("audit-{number:06}.jsonl")
}

/// The number in a name.
fn number(name: &str) -> Option<u32> {
    let number = name.strip_prefix("audit-")?.strip_suffix(".jsonl")?.parse().ok()?;
    (self::name(number) == name && number > 0).then_some(number)
}

/// The numbers of all files there are, in order.
pub fn list(dir: impl AsFd) -> io::Result<Vec<u32>> {
    let mut numbers = Vec::new();
    for entry in Dir::read_from(dir)? {
        numbers.extend(entry?.file_name().to_str().ok().and_then(number));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// Opens a file to append to it.
pub fn open(dir: BorrowedFd<'_>, number: u32, more: OFlags) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC | more;
    Ok(File::from(rustix::fs::openat(dir, name(number), flags, Mode::RUSR | Mode::WUSR)?))
}

/// Its length in bytes.
pub fn length(file: &File) -> io::Result<u64> {
    Ok(rustix::fs::fstat(file)?.st_size.unsigned_abs())
}

/// What tells a file from another of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    /// Of an open file.
    pub fn of(file: &File) -> io::Result<Self> {
        Ok(Self::new(&rustix::fs::fstat(file)?))
    }

    fn new(stat: &rustix::fs::Stat) -> Self {
        Self { device: stat.st_dev, inode: stat.st_ino }
    }
}

/// Which file has the name of a number now, and its length; `None` when there is none.
pub fn find(dir: impl AsFd, number: u32) -> io::Result<Option<(Identity, u64)>> {
    match rustix::fs::statat(dir, name(number), AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some((Identity::new(&stat), stat.st_size.unsigned_abs()))),
        Err(rustix::io::Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_names_are_ours() {
        assert_eq!(number("audit-000012.jsonl"), Some(12));
        assert_eq!(number("audit-1000000.jsonl"), Some(1_000_000));
        for other in
            ["audit-12.jsonl", "audit-000000.jsonl", "audit-000001.jsonl.gz", "audit-+00001.jsonl", "x"]
        {
            assert_eq!(number(other), None, "{other}");
        }
    }
}
