//! The system call filter of one confined command, as a program for the kernel. Pure.
//!
//! Landlock decides on files; the filter completes it. Calls that change a file's name, content or attributes by way of
//! a path are handed to the [`broker`](super::broker), because some of them Landlock does not know and others it can only
//! judge by directories. What has no use for honest programs, or could go round the broker, is refused here. With
//! `network: restricted` no socket can be made or connected but pairs that stay within the command.
//!
//! Invariant: a call the program does not name is allowed; on a foreign architecture nothing is.

use libc::{
    BPF_ABS, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET, BPF_W, SECCOMP_RET_ALLOW,
    SECCOMP_RET_ERRNO, SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_USER_NOTIF, sock_filter,
};

/// What of a command is narrowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Scope {
    /// Which path calls go to the broker, if any do.
    pub(super) files: Option<Opens>,
    /// No network.
    pub(super) network: bool,
}

/// Which opens go to the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opens {
    /// Those that may change something.
    Writing,
    /// All: something may not even be read, and Landlock cannot tell what is new beside it.
    All,
}

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

/// Offsets in `seccomp_data`.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;

/// The low half of an argument: both architectures are little-endian, and all arguments looked at are 32 bits wide.
const fn argument(index: u32) -> u32 {
    16 + 8 * index
}

/// An action that is taken as soon as it applies.
#[derive(Debug, Clone, Copy)]
enum Action {
    Notify,
    Refuse(i32),
}

impl Action {
    fn value(self) -> u32 {
        match self {
            Self::Notify => SECCOMP_RET_USER_NOTIF,
            Self::Refuse(errno) => SECCOMP_RET_ERRNO | errno.unsigned_abs(),
        }
    }
}

/// When an argument makes a call subject to its action; all conditions of a rule have to hold.
#[derive(Debug, Clone, Copy)]
enum Condition {
    /// Has one of these bits.
    Any(u32, u32),
    /// Has none of these bits.
    None(u32, u32),
    /// Is not this.
    Not(u32, u32),
    /// Is this.
    Is(u32, u32),
    /// Is this after masking: (argument, mask, value).
    Masked(u32, u32, u32),
}

/// Calls that name what they change; the broker decides on each of them.
const CHANGES: &[i64] = &[
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_unlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_truncate,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
];

/// The same by their old names, which only this architecture has.
#[cfg(target_arch = "x86_64")]
const OLD_CHANGES: &[i64] = &[
    libc::SYS_creat,
    libc::SYS_mkdir,
    libc::SYS_mknod,
    libc::SYS_rmdir,
    libc::SYS_unlink,
    libc::SYS_rename,
    libc::SYS_link,
    libc::SYS_symlink,
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
];
#[cfg(target_arch = "aarch64")]
const OLD_CHANGES: &[i64] = &[];

/// Said not to exist, so that libraries fall back to a call the filter can look into.
const ABSENT: &[i64] = &[
    libc::SYS_openat2,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    FCHMODAT2,
    SETXATTRAT,
    REMOVEXATTRAT,
    FILE_SETATTR,
];

// Newer than the libc crate; numbers from 424 on are the same on all architectures.
const FCHMODAT2: i64 = 452;
const SETXATTRAT: i64 = 463;
const REMOVEXATTRAT: i64 = 466;
const FILE_SETATTR: i64 = 469;

/// Extended attributes cannot be set, as on a file system without them.
const EXTENDED_ATTRIBUTES: &[i64] = &[
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
];

/// The ioctls that change flags and attributes of a file, whatever it was opened for.
const ATTRIBUTE_IOCTLS: [u32; 5] = [
    0x4008_6602, // FS_IOC_SETFLAGS
    0x4004_6602, // FS_IOC32_SETFLAGS
    0x4008_7602, // FS_IOC_SETVERSION
    0x4004_7602, // FS_IOC32_SETVERSION
    0x401c_5820, // FS_IOC_FSSETXATTR
];

/// Would make paths mean something else to the command than to the broker.
const ROOTS: &[i64] = &[libc::SYS_chroot, libc::SYS_pivot_root];

const NETWORK: &[i64] =
    &[libc::SYS_connect, libc::SYS_bind, libc::SYS_listen, libc::SYS_accept, libc::SYS_accept4];

/// The program.
pub(super) fn program(scope: Scope) -> Vec<sock_filter> {
    let mut program = Program(Vec::new());
    program.guard();
    if let Some(opens) = scope.files {
        files(&mut program, opens);
    }
    if scope.network {
        network(&mut program);
    }
    program.push(BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
    program.0
}

fn files(program: &mut Program, opens: Opens) {
    let (o_path, writes) = (libc::O_PATH.unsigned_abs(), writing_flags());
    let mut opening = vec![(libc::SYS_openat, 2)];
    #[cfg(target_arch = "x86_64")]
    opening.push((libc::SYS_open, 1));
    for (number, flags) in opening {
        // A descriptor that is only a place can be had of anything; nothing is read or written through it.
        let mut conditions = vec![Condition::None(flags, o_path)];
        if opens == Opens::Writing {
            conditions.push(Condition::Any(flags, writes));
        }
        program.rule(number, &conditions, Action::Notify);
    }
    for number in CHANGES.iter().chain(OLD_CHANGES) {
        program.rule(*number, &[], Action::Notify);
    }
    for number in ABSENT {
        program.rule(*number, &[], Action::Refuse(libc::ENOSYS));
    }
    for number in EXTENDED_ATTRIBUTES {
        program.rule(*number, &[], Action::Refuse(libc::EOPNOTSUPP));
    }
    for command in ATTRIBUTE_IOCTLS {
        program.rule(libc::SYS_ioctl, &[Condition::Is(1, command)], Action::Refuse(libc::EOPNOTSUPP));
    }
    for number in ROOTS {
        program.rule(*number, &[], Action::Refuse(libc::EPERM));
    }
}

/// Flags that may change something: also truncation with a descriptor for reading.
pub(super) fn writing_flags() -> u32 {
    (libc::O_WRONLY | libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC).unsigned_abs()
}

fn network(program: &mut Program) {
    let refuse = Action::Refuse(libc::EPERM);
    let unix = libc::AF_UNIX.unsigned_abs();
    for number in [libc::SYS_socket, libc::SYS_socketpair] {
        program.rule(number, &[Condition::Not(0, unix)], refuse);
        // A datagram can be sent to any address without connecting.
        for kind in [libc::SOCK_DGRAM, libc::SOCK_RAW] {
            program.rule(number, &[Condition::Masked(1, 0xf, kind.unsigned_abs())], refuse);
        }
    }
    for number in NETWORK {
        program.rule(*number, &[], refuse);
    }
    for number in [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register] {
        program.rule(number, &[], Action::Refuse(libc::ENOSYS));
    }
}

/// Instructions under construction. The accumulator holds the call's number between rules.
struct Program(Vec<sock_filter>);

impl Program {
    fn push(&mut self, code: u32, k: u32, jt: u8, jf: u8) {
        // All codes fit: they are sums of small flags.
        self.0.push(sock_filter { code: u16::try_from(code).unwrap_or(0), jt, jf, k });
    }

    fn load(&mut self, offset: u32) {
        self.push(BPF_LD | BPF_W | BPF_ABS, offset, 0, 0);
    }

    /// Ends a process that makes calls of another architecture, and loads the number. The x32 calls of x86-64 have
    /// numbers of their own, which no rule names: all are refused.
    fn guard(&mut self) {
        self.load(ARCH);
        self.push(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0);
        self.push(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS, 0, 0);
        self.load(NUMBER);
        if cfg!(target_arch = "x86_64") {
            self.push(BPF_JMP | BPF_JGE | BPF_K, 0x4000_0000, 0, 1);
            self.push(BPF_RET | BPF_K, Action::Refuse(libc::ENOSYS).value(), 0, 0);
        }
    }

    /// Takes the action for a call when all conditions hold; else goes on with the next rule.
    fn rule(&mut self, number: i64, conditions: &[Condition], action: Action) {
        // Numbers are small.
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        let mut body = Self(Vec::new());
        for condition in conditions {
            let (index, test) = match *condition {
                Condition::Any(index, bits) => (index, (BPF_JSET, bits, true)),
                Condition::None(index, bits) => (index, (BPF_JSET, bits, false)),
                Condition::Not(index, value) => (index, (BPF_JEQ, value, false)),
                Condition::Is(index, value) | Condition::Masked(index, _, value) => {
                    (index, (BPF_JEQ, value, true))
                }
            };
            body.load(argument(index));
            if let Condition::Masked(_, mask, _) = *condition {
                body.push(libc::BPF_ALU | libc::BPF_AND | BPF_K, mask, 0, 0);
            }
            let (code, value, wanted) = test;
            // A miss leaves the body; its distance is filled in below.
            let miss = u8::MAX;
            let (jt, jf) = if wanted { (0, miss) } else { (miss, 0) };
            body.push(BPF_JMP | code | BPF_K, value, jt, jf);
        }
        body.push(BPF_RET | BPF_K, action.value(), 0, 0);
        let length = body.0.len();
        for (index, instruction) in body.0.iter_mut().enumerate() {
            let out = u8::try_from(length - index - 1).unwrap_or(u8::MAX);
            if instruction.jt == u8::MAX {
                instruction.jt = out;
            }
            if instruction.jf == u8::MAX {
                instruction.jf = out;
            }
        }
        // Behind the body the number is loaded again, if the body has loaded something else.
        let reload = usize::from(!conditions.is_empty());
        let skip = u8::try_from(length + reload).unwrap_or(u8::MAX);
        self.push(BPF_JMP | BPF_JEQ | BPF_K, number, 0, skip);
        self.0.append(&mut body.0);
        if reload > 0 {
            self.load(NUMBER);
        }
    }
}

#[cfg(test)]
mod tests;
