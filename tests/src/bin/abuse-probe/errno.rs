//! Names of error numbers, as the tables of `tests/abuse` write them.

use std::io;

const NAMES: &[(i32, &str)] = &[
    (libc::EACCES, "EACCES"),
    (libc::EADDRNOTAVAIL, "EADDRNOTAVAIL"),
    (libc::EAFNOSUPPORT, "EAFNOSUPPORT"),
    (libc::EAGAIN, "EAGAIN"),
    (libc::EBADF, "EBADF"),
    (libc::EBUSY, "EBUSY"),
    (libc::ECONNREFUSED, "ECONNREFUSED"),
    (libc::EEXIST, "EEXIST"),
    (libc::EFAULT, "EFAULT"),
    (libc::EFBIG, "EFBIG"),
    (libc::EHOSTUNREACH, "EHOSTUNREACH"),
    (libc::EINVAL, "EINVAL"),
    (libc::EIO, "EIO"),
    (libc::EISDIR, "EISDIR"),
    (libc::ELOOP, "ELOOP"),
    (libc::EMFILE, "EMFILE"),
    (libc::ENETUNREACH, "ENETUNREACH"),
    (libc::ENODATA, "ENODATA"),
    (libc::ENODEV, "ENODEV"),
    (libc::ENOENT, "ENOENT"),
    (libc::ENOKEY, "ENOKEY"),
    (libc::ENOMEM, "ENOMEM"),
    (libc::ENOSPC, "ENOSPC"),
    (libc::ENOSYS, "ENOSYS"),
    (libc::ENOTDIR, "ENOTDIR"),
    (libc::ENOTEMPTY, "ENOTEMPTY"),
    (libc::ENOTTY, "ENOTTY"),
    (libc::ENXIO, "ENXIO"),
    (libc::EOPNOTSUPP, "EOPNOTSUPP"),
    (libc::EPERM, "EPERM"),
    (libc::EPROTONOSUPPORT, "EPROTONOSUPPORT"),
    (libc::EROFS, "EROFS"),
    (libc::ESOCKTNOSUPPORT, "ESOCKTNOSUPPORT"),
    (libc::ESRCH, "ESRCH"),
    (libc::ETIMEDOUT, "ETIMEDOUT"),
    (libc::ETXTBSY, "ETXTBSY"),
    (libc::EXDEV, "EXDEV"),
];

/// The name of an error, or its text where the system gave no number.
pub(crate) fn name(error: &io::Error) -> String {
    let Some(number) = error.raw_os_error() else { return error.to_string().replace('\n', " ") };
    let known = NAMES.iter().find(|(known, _)| *known == number);
    known.map_or_else(|| format!("errno {number}"), |(_, name)| (*name).to_owned())
}

/// The name of a signal that ended a process.
pub(crate) fn signal_name(signal: i32) -> String {
    match signal {
        libc::SIGSYS => "SIGSYS".to_owned(),
        libc::SIGSEGV => "SIGSEGV".to_owned(),
        libc::SIGKILL => "SIGKILL".to_owned(),
        other => format!("signal {other}"),
    }
}
