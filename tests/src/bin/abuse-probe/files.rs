//! Attempts on files: reading, writing, moving, linking, modes.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, RenameFlags, XattrFlags};

use crate::sys::{Arg, call};
use crate::{Seen, ok};

/// More than any of the small file systems of the tests holds.
const FILL_LIMIT: u64 = 256 << 20;

/// Bytes of one write while filling.
const FILL_CHUNK: usize = 1 << 20;

pub(crate) fn attempt(words: &[&str]) -> Option<Seen> {
    Some(match *words {
        ["read", path] => read(Path::new(path)),
        ["size", path] => fs::metadata(path).map(|meta| format!("{} bytes", meta.len())),
        ["list", path] => list(Path::new(path)),
        ["names", path, text] => names(Path::new(path), text),
        ["search", path, text] => search(path, text),
        ["readlink", path] => fs::read_link(path).map(|target| target.display().to_string()),
        // Opening is the attempt: nothing is written should it succeed.
        ["open-to-write", path] => ok(OpenOptions::new().write(true).open(path)),
        ["create", path] => create(path),
        ["mkdir", path] => ok(fs::create_dir(path)),
        ["unlink", path] => ok(fs::remove_file(path)),
        ["rename", from, to] => ok(fs::rename(from, to)),
        ["exchange", from, to] => ok(rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::EXCHANGE)),
        ["link", from, to] => ok(fs::hard_link(from, to)),
        ["symlink", target, path] => ok(symlink(target, path)),
        ["truncate", path] => ok(OpenOptions::new().write(true).truncate(true).open(path)),
        ["xattr", path, name] => ok(rustix::fs::setxattr(path, name, b"x", XattrFlags::empty())),
        ["chown", path, id] => ok(std::os::unix::fs::chown(path, id.parse().ok(), id.parse().ok())),
        ["mknod", path, kind] => mknod(path, kind),
        ["fill", dir] => fill(&Path::new(dir).join("filler")),
        ["sparse", path] => ok(File::create(path).and_then(|file| file.set_len(10 << 30))),
        [
            "chmod" | "chmodat" | "fchmod" | "fchmodat2" | "create-mode" | "creat" | "mknod-mode",
            path,
            mode,
        ] => {
            let Ok(mode) = u32::from_str_radix(mode, 8) else { return None };
            suid(words[0], path, mode)
        }
        _ => return None,
    })
}

fn read(path: &Path) -> Seen {
    if fs::metadata(path)?.is_dir() {
        return ok(fs::read_dir(path));
    }
    ok(File::open(path)?.read(&mut [0; 1]))
}

/// The names in a directory.
fn list(path: &Path) -> Seen {
    let mut names = Vec::new();
    for entry in fs::read_dir(path)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(format!("[{}]", names.join(" ")))
}

/// Whether a directory has a name with this text in it.
fn names(path: &Path, text: &str) -> Seen {
    let seen = list(path)?;
    Ok(presence(seen.contains(text)))
}

/// Whether a file has this text in it.
fn search(path: &str, text: &str) -> Seen {
    let content = fs::read(path)?;
    Ok(presence(content.windows(text.len()).any(|window| window == text.as_bytes())))
}

fn presence(is_there: bool) -> String {
    if is_there { "present" } else { "absent" }.to_owned()
}

fn create(path: &str) -> Seen {
    ok(OpenOptions::new().write(true).create_new(true).open(path)?.write_all(b"x"))
}

fn mknod(path: &str, kind: &str) -> Seen {
    let (kind, device) = match kind {
        "null" => (FileType::CharacterDevice, rustix::fs::makedev(1, 3)),
        "disk" => (FileType::BlockDevice, rustix::fs::makedev(8, 0)),
        _ => (FileType::Fifo, 0),
    };
    ok(rustix::fs::mknodat(CWD, path, kind, Mode::RUSR | Mode::WUSR, device))
}

/// Writes until there is no room, and cleans up.
fn fill(path: &Path) -> Seen {
    let mut file = File::create(path)?;
    let chunk = vec![1; FILL_CHUNK];
    let mut room = FILL_LIMIT;
    let outcome = loop {
        match file.write(&chunk) {
            Ok(_) if room == 0 => break Ok("no bound".to_owned()),
            Ok(count) => room = room.saturating_sub(count as u64),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => break Err(error),
        }
    };
    fs::remove_file(path)?;
    outcome
}

/// Tries to get set-id bits onto a file in one of the ways there are. `mode` is the whole mode.
fn suid(way: &str, path: &str, mode: u32) -> Seen {
    let text = CString::new(path)?;
    let (here, number) = (i64::from(libc::AT_FDCWD), i64::from(mode));
    let (file, bits) = (Arg::Text(&text), Arg::Number(number));
    let done = match way {
        #[cfg(target_arch = "x86_64")]
        "chmod" => call(libc::SYS_chmod, &[file, bits]),
        "fchmod" => rustix::fs::fchmod(File::open(path)?, Mode::from_raw_mode(mode))
            .map(|()| 0)
            .map_err(io::Error::from),
        "fchmodat2" => call(libc::SYS_fchmodat2, &[Arg::Number(here), file, bits, Arg::Number(0)]),
        "create-mode" => {
            let options = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
            rustix::fs::open(path, options, Mode::from_raw_mode(mode)).map(|_| 0).map_err(io::Error::from)
        }
        #[cfg(target_arch = "x86_64")]
        "creat" => call(libc::SYS_creat, &[file, bits]),
        "mknod-mode" => {
            let regular = Arg::Number(i64::from(libc::S_IFREG) | number);
            call(libc::SYS_mknodat, &[Arg::Number(here), file, regular, Arg::Number(0)])
        }
        _ => call(libc::SYS_fchmodat, &[Arg::Number(here), file, bits]),
    };
    done?;
    // What counts is what the file has in the end.
    let got = fs::metadata(path)?.mode() & 0o7777;
    Ok(if got & 0o6000 == 0 { "ok".to_owned() } else { format!("mode {got:o}") })
}
