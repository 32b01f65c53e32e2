//! The programs, run as the kernel runs them.

use super::*;

/// What the kernel does with a program, instruction by instruction.
fn run(program: &[sock_filter], arch: u32, number: i64, arguments: [u64; 6]) -> u32 {
    let word = |offset: u32| match offset {
        NUMBER => u32::try_from(number).unwrap(),
        ARCH => arch,
        _ => {
            let at = usize::try_from(offset - 16).unwrap();
            u32::try_from((arguments[at / 8] >> (8 * (at % 8))) & 0xffff_ffff).unwrap()
        }
    };
    let (mut at, mut accumulator) = (0, 0);
    loop {
        let sock_filter { code, jt, jf, k } = program[at];
        at += 1;
        let code = u32::from(code);
        let test = if code == BPF_LD | BPF_W | BPF_ABS {
            accumulator = word(k);
            continue;
        } else if code == libc::BPF_ALU | libc::BPF_AND | BPF_K {
            accumulator &= k;
            continue;
        } else if code == BPF_RET | BPF_K {
            return k;
        } else if code == BPF_JMP | BPF_JEQ | BPF_K {
            accumulator == k
        } else if code == BPF_JMP | BPF_JGE | BPF_K {
            accumulator >= k
        } else if code == BPF_JMP | BPF_JSET | BPF_K {
            accumulator & k != 0
        } else {
            panic!("unknown instruction {code:#x}")
        };
        at += usize::from(if test { jt } else { jf });
    }
}

fn verdict(scope: Scope, number: i64, arguments: [i64; 3]) -> u32 {
    // Bits above those the kernel looks at must not matter.
    let [a, b, c] = arguments
        .map(|argument| u64::from(u32::try_from(argument & 0xffff_ffff).unwrap()) | 0xdead_0000_0000_0000);
    run(&program(scope), ARCHITECTURE, number, [a, b, c, 0, 0, 0])
}

const REFUSED: u32 = SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs();
const ABSENT_CALL: u32 = SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs();
const NOT_SUPPORTED: u32 = SECCOMP_RET_ERRNO | libc::EOPNOTSUPP.unsigned_abs();
const WRITING: Scope = Scope { files: Some(Opens::Writing), network: false };
const ALL: Scope = Scope { files: Some(Opens::All), network: false };
const NO_NETWORK: Scope = Scope { files: None, network: true };

#[test]
fn opens_go_to_the_broker_by_their_flags() {
    let flags = |flags: i32| i64::from(flags);
    for (open, writing, all) in [
        (libc::O_RDONLY, SECCOMP_RET_ALLOW, SECCOMP_RET_USER_NOTIF),
        (libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC, SECCOMP_RET_ALLOW, SECCOMP_RET_USER_NOTIF),
        (libc::O_WRONLY, SECCOMP_RET_USER_NOTIF, SECCOMP_RET_USER_NOTIF),
        (libc::O_RDWR, SECCOMP_RET_USER_NOTIF, SECCOMP_RET_USER_NOTIF),
        (libc::O_RDONLY | libc::O_CREAT, SECCOMP_RET_USER_NOTIF, SECCOMP_RET_USER_NOTIF),
        (libc::O_RDONLY | libc::O_TRUNC, SECCOMP_RET_USER_NOTIF, SECCOMP_RET_USER_NOTIF),
        (libc::O_RDWR | libc::O_TMPFILE, SECCOMP_RET_USER_NOTIF, SECCOMP_RET_USER_NOTIF),
        (libc::O_PATH, SECCOMP_RET_ALLOW, SECCOMP_RET_ALLOW),
        (libc::O_PATH | libc::O_RDWR, SECCOMP_RET_ALLOW, SECCOMP_RET_ALLOW),
    ] {
        assert_eq!(verdict(WRITING, libc::SYS_openat, [-100, 0, flags(open)]), writing, "{open:o}");
        assert_eq!(verdict(ALL, libc::SYS_openat, [-100, 0, flags(open)]), all, "{open:o}");
        assert_eq!(verdict(NO_NETWORK, libc::SYS_openat, [-100, 0, flags(open)]), SECCOMP_RET_ALLOW);
        #[cfg(target_arch = "x86_64")]
        assert_eq!(verdict(WRITING, libc::SYS_open, [0, flags(open), 0]), writing, "{open:o}");
    }
}

#[test]
fn every_way_to_change_a_file_is_seen_or_refused() {
    for number in CHANGES.iter().chain(OLD_CHANGES) {
        assert_eq!(verdict(WRITING, *number, [0; 3]), SECCOMP_RET_USER_NOTIF, "{number}");
        assert_eq!(verdict(NO_NETWORK, *number, [0; 3]), SECCOMP_RET_ALLOW, "{number}");
    }
    for number in [libc::SYS_openat2, libc::SYS_io_uring_setup, FCHMODAT2, SETXATTRAT] {
        assert_eq!(verdict(WRITING, number, [0; 3]), ABSENT_CALL, "{number}");
    }
    assert_eq!(verdict(WRITING, libc::SYS_fsetxattr, [0; 3]), NOT_SUPPORTED);
    assert_eq!(verdict(WRITING, libc::SYS_ioctl, [3, 0x4008_6602, 0]), NOT_SUPPORTED);
    assert_eq!(verdict(WRITING, libc::SYS_ioctl, [3, 0x5401, 0]), SECCOMP_RET_ALLOW);
    assert_eq!(verdict(WRITING, libc::SYS_chroot, [0; 3]), REFUSED);
    for number in [libc::SYS_read, libc::SYS_execve, libc::SYS_socket, libc::SYS_connect, libc::SYS_clone] {
        assert_eq!(verdict(WRITING, number, [0; 3]), SECCOMP_RET_ALLOW, "{number}");
    }
}

#[test]
fn without_network_only_pairs_within_the_command_remain() {
    let (unix, inet) = (i64::from(libc::AF_UNIX), i64::from(libc::AF_INET));
    let (stream, datagram) = (i64::from(libc::SOCK_STREAM), i64::from(libc::SOCK_DGRAM));
    let closing = i64::from(libc::SOCK_CLOEXEC);
    for (number, domain, kind, expected) in [
        (libc::SYS_socket, unix, stream | closing, SECCOMP_RET_ALLOW),
        (libc::SYS_socketpair, unix, stream, SECCOMP_RET_ALLOW),
        (libc::SYS_socketpair, unix, i64::from(libc::SOCK_SEQPACKET), SECCOMP_RET_ALLOW),
        (libc::SYS_socketpair, unix, datagram, REFUSED),
        (libc::SYS_socket, unix, datagram | closing, REFUSED),
        (libc::SYS_socket, unix, i64::from(libc::SOCK_RAW), REFUSED),
        (libc::SYS_socket, inet, stream, REFUSED),
        (libc::SYS_socket, i64::from(libc::AF_INET6), datagram, REFUSED),
        (libc::SYS_socket, i64::from(libc::AF_NETLINK), i64::from(libc::SOCK_RAW), REFUSED),
        (libc::SYS_socket, i64::from(libc::AF_VSOCK), stream, REFUSED),
    ] {
        assert_eq!(verdict(NO_NETWORK, number, [domain, kind, 0]), expected, "{number} {domain} {kind}");
        assert_eq!(verdict(WRITING, number, [domain, kind, 0]), SECCOMP_RET_ALLOW);
    }
    for number in NETWORK {
        assert_eq!(verdict(NO_NETWORK, *number, [0; 3]), REFUSED);
    }
    assert_eq!(verdict(NO_NETWORK, libc::SYS_sendmsg, [0; 3]), SECCOMP_RET_ALLOW);
}

#[test]
fn calls_of_other_architectures_do_not_slip_through() {
    let program = program(Scope { files: Some(Opens::All), network: true });
    assert_eq!(run(&program, 0x4000_0003, libc::SYS_read, [0; 6]), SECCOMP_RET_KILL_PROCESS);
    if cfg!(target_arch = "x86_64") {
        assert_eq!(run(&program, ARCHITECTURE, 0x4000_0000, [0; 6]), ABSENT_CALL);
    }
    assert!(program.len() < 4096, "the kernel takes no longer ones");
}
