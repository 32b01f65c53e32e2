//! The directory of one case: what the case file asks for is made here, and looked at afterwards.
//!
//! Invariant: everything made belongs to the user the servers run as, and everything is gone with the value.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::matcher;
use crate::step::File;
use crate::user::User;
use crate::vars::Vars;

/// How a case describes one thing to make. A bare string is a file with that text.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Entry {
    text: Option<Value>,
    /// Length of a file without data blocks, in bytes.
    sparse: Option<u64>,
    link: Option<String>,
    #[serde(default)]
    dir: bool,
    #[serde(default)]
    fifo: bool,
    #[serde(default)]
    socket: bool,
    /// Octal permissions.
    mode: Option<String>,
    /// Modification time, milliseconds since 1970.
    mtime_ms: Option<u64>,
    /// That many empty files in the (new) directory.
    filled_with: Option<u32>,
}

/// A scratch directory.
pub(crate) struct Scratch {
    dir: PathBuf,
    owner: Option<User>,
    inodes: BTreeMap<PathBuf, u64>,
}

impl Scratch {
    pub(crate) fn new(dir: PathBuf, owner: Option<User>) -> Result<Self, String> {
        fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        let scratch = Self { dir, owner, inodes: BTreeMap::new() };
        scratch.give(&scratch.dir)?;
        Ok(scratch)
    }

    pub(crate) fn path_text(&self) -> String {
        self.dir.display().to_string()
    }

    /// The path of a name in a case file; `%XX` stands for a byte.
    fn path(&self, name: &str) -> Result<PathBuf, String> {
        let mut bytes = Vec::with_capacity(name.len());
        let mut rest = name.bytes();
        while let Some(byte) = rest.next() {
            if byte == b'%' {
                let digits = [rest.next(), rest.next()];
                let hex: String = digits.iter().flatten().map(|b| char::from(*b)).collect();
                bytes.push(u8::from_str_radix(&hex, 16).map_err(|_| format!("bad escape in {name}"))?);
            } else {
                bytes.push(byte);
            }
        }
        Ok(self.dir.join(OsString::from_vec(bytes)))
    }

    fn give(&self, path: &Path) -> Result<(), String> {
        match &self.owner {
            Some(user) => std::os::unix::fs::lchown(path, Some(user.uid), Some(user.gid))
                .map_err(|e| format!("chown {}: {e}", path.display())),
            None => Ok(()),
        }
    }

    /// Makes the entries; permissions come last so that a closed directory can be filled.
    pub(crate) fn make(&mut self, entries: &Map<String, Value>, vars: &Vars) -> Result<(), String> {
        let mut modes = Vec::new();
        for (name, value) in entries {
            let entry = match vars.expand(value)? {
                Value::String(text) => Entry { text: Some(Value::String(text)), ..Entry::default() },
                Value::Null => Entry { dir: true, ..Entry::default() },
                other => serde_json::from_value(other).map_err(|e| format!("{name}: {e}"))?,
            };
            let path = self.path(name)?;
            self.make_parents(&path)?;
            Self::make_one(&path, &entry).map_err(|e| format!("{}: {e}", path.display()))?;
            self.give(&path)?;
            let inode = fs::symlink_metadata(&path).map_err(|e| e.to_string())?.ino();
            if let Some(mode) = &entry.mode {
                modes.push((path.clone(), u32::from_str_radix(mode, 8).map_err(|e| e.to_string())?));
            }
            self.inodes.insert(path, inode);
        }
        for (path, mode) in modes.into_iter().rev() {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    fn make_parents(&self, path: &Path) -> Result<(), String> {
        let mut missing: Vec<&Path> =
            path.ancestors().skip(1).take_while(|p| *p != self.dir && !p.exists()).collect();
        missing.reverse();
        for parent in missing {
            fs::create_dir(parent).map_err(|e| format!("{}: {e}", parent.display()))?;
            self.give(parent)?;
        }
        Ok(())
    }

    fn make_one(path: &Path, entry: &Entry) -> Result<(), String> {
        let io = |e: std::io::Error| e.to_string();
        if let Some(target) = &entry.link {
            return std::os::unix::fs::symlink(target, path).map_err(io);
        }
        if entry.fifo {
            let mode = rustix::fs::Mode::from_raw_mode(0o644);
            return rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0)
                .map_err(|e| e.to_string());
        }
        if entry.socket {
            return std::os::unix::net::UnixListener::bind(path).map(drop).map_err(io);
        }
        if entry.dir || entry.filled_with.is_some() {
            fs::create_dir_all(path).map_err(io)?;
            for i in 0..entry.filled_with.unwrap_or(0) {
                fs::File::create(path.join(format!("f{i:05}"))).map_err(io)?;
            }
            return Ok(());
        }
        let text = entry.text.as_ref().and_then(Value::as_str).unwrap_or_default();
        fs::write(path, text).map_err(io)?;
        let file = fs::File::options().write(true).open(path).map_err(io)?;
        if let Some(length) = entry.sparse {
            file.set_len(length).map_err(io)?;
        }
        if let Some(ms) = entry.mtime_ms {
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_millis(ms)).map_err(io)?;
        }
        Ok(())
    }

    /// Removes a file or a directory with everything in it.
    pub(crate) fn remove(&self, name: &str) -> Result<(), String> {
        let path = self.path(name)?;
        let is_dir = fs::symlink_metadata(&path).map_err(|e| e.to_string())?.is_dir();
        if is_dir { fs::remove_dir_all(&path) } else { fs::remove_file(&path) }.map_err(|e| e.to_string())
    }

    /// Compares a path with what a step expects of it.
    pub(crate) fn check(&self, want: &File, vars: &Vars) -> Result<(), String> {
        let path = self.path(&want.file)?;
        let Ok(metadata) = fs::symlink_metadata(&path) else {
            return same("kind", want.kind.as_deref().unwrap_or("file"), "missing");
        };
        let kind = kind(metadata.file_type());
        if let Some(expected) = &want.kind {
            same("kind", expected, kind)?;
        }
        if let Some(expected) = &want.mode {
            same("mode", expected, &format!("{:04o}", metadata.mode() & 0o7777))?;
        }
        if let Some(expected) = &want.link {
            let target = fs::read_link(&path).map_err(|e| e.to_string())?;
            same("link", expected, &vars.normalise_text(&target.to_string_lossy()))?;
        }
        if let Some(expected) = want.size {
            same("size", &expected.to_string(), &metadata.len().to_string())?;
        }
        if let Some(expected) = want.same_inode {
            let kept = self.inodes.get(&path) == Some(&metadata.ino());
            same("same inode", &expected.to_string(), &kept.to_string())?;
        }
        if let Some(expected) = &want.text {
            let text = fs::read(&path).map_err(|e| e.to_string())?;
            let text = Value::String(vars.normalise_text(&String::from_utf8_lossy(&text)));
            matcher::matches(&vars.expectation(expected)?, &text, vars)?;
        }
        Ok(())
    }
}

fn kind(kind: fs::FileType) -> &'static str {
    match kind {
        k if k.is_symlink() => "symlink",
        k if k.is_dir() => "directory",
        k if k.is_fifo() => "fifo",
        k if k.is_socket() => "socket",
        _ => "file",
    }
}

fn same(what: &str, expected: &str, observed: &str) -> Result<(), String> {
    if expected == observed {
        Ok(())
    } else {
        Err(format!("{what}: expected {expected}, observed {observed}"))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Closed directories must be opened before an ordinary user can empty them.
        for path in self.inodes.keys() {
            if fs::symlink_metadata(path).is_ok_and(|m| m.is_dir()) {
                let _best_effort = fs::set_permissions(path, fs::Permissions::from_mode(0o755));
            }
        }
        let _best_effort = fs::remove_dir_all(&self.dir);
    }
}
