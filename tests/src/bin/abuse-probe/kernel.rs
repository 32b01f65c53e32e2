//! Attempts on the kernel: system calls by name, namespaces, capabilities.
//!
//! Invariant: the arguments are such that a call that gets through fails otherwise than by refusal, or does nothing: so
//! the filter's answer is told apart from that of a kernel which only lacks the privilege.

use std::io;

use crate::sys::Arg::{self, Number, Text};
use crate::sys::{self, call};
use crate::{Seen, ok};

const NOTHING: Arg<'static> = Number(0);
const NO_FD: Arg<'static> = Number(-1);
const HERE: Arg<'static> = Number(libc::AT_FDCWD as i64);
const EMPTY: Arg<'static> = Text(c"");
const ROOT: Arg<'static> = Text(c"/");
const TMP: Arg<'static> = Text(c"/tmp");

/// Newer than the libc crate.
const SYS_OPEN_TREE_ATTR: i64 = 467;
const SYS_LSM_GET_SELF_ATTR: i64 = 459;

const CALLS: &[(&str, i64, &[Arg<'static>])] = &[
    ("acct", libc::SYS_acct, &[NOTHING]),
    ("add_key", libc::SYS_add_key, &[Text(c"user"), Text(c"legion-probe"), EMPTY, Number(1), Number(-3)]),
    ("adjtimex", libc::SYS_adjtimex, &[NOTHING]),
    ("bpf", libc::SYS_bpf, &[Number(0), NOTHING, Number(0)]),
    ("chroot", libc::SYS_chroot, &[ROOT]),
    ("clock_adjtime", libc::SYS_clock_adjtime, &[Number(0), NOTHING]),
    ("clock_settime", libc::SYS_clock_settime, &[Number(0), NOTHING]),
    ("clone3", libc::SYS_clone3, &[NOTHING, Number(0)]),
    ("delete_module", libc::SYS_delete_module, &[EMPTY, Number(0)]),
    ("fanotify_init", libc::SYS_fanotify_init, &[Number(0x200), Number(0)]),
    ("finit_module", libc::SYS_finit_module, &[NO_FD, EMPTY, Number(0)]),
    ("fsconfig", libc::SYS_fsconfig, &[NO_FD, Number(0), NOTHING, NOTHING, Number(0)]),
    ("fsmount", libc::SYS_fsmount, &[NO_FD, Number(0), Number(0)]),
    ("fsopen", libc::SYS_fsopen, &[Text(c"tmpfs"), Number(0)]),
    ("fspick", libc::SYS_fspick, &[HERE, ROOT, Number(0)]),
    ("init_module", libc::SYS_init_module, &[EMPTY, Number(0), EMPTY]),
    ("io_uring_enter", libc::SYS_io_uring_enter, &[NO_FD, Number(0), Number(0), Number(0), NOTHING]),
    ("io_uring_register", libc::SYS_io_uring_register, &[NO_FD, Number(0), NOTHING, Number(0)]),
    ("io_uring_setup", libc::SYS_io_uring_setup, &[Number(1), NOTHING]),
    ("kcmp", libc::SYS_kcmp, &[Number(1), Number(1), Number(0), Number(0), Number(0)]),
    ("kexec_file_load", libc::SYS_kexec_file_load, &[NO_FD, NO_FD, Number(0), NOTHING, Number(0)]),
    ("kexec_load", libc::SYS_kexec_load, &[NOTHING, Number(0), NOTHING, Number(0)]),
    ("keyctl", libc::SYS_keyctl, &[Number(0), Number(-3), Number(0)]),
    ("lease", libc::SYS_fcntl, &[NO_FD, Number(libc::F_SETLEASE as i64), Number(libc::F_WRLCK as i64)]),
    ("lookup_dcookie", libc::SYS_lookup_dcookie, &[Number(0), NOTHING, Number(0)]),
    ("lsm_get_self_attr", SYS_LSM_GET_SELF_ATTR, &[Number(100), NOTHING, NOTHING, Number(0)]),
    ("mbind", libc::SYS_mbind, &[NOTHING, Number(0), Number(0), NOTHING, Number(0), Number(0)]),
    ("migrate_pages", libc::SYS_migrate_pages, &[Number(0), Number(0), NOTHING, NOTHING]),
    ("mount-bind", libc::SYS_mount, &[ROOT, TMP, NOTHING, Number(libc::MS_BIND.cast_signed()), NOTHING]),
    ("mount-remount", libc::SYS_mount, &[NOTHING, ROOT, NOTHING, Number(0x1020), NOTHING]),
    ("mount-tmpfs", libc::SYS_mount, &[Text(c"x"), TMP, Text(c"tmpfs"), Number(0), NOTHING]),
    ("mount_setattr", libc::SYS_mount_setattr, &[HERE, ROOT, Number(0), NOTHING, Number(0)]),
    ("move_mount", libc::SYS_move_mount, &[HERE, ROOT, HERE, TMP, Number(0)]),
    ("move_pages", libc::SYS_move_pages, &[Number(0), Number(0), NOTHING, NOTHING, NOTHING, Number(0)]),
    ("name_to_handle_at", libc::SYS_name_to_handle_at, &[HERE, ROOT, NOTHING, NOTHING, Number(0)]),
    ("open_by_handle_at", libc::SYS_open_by_handle_at, &[HERE, NOTHING, Number(0)]),
    ("open_tree", libc::SYS_open_tree, &[HERE, ROOT, Number(1)]),
    ("open_tree_attr", SYS_OPEN_TREE_ATTR, &[HERE, ROOT, Number(1), NOTHING, Number(0)]),
    ("openat2", libc::SYS_openat2, &[HERE, ROOT, NOTHING, Number(0)]),
    ("perf_event_open", libc::SYS_perf_event_open, &[NOTHING, Number(0), NO_FD, NO_FD, Number(0)]),
    ("personality-aslr", libc::SYS_personality, &[Number(libc::ADDR_NO_RANDOMIZE as i64)]),
    ("personality-exec", libc::SYS_personality, &[Number(libc::READ_IMPLIES_EXEC as i64)]),
    ("personality-query", libc::SYS_personality, &[Number(0xffff_ffff)]),
    ("pidfd_getfd", libc::SYS_pidfd_getfd, &[NO_FD, Number(0), Number(0)]),
    ("pivot_root", libc::SYS_pivot_root, &[ROOT, TMP]),
    ("process_madvise", libc::SYS_process_madvise, &[NO_FD, NOTHING, Number(0), Number(0), Number(0)]),
    (
        "process_vm_readv",
        libc::SYS_process_vm_readv,
        &[Number(1), NOTHING, Number(0), NOTHING, Number(0), Number(0)],
    ),
    (
        "process_vm_writev",
        libc::SYS_process_vm_writev,
        &[Number(1), NOTHING, Number(0), NOTHING, Number(0), Number(0)],
    ),
    ("ptrace-attach", libc::SYS_ptrace, &[Number(16), Number(1), Number(0), Number(0)]),
    ("ptrace-seize", libc::SYS_ptrace, &[Number(0x4206), Number(1), Number(0), Number(0)]),
    ("ptrace-traceme", libc::SYS_ptrace, &[Number(0), Number(0), Number(0), Number(0)]),
    ("quotactl", libc::SYS_quotactl, &[Number(0x8000_0100), EMPTY, Number(0), NOTHING]),
    ("quotactl_fd", libc::SYS_quotactl_fd, &[NO_FD, Number(0x8000_0100), Number(0), NOTHING]),
    // The first number is none reboot takes: where it gets through it does nothing.
    ("reboot-bad-magic", libc::SYS_reboot, &[Number(1), Number(2), Number(3), NOTHING]),
    ("request_key", libc::SYS_request_key, &[Text(c"user"), Text(c"legion-probe"), NOTHING, Number(0)]),
    ("set_mempolicy", libc::SYS_set_mempolicy, &[Number(0), NOTHING, Number(0)]),
    ("setdomainname", libc::SYS_setdomainname, &[Text(c"x"), Number(1)]),
    ("setgroups", libc::SYS_setgroups, &[Number(0), NOTHING]),
    ("sethostname", libc::SYS_sethostname, &[Text(c"x"), Number(1)]),
    ("setns", libc::SYS_setns, &[NO_FD, Number(0)]),
    ("settimeofday", libc::SYS_settimeofday, &[NOTHING, NOTHING]),
    ("setuid-root", libc::SYS_setuid, &[Number(0)]),
    ("setgid-root", libc::SYS_setgid, &[Number(0)]),
    ("swapoff", libc::SYS_swapoff, &[Text(c"/dev/null")]),
    ("swapon", libc::SYS_swapon, &[Text(c"/dev/null"), Number(0)]),
    ("syslog", libc::SYS_syslog, &[Number(10), NOTHING, Number(0)]),
    ("umount", libc::SYS_umount2, &[Text(c"/proc/sys"), Number(2)]),
    ("unshare-nothing", libc::SYS_unshare, &[Number(0)]),
    ("userfaultfd", libc::SYS_userfaultfd, &[Number(1)]),
    ("vhangup", libc::SYS_vhangup, &[]),
    ("vmsplice", libc::SYS_vmsplice, &[NO_FD, NOTHING, Number(0), Number(0)]),
    #[cfg(target_arch = "x86_64")]
    ("ioperm", libc::SYS_ioperm, &[Number(0), Number(0), Number(0)]),
    #[cfg(target_arch = "x86_64")]
    ("iopl", libc::SYS_iopl, &[Number(0)]),
    #[cfg(target_arch = "x86_64")]
    ("modify_ldt", libc::SYS_modify_ldt, &[Number(0), NOTHING, Number(0)]),
    #[cfg(target_arch = "x86_64")]
    ("uselib", libc::SYS_uselib, &[EMPTY]),
    // getpid with the bit of the x32 calls.
    #[cfg(target_arch = "x86_64")]
    ("x32-getpid", 0x4000_0000 + 39, &[]),
];

const NAMESPACES: &[(&str, i32)] = &[
    ("cgroup", libc::CLONE_NEWCGROUP),
    ("ipc", libc::CLONE_NEWIPC),
    ("mount", libc::CLONE_NEWNS),
    ("net", libc::CLONE_NEWNET),
    ("pid", libc::CLONE_NEWPID),
    ("user", libc::CLONE_NEWUSER),
    ("uts", libc::CLONE_NEWUTS),
];

/// Threads started at once to see that threads work.
const THREADS: u32 = 16;

pub(crate) fn attempt(words: &[&str]) -> Option<Seen> {
    Some(match *words {
        ["call", name] => {
            let (_, number, args) = CALLS.iter().find(|(known, ..)| *known == name)?;
            ok(call(*number, args))
        }
        ["clone", namespace] => ok(sys::clone(flag(namespace)?)),
        ["unshare", namespace] => ok(call(libc::SYS_unshare, &[Number(i64::from(flag(namespace)?))])),
        ["setns", path] => setns(path),
        ["status", field] => status(field),
        ["threads"] => threads(),
        ["hostname"] => Ok(rustix::system::uname().nodename().to_string_lossy().into_owned()),
        ["shared-memory", key] => shared_memory(key.parse().ok()?, 0),
        ["make-shared-memory", key] => {
            shared_memory(key.parse().ok()?, i64::from(libc::IPC_CREAT | libc::IPC_EXCL | 0o666))
        }
        ["remove-shared-memory", key] => remove_shared_memory(key.parse().ok()?),
        #[cfg(target_arch = "x86_64")]
        ["int80"] => Ok(if sys::int80() > 0 { "ok".to_owned() } else { "refused".to_owned() }),
        _ => return None,
    })
}

fn flag(namespace: &str) -> Option<i32> {
    NAMESPACES.iter().find(|(name, _)| *name == namespace).map(|(_, flag)| *flag)
}

/// Enters the namespace it is in already, which takes nothing but the call itself.
fn setns(path: &str) -> Seen {
    use std::os::fd::AsRawFd;
    let namespace = std::fs::File::open(path)?;
    ok(call(libc::SYS_setns, &[Number(i64::from(namespace.as_raw_fd())), Number(0)]))
}

/// One line of `/proc/self/status`.
fn status(field: &str) -> Seen {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.map(|value| value.trim().to_owned()).ok_or_else(|| io::Error::other("no such field"))
}

fn threads() -> Seen {
    let threads: Vec<_> = (0..THREADS).map(|number| std::thread::spawn(move || number)).collect();
    let mut sum = 0;
    for thread in threads {
        sum += thread.join().map_err(|_| io::Error::other("a thread panicked"))?;
    }
    Ok(if sum == (0..THREADS).sum() { "ok" } else { "wrong sum" }.to_owned())
}

/// A segment of System V shared memory that everybody who knows its key finds, but for namespaces.
fn shared_memory(key: i64, flags: i64) -> Seen {
    ok(call(libc::SYS_shmget, &[Number(key), Number(1), Number(flags)]))
}

fn remove_shared_memory(key: i64) -> Seen {
    let id = call(libc::SYS_shmget, &[Number(key), Number(1), Number(0)])?;
    ok(call(libc::SYS_shmctl, &[Number(id), Number(i64::from(libc::IPC_RMID)), NOTHING]))
}
