//! The system call filters of a sandbox (security.md 3), as programs bwrap loads from descriptors. Pure.
//!
//! Everything is allowed but what is listed. Two programs, because one program has one errno: what is refused (EPERM),
//! and what is said not to exist (ENOSYS) so that libraries fall back to an older call.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Op, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};

use crate::failure::{Failure, Outcome};

#[cfg(target_arch = "x86_64")]
const ARCH: TargetArch = TargetArch::x86_64;
#[cfg(target_arch = "aarch64")]
const ARCH: TargetArch = TargetArch::aarch64;

/// What a persona may relax or tighten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// `AF_UNIX` sockets may be made.
    pub unix_sockets: bool,
    /// ptrace and its relatives work, for gdb and strace.
    pub debug: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { unix_sockets: true, debug: false }
    }
}

/// Refused whatever the arguments.
const REFUSED: &[i64] = &[
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_adjtimex,
    libc::SYS_bpf,
    libc::SYS_chroot,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_fanotify_init,
    libc::SYS_finit_module,
    libc::SYS_init_module,
    libc::SYS_kcmp,
    libc::SYS_kexec_file_load,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_lookup_dcookie,
    libc::SYS_mbind,
    libc::SYS_migrate_pages,
    libc::SYS_mount,
    libc::SYS_move_pages,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_perf_event_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pivot_root,
    libc::SYS_process_madvise,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_set_mempolicy,
    libc::SYS_setns,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_vhangup,
    libc::SYS_vmsplice,
];

/// Refused, and only there on this architecture.
#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: &[i64] =
    &[libc::SYS_ioperm, libc::SYS_iopl, libc::SYS_modify_ldt, libc::SYS_uselib, libc::SYS__sysctl];
#[cfg(target_arch = "aarch64")]
const REFUSED_HERE: &[i64] = &[];

/// Refused unless debugging is allowed.
const DEBUGGING: &[i64] = &[libc::SYS_process_vm_readv, libc::SYS_process_vm_writev, libc::SYS_ptrace];

/// Said not to exist. Their arguments lie behind pointers, where no filter can look (`clone3`, `openat2`), or they offer
/// a second way to what is refused.
const ABSENT: &[i64] = &[
    libc::SYS_clone3,
    FCHMODAT2,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_openat2,
    libc::SYS_userfaultfd,
    LSM_GET_SELF_ATTR,
    LSM_SET_SELF_ATTR,
    LSM_LIST_MODULES,
    OPEN_TREE_ATTR,
];

// Newer than the libc crate, or missing there on some architecture; numbers from 424 on are the same on all architectures.
const FCHMODAT2: i64 = 452;
const LSM_GET_SELF_ATTR: i64 = 459;
const LSM_SET_SELF_ATTR: i64 = 460;
const LSM_LIST_MODULES: i64 = 461;
const OPEN_TREE_ATTR: i64 = 467;

/// Set-user-id and set-group-id.
const SUID_BITS: [u64; 2] = [0o4000, 0o2000];

/// Every flag of clone(2) that makes a namespace. `CLONE_NEWTIME` shares its bit with the exit signal and exists for
/// clone3 and unshare only, which are not available.
const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWUTS,
];

/// Personalities one may choose: the normal one, and without address randomisation (gdb); all ones only asks.
const PERSONALITIES: [u64; 3] = [0, 0x004_0000, 0xffff_ffff];

/// The second kind of lease, newer than the libc crate. While a command holds either, whoever opens the file waits for
/// it, `lease-break-time` long: the host in the workspace, and the exec-server when it starts a program there.
const F_SETDELEG: i32 = libc::F_SETLEASE + 16;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// The programs, in the form the kernel takes: eight bytes an instruction.
pub fn programs(options: Options) -> Outcome<[Vec<u8>; 2]> {
    let fail = |error: &dyn std::fmt::Display| {
        Failure::internal(format_args!("cannot build the system call filter: {error}"))
    };
    let refused = compile(refused(options).map_err(|error| fail(&error))?, libc::EPERM)
        .map_err(|error| fail(&error))?;
    let absent = ABSENT.iter().map(|number| (*number, Vec::new())).collect();
    let absent = compile(absent, libc::ENOSYS).map_err(|error| fail(&error))?;
    Ok([serialize(&[x32_guard(), refused].concat()), serialize(&absent)])
}

fn compile(rules: Rules, errno: i32) -> Result<BpfProgram, seccompiler::BackendError> {
    let action = SeccompAction::Errno(errno.unsigned_abs());
    SeccompFilter::new(rules, SeccompAction::Allow, action, ARCH)?.try_into()
}

/// The x32 calls of x86-64 have numbers of their own, which no rule names: all are refused.
fn x32_guard() -> BpfProgram {
    const X32_BIT: u32 = 0x4000_0000;
    const LOAD_NUMBER: u16 = 0x20; // ld [k]
    const JUMP_AT_LEAST: u16 = 0x35; // jge #k
    const RETURN: u16 = 0x06;
    if !cfg!(target_arch = "x86_64") {
        return Vec::new();
    }
    let refuse = libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs();
    vec![
        sock_filter { code: LOAD_NUMBER, jt: 0, jf: 0, k: 0 },
        sock_filter { code: JUMP_AT_LEAST, jt: 0, jf: 1, k: X32_BIT },
        sock_filter { code: RETURN, jt: 0, jf: 0, k: refuse },
    ]
}

fn serialize(program: &[sock_filter]) -> Vec<u8> {
    let instruction = |filter: &sock_filter| {
        let [c0, c1] = filter.code.to_ne_bytes();
        let [k0, k1, k2, k3] = filter.k.to_ne_bytes();
        [c0, c1, filter.jt, filter.jf, k0, k1, k2, k3]
    };
    program.iter().flat_map(instruction).collect()
}

fn refused(options: Options) -> Result<Rules, seccompiler::BackendError> {
    let mut rules = Rules::new();
    let debugging = if options.debug { &[] } else { DEBUGGING };
    for number in REFUSED.iter().chain(REFUSED_HERE).chain(debugging) {
        rules.insert(*number, Vec::new());
    }
    // The kernel reads these commands as 32 bits; bits above must not hide them.
    let injections = [libc::TIOCSTI, libc::TIOCLINUX];
    rules.insert(libc::SYS_ioctl, any(injections.iter().map(|command| vec![is(1, *command)]))?);
    let leases = [libc::F_SETLEASE, F_SETDELEG].map(|command| vec![is(1, u64::from(command.unsigned_abs()))]);
    rules.insert(libc::SYS_fcntl, any(leases.into_iter())?);
    let namespace = |flag: &i32| vec![has(0, u64::from(flag.unsigned_abs()))];
    rules.insert(libc::SYS_clone, any(NAMESPACES.iter().map(namespace))?);
    let foreign = PERSONALITIES.map(|persona| (0, Len::Dword, Op::Ne, persona));
    rules.insert(libc::SYS_personality, any([foreign.to_vec()].into_iter())?);
    suid(&mut rules)?;
    sockets(&mut rules, options)?;
    Ok(rules)
}

/// No call makes a file that runs as its owner: in the workspace it would do so on the host.
fn suid(rules: &mut Rules) -> Result<(), seccompiler::BackendError> {
    const MODES: [(i64, u8); 4] =
        [(libc::SYS_fchmod, 1), (libc::SYS_fchmodat, 2), (libc::SYS_mknodat, 2), (libc::SYS_openat, 3)];
    #[cfg(target_arch = "x86_64")]
    const MODES_HERE: &[(i64, u8)] =
        &[(libc::SYS_chmod, 1), (libc::SYS_creat, 1), (libc::SYS_mknod, 1), (libc::SYS_open, 2)];
    #[cfg(target_arch = "aarch64")]
    const MODES_HERE: &[(i64, u8)] = &[];
    for (number, argument) in MODES.iter().chain(MODES_HERE).copied() {
        rules.insert(number, any(SUID_BITS.iter().map(|bit| vec![has(argument, *bit)]))?);
    }
    Ok(())
}

fn sockets(rules: &mut Rules, options: Options) -> Result<(), seccompiler::BackendError> {
    let [unix, inet, inet6, netlink] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK]
        .map(|family| u64::from(family.unsigned_abs()));
    let raw = u64::from(libc::SOCK_RAW.unsigned_abs());
    let mut families = vec![inet, inet6, netlink];
    if options.unix_sockets {
        families.push(unix);
    }
    let kind_is_raw = (1, Len::Dword, Op::MaskedEq(0xf), raw);
    let refused = [
        families.iter().map(|family| (0, Len::Dword, Op::Ne, *family)).collect(),
        vec![is(0, inet), kind_is_raw.clone()],
        vec![is(0, inet6), kind_is_raw],
        // Netlink beyond routing: audit, netfilter, generic.
        vec![is(0, netlink), (2, Len::Dword, Op::Ne, 0)],
    ];
    rules.insert(libc::SYS_socket, any(refused.into_iter())?);
    rules.insert(libc::SYS_socketpair, any([vec![(0, Len::Dword, Op::Ne, unix)]].into_iter())?);
    Ok(())
}

type Condition = (u8, Len, Op, u64);

/// The argument equals a value, as 32 bits.
fn is(argument: u8, value: u64) -> Condition {
    (argument, Len::Dword, Op::Eq, value)
}

/// The argument has a bit.
fn has(argument: u8, bit: u64) -> Condition {
    (argument, Len::Dword, Op::MaskedEq(bit), bit)
}

/// One rule for each list of conditions; a list holds when all its conditions do.
fn any(lists: impl Iterator<Item = Vec<Condition>>) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    lists
        .map(|list| {
            let conditions = list
                .into_iter()
                .map(|(argument, len, op, value)| SeccompCondition::new(argument, len, op, value));
            SeccompRule::new(conditions.collect::<Result<_, _>>()?)
        })
        .collect()
}

#[cfg(test)]
mod tests;
