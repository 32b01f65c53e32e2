//! The calls a filter hands over, decoded from their numbers and arguments. Pure.
//!
//! Invariant: every call the filter names is known here; what is not is answered as a call that does not exist.

/// A path as a call gives it: relative to a directory, by its address in the caller's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct At {
    /// `AT_FDCWD` for the working directory.
    pub(super) directory: i32,
    pub(super) path: u64,
}

/// What attributes are changed of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    Descriptor(i32),
    Path(At, Lookup),
}

/// How the last name of a path is looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lookup {
    /// A link stands for what it leads to.
    pub(super) follow: bool,
    /// An empty path stands for the directory descriptor.
    pub(super) empty: bool,
}

const FOLLOW: Lookup = Lookup { follow: true, empty: false };
const NO_FOLLOW: Lookup = Lookup { follow: false, empty: false };

/// Where two times lie in the caller's memory, and in which form; 0 means now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Times {
    /// `struct timespec[2]`
    Nanoseconds(u64),
    /// `struct timeval[2]`
    Microseconds(u64),
    /// `struct utimbuf`
    Seconds(u64),
}

/// A call by what it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    Open { at: At, flags: i32, mode: u32 },
    MakeDirectory { at: At, mode: u32 },
    MakeNode { at: At, mode: u32, device: u64 },
    MakeLink { target: u64, at: At },
    Link { from: At, lookup: Lookup, to: At },
    Rename { from: At, to: At, flags: u32 },
    Remove { at: At, directory: bool },
    Truncate { at: At, length: u64 },
    Mode { target: Target, mode: u32 },
    Owner { target: Target, user: u32, group: u32 },
    Times { target: Target, times: Times },
}

impl Call {
    /// Whether Landlock decides on it as well.
    pub(super) fn is_known_to_landlock(self) -> bool {
        !matches!(self, Self::Mode { .. } | Self::Owner { .. } | Self::Times { .. })
    }
}

/// The call of a notification.
pub(super) fn decode(number: i64, arguments: [u64; 6]) -> Option<Call> {
    let [one, two, three, four, five, _] = arguments;
    Some(match number {
        libc::SYS_openat => Call::Open { at: at(one, two), flags: signed(three), mode: word(four) },
        libc::SYS_mkdirat => Call::MakeDirectory { at: at(one, two), mode: word(three) },
        libc::SYS_mknodat => Call::MakeNode { at: at(one, two), mode: word(three), device: four },
        libc::SYS_symlinkat => Call::MakeLink { target: one, at: at(two, three) },
        libc::SYS_linkat => Call::Link { from: at(one, two), lookup: lookup_link(five), to: at(three, four) },
        libc::SYS_renameat => Call::Rename { from: at(one, two), to: at(three, four), flags: 0 },
        libc::SYS_renameat2 => Call::Rename { from: at(one, two), to: at(three, four), flags: word(five) },
        libc::SYS_unlinkat => {
            Call::Remove { at: at(one, two), directory: signed(three) & libc::AT_REMOVEDIR != 0 }
        }
        libc::SYS_truncate => Call::Truncate { at: here(one), length: two },
        libc::SYS_fchmod => Call::Mode { target: Target::Descriptor(signed(one)), mode: word(two) },
        libc::SYS_fchmodat => Call::Mode { target: Target::Path(at(one, two), FOLLOW), mode: word(three) },
        libc::SYS_fchown => {
            Call::Owner { target: Target::Descriptor(signed(one)), user: word(two), group: word(three) }
        }
        libc::SYS_fchownat => Call::Owner {
            target: Target::Path(at(one, two), lookup(five)),
            user: word(three),
            group: word(four),
        },
        libc::SYS_utimensat => {
            Call::Times { target: timed(one, two, four), times: Times::Nanoseconds(three) }
        }
        _ => return decode_old(number, arguments),
    })
}

/// The old names, which only some architectures have.
#[cfg(target_arch = "x86_64")]
fn decode_old(number: i64, arguments: [u64; 6]) -> Option<Call> {
    let [one, two, three, ..] = arguments;
    let path = |lookup| Target::Path(here(one), lookup);
    Some(match number {
        libc::SYS_open => Call::Open { at: here(one), flags: signed(two), mode: word(three) },
        libc::SYS_creat => {
            let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
            Call::Open { at: here(one), flags, mode: word(two) }
        }
        libc::SYS_mkdir => Call::MakeDirectory { at: here(one), mode: word(two) },
        libc::SYS_mknod => Call::MakeNode { at: here(one), mode: word(two), device: three },
        libc::SYS_symlink => Call::MakeLink { target: one, at: here(two) },
        libc::SYS_link => Call::Link { from: here(one), lookup: NO_FOLLOW, to: here(two) },
        libc::SYS_rename => Call::Rename { from: here(one), to: here(two), flags: 0 },
        libc::SYS_unlink => Call::Remove { at: here(one), directory: false },
        libc::SYS_rmdir => Call::Remove { at: here(one), directory: true },
        libc::SYS_chmod => Call::Mode { target: path(FOLLOW), mode: word(two) },
        libc::SYS_chown => Call::Owner { target: path(FOLLOW), user: word(two), group: word(three) },
        libc::SYS_lchown => Call::Owner { target: path(NO_FOLLOW), user: word(two), group: word(three) },
        libc::SYS_utime => Call::Times { target: path(FOLLOW), times: Times::Seconds(two) },
        libc::SYS_utimes => Call::Times { target: path(FOLLOW), times: Times::Microseconds(two) },
        libc::SYS_futimesat => Call::Times { target: timed(one, two, 0), times: Times::Microseconds(three) },
        _ => return None,
    })
}

#[cfg(not(target_arch = "x86_64"))]
fn decode_old(_: i64, _: [u64; 6]) -> Option<Call> {
    None
}

fn here(path: u64) -> At {
    At { directory: libc::AT_FDCWD, path }
}

fn at(directory: u64, path: u64) -> At {
    At { directory: signed(directory), path }
}

/// Without a path the descriptor itself is meant.
fn timed(directory: u64, path: u64, flags: u64) -> Target {
    if path == 0 {
        Target::Descriptor(signed(directory))
    } else {
        Target::Path(at(directory, path), lookup(flags))
    }
}

fn lookup(flags: u64) -> Lookup {
    let has = |flag| signed(flags) & flag != 0;
    Lookup { follow: !has(libc::AT_SYMLINK_NOFOLLOW), empty: has(libc::AT_EMPTY_PATH) }
}

fn lookup_link(flags: u64) -> Lookup {
    let has = |flag| signed(flags) & flag != 0;
    Lookup { follow: has(libc::AT_SYMLINK_FOLLOW), empty: has(libc::AT_EMPTY_PATH) }
}

/// Arguments narrower than a register leave the rest of it undefined.
#[allow(clippy::cast_possible_truncation, reason = "that is what the kernel does")]
fn word(argument: u64) -> u32 {
    argument as u32
}

fn signed(argument: u64) -> i32 {
    word(argument).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_as_the_kernel_reads_them() {
        let garbage = 0xdead_beef_0000_0000;
        let here = u64::from(libc::AT_FDCWD.cast_unsigned()) | garbage;
        let call = decode(libc::SYS_openat, [here, 7, 0o1101 | garbage, 0o644 | garbage, 0, 0]);
        let at = At { directory: libc::AT_FDCWD, path: 7 };
        assert_eq!(call, Some(Call::Open { at, flags: 0o1101, mode: 0o644 }));
        let call = decode(libc::SYS_utimensat, [5, 0, 9, 0, 0, 0]);
        let times = Times::Nanoseconds(9);
        assert_eq!(call, Some(Call::Times { target: Target::Descriptor(5), times }));
        let call = decode(libc::SYS_unlinkat, [here, 7, 0x200, 0, 0, 0]);
        assert_eq!(call, Some(Call::Remove { at, directory: true }));
        assert_eq!(decode(libc::SYS_read, [0; 6]), None);
    }
}
