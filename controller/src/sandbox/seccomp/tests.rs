//! Tests of the system call filters: the programs are run as the kernel runs them.

use super::*;

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;

/// Runs a program on one call, as the kernel does; only the instructions seccompiler emits.
fn run(program: &[u8], arch: u32, number: u32, args: [u64; 6]) -> u32 {
    let mut data = Vec::new();
    data.extend(number.to_ne_bytes());
    data.extend(arch.to_ne_bytes());
    data.extend(0u64.to_ne_bytes());
    for arg in args {
        data.extend(arg.to_ne_bytes());
    }
    let word = |at: u32| u32::from_ne_bytes(data[at as usize..at as usize + 4].try_into().unwrap());
    let (mut accumulator, mut at) = (0u32, 0usize);
    loop {
        let code = &program[at * 8..at * 8 + 8];
        let op = u16::from_ne_bytes([code[0], code[1]]);
        let (yes, no) = (usize::from(code[2]), usize::from(code[3]));
        let k = u32::from_ne_bytes(code[4..8].try_into().unwrap());
        let branch = |taken: bool| 1 + if taken { yes } else { no };
        at += match op {
            0x20 => {
                accumulator = word(k);
                1
            }
            0x54 => {
                accumulator &= k;
                1
            }
            0x15 => branch(accumulator == k),
            0x25 => branch(accumulator > k),
            0x35 => branch(accumulator >= k),
            0x05 => 1 + k as usize,
            0x06 => return k,
            other => panic!("instruction {other:#x}"),
        };
    }
}

fn verdict(options: Options, number: i64, args: &[u64]) -> i32 {
    const AUDIT_ARCH: u32 = if cfg!(target_arch = "x86_64") { 0xc000_003e } else { 0xc000_00b7 };
    let mut full = [0; 6];
    full[..args.len()].copy_from_slice(args);
    let number = u32::try_from(number).unwrap();
    let mut errno = 0;
    for program in programs(options).unwrap() {
        match run(&program, AUDIT_ARCH, number, full) {
            ALLOW => {}
            refused => errno = i32::try_from(refused & 0xffff).unwrap(),
        }
    }
    errno
}

fn check(number: i64, args: &[u64]) -> i32 {
    verdict(Options::default(), number, args)
}

#[test]
fn listed_calls_are_refused_or_absent_and_ordinary_ones_pass() {
    for number in REFUSED.iter().chain(REFUSED_HERE).chain(DEBUGGING) {
        assert_eq!(check(*number, &[]), libc::EPERM, "{number}");
    }
    for number in ABSENT {
        assert_eq!(check(*number, &[]), libc::ENOSYS, "{number}");
    }
    for number in [libc::SYS_read, libc::SYS_execve, libc::SYS_mmap, libc::SYS_futex, libc::SYS_pidfd_open] {
        assert_eq!(check(number, &[]), 0, "{number}");
    }
    let debug = Options { debug: true, ..Options::default() };
    assert_eq!(verdict(debug, libc::SYS_ptrace, &[]), 0);
    assert_eq!(verdict(debug, libc::SYS_pidfd_getfd, &[]), libc::EPERM);
}

#[test]
fn terminal_injection_is_refused_whatever_the_high_bits() {
    for command in [libc::TIOCSTI, libc::TIOCLINUX] {
        assert_eq!(check(libc::SYS_ioctl, &[0, command]), libc::EPERM);
        assert_eq!(check(libc::SYS_ioctl, &[0, command | 0xdead_0000_0000]), libc::EPERM);
    }
    assert_eq!(check(libc::SYS_ioctl, &[0, libc::TIOCGWINSZ]), 0);
}

#[test]
fn nobody_is_made_to_wait_for_a_lease() {
    for command in [libc::F_SETLEASE, F_SETDELEG].map(|command| u64::from(command.unsigned_abs())) {
        assert_eq!(check(libc::SYS_fcntl, &[3, command, 1]), libc::EPERM);
        assert_eq!(check(libc::SYS_fcntl, &[3, command | 0xdead_0000_0000, 1]), libc::EPERM);
    }
    for command in [libc::F_GETLEASE, libc::F_SETLK, libc::F_DUPFD_CLOEXEC, libc::F_ADD_SEALS] {
        assert_eq!(check(libc::SYS_fcntl, &[3, u64::from(command.unsigned_abs())]), 0);
    }
}

#[test]
fn threads_start_and_namespaces_do_not() {
    let thread = libc::CLONE_VM | libc::CLONE_FS | libc::CLONE_THREAD | libc::CLONE_SIGHAND;
    assert_eq!(check(libc::SYS_clone, &[u64::from(thread.unsigned_abs())]), 0);
    assert_eq!(check(libc::SYS_clone, &[u64::from(libc::SIGCHLD.unsigned_abs())]), 0);
    for flag in NAMESPACES {
        assert_eq!(check(libc::SYS_clone, &[u64::from((flag | libc::SIGCHLD).unsigned_abs())]), libc::EPERM);
    }
}

#[test]
fn no_call_sets_a_suid_bit() {
    for bits in [0o4755, 0o2755, 0o6000] {
        assert_eq!(check(libc::SYS_fchmod, &[3, bits]), libc::EPERM);
        assert_eq!(check(libc::SYS_fchmodat, &[3, 0, bits]), libc::EPERM);
        assert_eq!(check(libc::SYS_openat, &[3, 0, 0o101, bits]), libc::EPERM);
    }
    assert_eq!(check(libc::SYS_fchmod, &[3, 0o1777]), 0);
    assert_eq!(check(libc::SYS_openat, &[3, 0, 0o101, 0o644]), 0);
}

#[test]
fn sockets_are_those_of_programs_not_of_tools_that_look_behind() {
    let call = |family: i32, kind: i32, protocol: u64| {
        check(libc::SYS_socket, &[u64::from(family.unsigned_abs()), u64::from(kind.unsigned_abs()), protocol])
    };
    assert_eq!(call(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0), 0);
    assert_eq!(call(libc::AF_INET6, libc::SOCK_DGRAM, 0), 0);
    assert_eq!(call(libc::AF_UNIX, libc::SOCK_STREAM, 0), 0);
    assert_eq!(call(libc::AF_NETLINK, libc::SOCK_RAW, 0), 0);
    assert_eq!(call(libc::AF_NETLINK, libc::SOCK_RAW, 9), libc::EPERM);
    assert_eq!(call(libc::AF_INET, libc::SOCK_RAW, 1), libc::EPERM);
    assert_eq!(call(libc::AF_INET6, libc::SOCK_RAW | libc::SOCK_NONBLOCK, 58), libc::EPERM);
    for family in [libc::AF_PACKET, libc::AF_VSOCK, libc::AF_ALG, libc::AF_BLUETOOTH] {
        assert_eq!(call(family, libc::SOCK_STREAM, 0), libc::EPERM);
    }
    let shut = Options { unix_sockets: false, ..Options::default() };
    assert_eq!(verdict(shut, libc::SYS_socket, &[1, 1, 0]), libc::EPERM);
    assert_eq!(verdict(shut, libc::SYS_socketpair, &[1, 1, 0]), 0);
    assert_eq!(check(libc::SYS_socketpair, &[2, 1, 0]), libc::EPERM);
}

#[test]
fn personality_may_be_asked_and_set_for_a_debugger_only() {
    for (persona, errno) in
        [(0xffff_ffff, 0), (0, 0), (0x004_0000, 0), (0x2_0000, libc::EPERM), (8, libc::EPERM)]
    {
        assert_eq!(check(libc::SYS_personality, &[persona]), errno, "{persona:#x}");
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn x32_calls_are_refused_and_a_foreign_architecture_ends_the_process() {
    const I386: u32 = 0x4000_0003;
    assert_eq!(check(0x4000_0000 | libc::SYS_read, &[]), libc::EPERM);
    let [program, _] = programs(Options::default()).unwrap();
    assert_eq!(run(&program, I386, 3, [0; 6]), libc::SECCOMP_RET_KILL_PROCESS);
}
