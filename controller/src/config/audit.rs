//! `[audit]`: how the log is kept.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::Deserialize;

use super::quantity;
use crate::failure::{Failure, Outcome};
use crate::limits::{DEFAULT_AUDIT_FILE_BYTES, MIN_AUDIT_FILE_BYTES};

/// `[audit]` as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AuditFile {
    sync: Option<Sync>,
    file_size: Option<String>,
    syslog: Option<String>,
}

/// When records are made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Sync {
    /// Within the commit window, many together.
    Group,
    /// Each before its call goes on.
    Always,
}

/// Where copies of records go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Syslog {
    /// A local socket.
    Unix(PathBuf),
    /// A receiver of datagrams.
    Udp(SocketAddr),
}

/// How the log is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditOptions {
    /// Each record is durable before its call goes on.
    pub sync_always: bool,
    /// A file is not made longer than this.
    pub file_bytes: u64,
    /// See [`Syslog`].
    pub syslog: Option<Syslog>,
}

impl Default for AuditOptions {
    fn default() -> Self {
        Self { sync_always: false, file_bytes: DEFAULT_AUDIT_FILE_BYTES, syslog: None }
    }
}

impl AuditOptions {
    pub(super) fn build(file: &AuditFile) -> Outcome<Self> {
        let size = |text: &String| quantity::bytes(text, "audit.file_size");
        let file_bytes = file.file_size.as_ref().map_or(Ok(DEFAULT_AUDIT_FILE_BYTES), size)?;
        if file_bytes < MIN_AUDIT_FILE_BYTES {
            return Err(Failure::config(format_args!(
                "audit.file_size is {file_bytes} bytes: a file must hold at least {MIN_AUDIT_FILE_BYTES}"
            )));
        }
        let syslog = file.syslog.as_ref().map(|text| syslog(text)).transpose()?;
        Ok(Self { sync_always: file.sync == Some(Sync::Always), file_bytes, syslog })
    }
}

fn syslog(text: &str) -> Outcome<Syslog> {
    if text.starts_with('/') {
        return Ok(Syslog::Unix(PathBuf::from(text)));
    }
    let address = text.strip_prefix("udp://").and_then(|address| address.parse().ok());
    address.map(Syslog::Udp).ok_or_else(|| {
        Failure::config(format_args!(
            "`{text}` in audit.syslog is no receiver: write the path of a socket, such as /dev/log, or \
             udp://ADDRESS:PORT"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receivers_are_paths_or_addresses() {
        assert_eq!(syslog("/dev/log").unwrap(), Syslog::Unix("/dev/log".into()));
        assert_eq!(syslog("udp://[::1]:514").unwrap(), Syslog::Udp("[::1]:514".parse().unwrap()));
        for text in ["dev/log", "udp://localhost:514", "tcp://127.0.0.1:514", ""] {
            assert_eq!(syslog(text).unwrap_err().exit.code(), 78, "{text}");
        }
    }
}
