//! The only unsafe code of this crate: what a safe interface cannot promise.
//!
//! Namespaces can be entered only by a process with one thread, so that work is done in a forked child, which makes
//! nothing but system calls: no allocation, no lock, no library state.
#![allow(unsafe_code, reason = "each block says why it is sound")]

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use tokio::io::unix::AsyncFd;

/// An empty file inside every sandbox, for masks mounted later.
pub const EMPTY_FILE: &CStr = c"/legion/empty";

/// Watches a descriptor for readiness.
pub fn watch_fd(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the descriptor is owned by the returned value, which removes it from the poller before closing it.
    unsafe { AsyncFd::register(fd) }.map_err(io::Error::from)
}

/// Makes the allocator keep freed memory for the next message instead of returning it at once, and bounds its arenas: there
/// is one busy thread. To be called before any other thread is started.
pub fn keep_freed_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt takes two integers; no other thread exists yet. What it refuses stays at its default.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 2);
        libc::mallopt(libc::M_MMAP_THRESHOLD, 32 << 20);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 64 << 20);
    }
}

/// Returns freed memory to the operating system.
pub fn return_freed_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim takes an integer and touches only memory that is free.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// The user namespace that owns a mount namespace.
pub fn owner_of(namespace: &OwnedFd) -> io::Result<OwnedFd> {
    const NS_GET_USERNS: libc::Ioctl = 0xb701;
    // SAFETY: the request takes no argument and returns a new descriptor or -1.
    let fd = check(unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_USERNS) })?;
    // SAFETY: the kernel has just made this descriptor, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// What is mounted again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    /// [`EMPTY_FILE`] over the path.
    Mask,
    /// The path over itself.
    ReadOnly,
}

/// Mounts a guard again inside a sandbox: `path` is a path there.
pub fn mount_again(mounts: &OwnedFd, user: &OwnedFd, again: Again, path: &[u8]) -> io::Result<()> {
    let path = CString::new(path)?;
    let source = match again {
        Again::Mask => EMPTY_FILE,
        Again::ReadOnly => &path,
    };
    let (mounts, user) = (mounts.as_raw_fd(), user.as_raw_fd());
    in_child(|| {
        let none = std::ptr::null();
        let read_only = libc::MS_REMOUNT | libc::MS_BIND | libc::MS_RDONLY | libc::MS_NOSUID | libc::MS_NODEV;
        // SAFETY: system calls on descriptors and on C strings that outlive them.
        unsafe {
            check(libc::setns(user, libc::CLONE_NEWUSER))?;
            check(libc::setns(mounts, libc::CLONE_NEWNS))?;
            check(libc::mount(source.as_ptr(), path.as_ptr(), none, libc::MS_BIND, none.cast()))?;
            check(libc::mount(none, path.as_ptr(), none, read_only, none.cast()))?;
        }
        Ok(())
    })
}

/// What a sandbox needs of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// A user namespace of one's own.
    UserNamespace,
    /// Mounts in a namespace of one's own.
    Mounts,
    /// A new `/proc` for a pid namespace of one's own.
    Proc,
}

impl Need {
    /// In words.
    pub const fn what(self) -> &'static str {
        match self {
            Self::UserNamespace => "making a user namespace",
            Self::Mounts => "mounting in a namespace of one's own",
            Self::Proc => "mounting /proc for a pid namespace",
        }
    }
}

/// Tries what a sandbox needs, in a child, as `user` when that is given.
pub fn try_need(need: Need, user: Option<(u32, u32)>) -> io::Result<()> {
    in_child(|| {
        let none = std::ptr::null::<libc::c_char>();
        // SAFETY: system calls on constants and C strings.
        unsafe {
            if let Some((uid, gid)) = user {
                check(libc::setgroups(0, std::ptr::null()))?;
                check(libc::setresgid(gid, gid, gid))?;
                check(libc::setresuid(uid, uid, uid))?;
            }
            let namespaces = match need {
                Need::UserNamespace => libc::CLONE_NEWUSER,
                Need::Mounts => libc::CLONE_NEWUSER | libc::CLONE_NEWNS,
                Need::Proc => libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::CLONE_NEWPID,
            };
            check(libc::unshare(namespaces))?;
            if need != Need::UserNamespace {
                check(libc::mount(none, c"/".as_ptr(), none, libc::MS_REC | libc::MS_PRIVATE, none.cast()))?;
            }
        }
        if need != Need::Proc {
            return Ok(());
        }
        // Only a child is in the new pid namespace.
        in_child(|| {
            let (proc, none) = (c"proc".as_ptr(), std::ptr::null::<libc::c_char>());
            let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
            // SAFETY: a system call on C strings.
            check(unsafe { libc::mount(proc, c"/proc".as_ptr(), proc, flags, none.cast()) }).map(drop)
        })
    })
}

/// Makes a program end (SIGTERM) with the thread that starts it, however that ends.
pub fn end_with_parent(command: &mut Command) {
    let before_exec =
        || Ok(rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))?);
    // SAFETY: between fork and exec the closure makes one system call.
    unsafe { command.pre_exec(before_exec) };
}

fn check(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Runs `work` in a forked child and waits for it. `work` makes system calls only.
fn in_child(work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    // SAFETY: between fork and _exit the child makes system calls only, which is what a fork of a process with several
    // threads allows; building an io::Error from errno neither allocates nor locks.
    let pid = check(unsafe {
        let pid = libc::fork();
        if pid == 0 {
            let status = match work() {
                Ok(()) => 0,
                Err(error) => error.raw_os_error().unwrap_or(libc::EINVAL),
            };
            libc::_exit(status);
        }
        pid
    })?;
    let mut status = 0;
    loop {
        // SAFETY: waits for our own child and writes into a live integer.
        match check(unsafe { libc::waitpid(pid, &raw mut status, 0) }) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
            Ok(_) => break,
        }
    }
    match libc::WEXITSTATUS(status) {
        0 if libc::WIFEXITED(status) => Ok(()),
        code if libc::WIFEXITED(status) => Err(io::Error::from_raw_os_error(code)),
        _ => Err(io::Error::other("the helper process was killed")),
    }
}

/// A copy of a mount, attached nowhere yet.
pub struct Tree {
    /// From [`copy_mount`].
    pub mount: OwnedFd,
    /// Where it will be attached.
    pub target: CString,
    /// Whether the target must be a directory.
    pub is_directory: bool,
}

/// Copies the mount tree at a path; with `mapping`, ids on disk are mapped by that user namespace, and set-user-id and
/// device files mean nothing.
pub fn copy_mount(at: BorrowedFd<'_>, mapping: Option<BorrowedFd<'_>>) -> io::Result<OwnedFd> {
    let empty = c"".as_ptr();
    let flags = libc::OPEN_TREE_CLONE
        | libc::OPEN_TREE_CLOEXEC
        | (libc::AT_EMPTY_PATH | libc::AT_RECURSIVE).unsigned_abs();
    // SAFETY: a system call on a live descriptor and a C string; it returns a new descriptor or -1.
    let fd = unsafe { libc::syscall(libc::SYS_open_tree, at.as_raw_fd(), empty, flags) };
    let fd = check(i32::try_from(fd).unwrap_or(-1))?;
    // SAFETY: the kernel has just made this descriptor, and nobody else knows it.
    let tree = unsafe { OwnedFd::from_raw_fd(fd) };
    if let Some(mapping) = mapping {
        let attributes = libc::mount_attr {
            attr_set: libc::MOUNT_ATTR_IDMAP | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV,
            attr_clr: 0,
            propagation: 0,
            userns_fd: u64::from(mapping.as_raw_fd().unsigned_abs()),
        };
        let size = size_of::<libc::mount_attr>();
        let flags = libc::AT_EMPTY_PATH | libc::AT_RECURSIVE;
        // SAFETY: a system call on live descriptors and on a structure whose size is passed along.
        let result = unsafe {
            libc::syscall(
                libc::SYS_mount_setattr,
                tree.as_raw_fd(),
                empty,
                flags,
                &raw const attributes,
                size,
            )
        };
        check(i32::try_from(result).unwrap_or(-1))?;
    }
    Ok(tree)
}

/// A user namespace in which root is `id` outside; all other ordinary ids are themselves.
pub fn root_to(id: u32) -> io::Result<OwnedFd> {
    let (ready, ready_child) = rustix::pipe::pipe()?;
    let (done_child, done) = rustix::pipe::pipe()?;
    let (ready_fd, done_fd, done_parent) =
        (ready_child.as_raw_fd(), done_child.as_raw_fd(), done.as_raw_fd());
    // SAFETY: the child makes system calls only until it exits; see `in_child`.
    let pid = check(unsafe {
        let pid = libc::fork();
        if pid == 0 {
            let mut byte = [0u8; 1];
            libc::close(done_parent);
            let status = libc::unshare(libc::CLONE_NEWUSER);
            if status == 0 {
                libc::write(ready_fd, byte.as_ptr().cast(), 1);
                // Lives until the parent has opened the namespace and closes its end.
                libc::read(done_fd, byte.as_mut_ptr().cast(), 1);
            }
            libc::_exit(status);
        }
        pid
    })?;
    drop((ready_child, done_child));
    let namespace = map_child(&ready, pid, id);
    drop(done);
    let mut status = 0;
    // SAFETY: waits for our own child and writes into a live integer.
    check(unsafe { libc::waitpid(pid, &raw mut status, 0) })?;
    namespace
}

fn map_child(ready: &OwnedFd, pid: i32, id: u32) -> io::Result<OwnedFd> {
    let mut byte = [0u8; 1];
    if rustix::io::read(ready, &mut byte)? == 0 {
        return Err(io::Error::other("user namespaces are not allowed here"));
    }
    let map = format!("0 {id} 1\n1 1 65535\n");
    for name in ["uid_map", "gid_map"] {
        std::fs::write(format!("/proc/{pid}/{name}"), &map)?;
    }
    Ok(std::fs::File::open(format!("/proc/{pid}/ns/user"))?.into())
}

/// Makes `command` attach the trees on a fresh stage, in a mount namespace of its own, and change its user for good.
pub fn mount_and_drop(command: &mut Command, trees: Vec<Tree>, uid: u32, gid: u32) {
    let stage = CString::new(crate::sandbox::spec::STAGE).unwrap_or_default();
    let before_exec = move || {
        let none = std::ptr::null::<libc::c_char>();
        let (empty, tmpfs, options) = (c"".as_ptr(), c"tmpfs".as_ptr(), c"mode=755,size=1m");
        // SAFETY: system calls on live descriptors and on C strings that outlive them; nothing is allocated.
        unsafe {
            check(libc::unshare(libc::CLONE_NEWNS))?;
            check(libc::mount(none, c"/".as_ptr(), none, libc::MS_REC | libc::MS_SLAVE, none.cast()))?;
            let flags = libc::MS_NOSUID | libc::MS_NODEV;
            check(libc::mount(tmpfs, stage.as_ptr(), tmpfs, flags, options.as_ptr().cast()))?;
            for tree in &trees {
                let target = tree.target.as_ptr();
                if tree.is_directory {
                    check(libc::mkdir(target, 0o755))?;
                } else {
                    check(libc::mknod(target, libc::S_IFREG | 0o644, 0))?;
                }
                let from = tree.mount.as_raw_fd();
                let flags = libc::MOVE_MOUNT_F_EMPTY_PATH;
                let moved = libc::syscall(libc::SYS_move_mount, from, empty, libc::AT_FDCWD, target, flags);
                check(i32::try_from(moved).unwrap_or(-1))?;
            }
            check(libc::setgroups(0, std::ptr::null()))?;
            check(libc::setresgid(gid, gid, gid))?;
            check(libc::setresuid(uid, uid, uid))?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes system calls only.
    unsafe { command.pre_exec(before_exec) };
}
