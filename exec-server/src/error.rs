//! The one mapping of operating system errors to protocol errors (SPEC 6).
//!
//! Texts are those of musl, which the original is built with; clients and their tests know them. The code -32004 is
//! given for ENOENT and nothing else: it is the one code a client acts on.

use std::io;

use legion_protocol::{ErrorCode, ErrorObject};
use rustix::io::Errno;

/// What handlers return: a value, or the error object to send.
pub(crate) type Outcome<T> = Result<T, ErrorObject>;

/// `<strerror> (os error N)`.
pub(crate) fn os_text(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(number) => match musl_text(Errno::from_raw_os_error(number)) {
            Some(text) => format!("{text} (os error {number})"),
            None => error.to_string(),
        },
        None => error.to_string(),
    }
}

/// The answer to a failed file operation.
pub(crate) fn fs_error(error: impl Into<io::Error>) -> ErrorObject {
    let error = error.into();
    let code = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOENT) => ErrorCode::NotFound,
        Some(Errno::ACCESS | Errno::PERM) => ErrorCode::InvalidRequest,
        _ => ErrorCode::Internal,
    };
    ErrorObject::new(code, os_text(&error))
}

/// The answer to a failed spawn; the one error with `data` (SPEC 7.1).
pub(crate) fn spawn_error(error: impl Into<io::Error>) -> ErrorObject {
    let error = error.into();
    let kind = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOENT) => "spawnNotFound",
        Some(Errno::ACCESS | Errno::PERM) => "spawnPermissionDenied",
        _ => "spawnFailed",
    };
    ErrorObject {
        code: ErrorCode::Internal,
        data: Some(serde_json::json!({ "kind": kind })),
        message: os_text(&error),
    }
}

/// musl's text for an error number; `None` for those no file, process or socket call of this program returns.
fn musl_text(errno: Errno) -> Option<&'static str> {
    TEXTS.iter().find(|(known, _)| *known == errno).map(|(_, text)| *text)
}

const TEXTS: &[(Errno, &str)] = &[
    (Errno::NOENT, "No such file or directory"),
    (Errno::ACCESS, "Permission denied"),
    (Errno::PERM, "Operation not permitted"),
    (Errno::EXIST, "File exists"),
    (Errno::NOTDIR, "Not a directory"),
    (Errno::ISDIR, "Is a directory"),
    (Errno::NAMETOOLONG, "Filename too long"),
    (Errno::LOOP, "Symbolic link loop"),
    (Errno::NOTEMPTY, "Directory not empty"),
    (Errno::ROFS, "Read-only file system"),
    (Errno::SRCH, "No such process"),
    (Errno::INTR, "Interrupted system call"),
    (Errno::IO, "I/O error"),
    (Errno::NXIO, "No such device or address"),
    (Errno::TOOBIG, "Argument list too long"),
    (Errno::NOEXEC, "Exec format error"),
    (Errno::BADF, "Bad file descriptor"),
    (Errno::CHILD, "No child process"),
    (Errno::AGAIN, "Resource temporarily unavailable"),
    (Errno::NOMEM, "Out of memory"),
    (Errno::FAULT, "Bad address"),
    (Errno::NOTBLK, "Block device required"),
    (Errno::BUSY, "Resource busy"),
    (Errno::XDEV, "Cross-device link"),
    (Errno::NODEV, "No such device"),
    (Errno::INVAL, "Invalid argument"),
    (Errno::NFILE, "Too many open files in system"),
    (Errno::MFILE, "No file descriptors available"),
    (Errno::NOTTY, "Not a tty"),
    (Errno::TXTBSY, "Text file busy"),
    (Errno::FBIG, "File too large"),
    (Errno::NOSPC, "No space left on device"),
    (Errno::SPIPE, "Invalid seek"),
    (Errno::MLINK, "Too many links"),
    (Errno::PIPE, "Broken pipe"),
    (Errno::DOM, "Domain error"),
    (Errno::RANGE, "Result not representable"),
    (Errno::DEADLK, "Resource deadlock would occur"),
    (Errno::NOLCK, "No locks available"),
    (Errno::NOSYS, "Function not implemented"),
    (Errno::NODATA, "No data available"),
    (Errno::PROTO, "Protocol error"),
    (Errno::BADMSG, "Bad message"),
    (Errno::OVERFLOW, "Value too large for data type"),
    (Errno::ILSEQ, "Illegal byte sequence"),
    (Errno::NOTSOCK, "Not a socket"),
    (Errno::MSGSIZE, "Message too large"),
    (Errno::OPNOTSUPP, "Not supported"),
    (Errno::AFNOSUPPORT, "Address family not supported by protocol"),
    (Errno::ADDRINUSE, "Address in use"),
    (Errno::ADDRNOTAVAIL, "Address not available"),
    (Errno::NETDOWN, "Network is down"),
    (Errno::NETUNREACH, "Network unreachable"),
    (Errno::CONNABORTED, "Connection aborted"),
    (Errno::CONNRESET, "Connection reset by peer"),
    (Errno::NOBUFS, "No buffer space available"),
    (Errno::NOTCONN, "Socket not connected"),
    (Errno::TIMEDOUT, "Operation timed out"),
    (Errno::CONNREFUSED, "Connection refused"),
    (Errno::HOSTUNREACH, "Host is unreachable"),
    (Errno::STALE, "Stale file handle"),
    (Errno::REMOTEIO, "Remote I/O error"),
    (Errno::DQUOT, "Quota exceeded"),
    (Errno::CANCELED, "Operation canceled"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_texts_are_those_of_the_original() {
        let cases = [
            (Errno::NOENT, -32004, "No such file or directory (os error 2)"),
            (Errno::ACCESS, -32600, "Permission denied (os error 13)"),
            (Errno::PERM, -32600, "Operation not permitted (os error 1)"),
            (Errno::LOOP, -32603, "Symbolic link loop (os error 40)"),
            (Errno::NAMETOOLONG, -32603, "Filename too long (os error 36)"),
            (Errno::ROFS, -32603, "Read-only file system (os error 30)"),
            (Errno::NOTEMPTY, -32603, "Directory not empty (os error 39)"),
        ];
        for (errno, code, message) in cases {
            let error = fs_error(errno);
            assert_eq!((error.code.number(), error.message.as_str()), (code, message));
        }
    }

    #[test]
    fn spawn_errors_name_their_kind() {
        for (errno, kind) in [
            (Errno::NOENT, "spawnNotFound"),
            (Errno::ACCESS, "spawnPermissionDenied"),
            (Errno::NOEXEC, "spawnFailed"),
            (Errno::NOTDIR, "spawnFailed"),
        ] {
            let error = spawn_error(errno);
            assert_eq!(error.code.number(), -32603);
            assert_eq!(error.data.unwrap()["kind"], kind);
        }
    }

    #[test]
    fn no_number_is_listed_twice() {
        for (index, (errno, _)) in TEXTS.iter().enumerate() {
            assert!(TEXTS[..index].iter().all(|(other, _)| other != errno), "{errno:?}");
        }
    }
}
