//! The command line. Pure: arguments in, a checked [`Config`] out.
//!
//! Flags the original has too fail in its words and with its exit code 1; everything else is a usage error, 64.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::path::PathBuf;

use crate::token::TokenDigest;

/// What to do.
pub enum Command {
    /// Print the version.
    Version,
    /// Serve.
    Serve(Config),
}

/// How to serve.
pub struct Config {
    /// Where clients come from.
    pub listen: Listen,
    /// A descriptor to read a `Bootstrap` from.
    pub bootstrap: Option<RawFd>,
    /// A pipe whose end is the end of this server.
    pub lifeline: Option<RawFd>,
    /// What a client must present.
    pub auth: Auth,
}

/// Where clients come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// An inherited listening Unix socket.
    Descriptor(RawFd),
    /// A Unix socket made at this path.
    Path(PathBuf),
    /// A TCP socket.
    Address(SocketAddr),
    /// Lines on stdin and stdout; one client.
    Stdio,
}

/// What a client must present.
pub enum Auth {
    /// Nothing, or what the bootstrap says.
    Unset,
    /// The token in this file.
    File(PathBuf),
    /// The token with this digest.
    Digest(TokenDigest),
}

/// Why the command line cannot be followed; one line, and the exit code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct UsageError {
    /// For the user.
    pub text: String,
    /// 64, or 1 as the original.
    pub code: u8,
}

impl UsageError {
    fn ours(text: impl AsRef<str>) -> Self {
        Self { text: format!("legion-exec-server: {}", text.as_ref()), code: 64 }
    }

    fn original(text: impl AsRef<str>) -> Self {
        Self { text: format!("Error: {}", text.as_ref()), code: 1 }
    }
}

impl Config {
    /// The inherited descriptors that are named.
    pub fn descriptors(&self) -> Vec<RawFd> {
        let listen = match self.listen {
            Listen::Descriptor(fd) => Some(fd),
            _ => None,
        };
        [listen, self.bootstrap, self.lifeline].into_iter().flatten().collect()
    }
}

/// The values of the flags, unchecked.
#[derive(Default)]
struct Flags {
    listen: Option<String>,
    bootstrap: Option<RawFd>,
    lifeline: Option<RawFd>,
    auth: Option<String>,
    token_file: Option<PathBuf>,
    token_sha256: Option<String>,
}

/// Reads the arguments behind the program's name.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Command, UsageError> {
    let mut flags = Flags::default();
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        let argument = text(argument)?;
        let (name, inline) = match argument.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (argument.as_str(), None),
        };
        if name == "--version" {
            return Ok(Command::Version);
        }
        let mut value = || match inline.clone() {
            Some(value) => Ok(value),
            None => arguments
                .next()
                .ok_or_else(|| UsageError::ours(format!("{name} needs a value")))
                .and_then(text),
        };
        match name {
            "--listen" => set(&mut flags.listen, name, value()?)?,
            "--bootstrap-fd" => set(&mut flags.bootstrap, name, descriptor(name, &value()?)?)?,
            "--lifeline-fd" => set(&mut flags.lifeline, name, descriptor(name, &value()?)?)?,
            "--ws-auth" => set(&mut flags.auth, name, value()?)?,
            "--ws-token-file" => set(&mut flags.token_file, name, value()?.into())?,
            "--ws-token-sha256" => set(&mut flags.token_sha256, name, value()?)?,
            _ => {
                return Err(UsageError::ours(format!(
                    "unknown argument `{argument}`; the flags are --listen, --bootstrap-fd, --lifeline-fd, --ws-auth, \
                     --ws-token-file, --ws-token-sha256 and --version"
                )));
            }
        }
    }
    check(flags).map(Command::Serve)
}

fn text(argument: OsString) -> Result<String, UsageError> {
    argument.into_string().map_err(|_| UsageError::ours("an argument is not UTF-8"))
}

fn set<T>(slot: &mut Option<T>, name: &str, value: T) -> Result<(), UsageError> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(UsageError::ours(format!("{name} is given twice"))),
    }
}

fn descriptor(name: &str, value: &str) -> Result<RawFd, UsageError> {
    value.parse().ok().filter(|fd| *fd > 2).ok_or_else(|| {
        UsageError::ours(format!("{name} needs the number of an inherited descriptor above 2"))
    })
}

fn check(flags: Flags) -> Result<Config, UsageError> {
    let listen = parse_listen(flags.listen.as_deref().unwrap_or("ws://127.0.0.1:0"))?;
    let auth = check_auth(flags.auth.as_deref(), flags.token_file, flags.token_sha256.as_deref())?;
    if flags.bootstrap.is_some() && !matches!(auth, Auth::Unset) {
        return Err(UsageError::ours("--bootstrap-fd brings its own token; leave the --ws-auth flags out"));
    }
    let config = Config { listen, bootstrap: flags.bootstrap, lifeline: flags.lifeline, auth };
    let mut descriptors = config.descriptors();
    descriptors.sort_unstable();
    if descriptors.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(UsageError::ours("one descriptor is named for two purposes"));
    }
    Ok(config)
}

fn parse_listen(url: &str) -> Result<Listen, UsageError> {
    if matches!(url, "stdio" | "stdio://") {
        return Ok(Listen::Stdio);
    }
    if let Some(number) = url.strip_prefix("fd:") {
        return descriptor("--listen fd:N", number).map(Listen::Descriptor);
    }
    if let Some(path) = url.strip_prefix("unix://") {
        let path = PathBuf::from(path);
        return if path.is_absolute() {
            Ok(Listen::Path(path))
        } else {
            Err(UsageError::ours(format!("`{url}` needs an absolute path: unix:///run/x.sock")))
        };
    }
    let Some(address) = url.strip_prefix("ws://") else {
        return Err(UsageError::original(format!(
            "unsupported --listen URL `{url}`; expected `ws://IP:PORT` or `stdio`"
        )));
    };
    address.parse().map(Listen::Address).map_err(|_| {
        UsageError::original(format!("invalid websocket --listen URL `{url}`; expected `ws://IP:PORT`"))
    })
}

fn check_auth(mode: Option<&str>, file: Option<PathBuf>, sha256: Option<&str>) -> Result<Auth, UsageError> {
    match (mode, file, sha256) {
        (None, None, None) => Ok(Auth::Unset),
        (None, ..) => Err(UsageError::original(
            "websocket auth flags require `--ws-auth capability-token` or `--ws-auth signed-bearer-token`",
        )),
        (Some("capability-token"), Some(_), Some(_)) => {
            Err(UsageError::original("`--ws-token-file` and `--ws-token-sha256` are mutually exclusive"))
        }
        (Some("capability-token"), Some(file), None) => Ok(Auth::File(file)),
        (Some("capability-token"), None, Some(digest)) => {
            TokenDigest::from_hex(digest).map(Auth::Digest).ok_or_else(|| {
                UsageError::original("--ws-token-sha256 must be a 64-character hex SHA-256 digest")
            })
        }
        (Some("capability-token"), None, None) => Err(UsageError::original(
            "`--ws-token-file` or `--ws-token-sha256` is required when `--ws-auth capability-token` is set",
        )),
        (Some(other), ..) => Err(UsageError::ours(format!(
            "--ws-auth `{other}` is not supported; the one mode is `capability-token`"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &str) -> Result<Config, UsageError> {
        match parse(arguments.split_whitespace().map(OsString::from))? {
            Command::Serve(config) => Ok(config),
            Command::Version => panic!("asked for the version"),
        }
    }

    #[test]
    fn every_way_to_listen_is_understood() {
        for (arguments, listen) in [
            ("", Listen::Address("127.0.0.1:0".parse().unwrap())),
            ("--listen ws://[::1]:8080", Listen::Address("[::1]:8080".parse().unwrap())),
            ("--listen=ws://0.0.0.0:1", Listen::Address("0.0.0.0:1".parse().unwrap())),
            ("--listen fd:7", Listen::Descriptor(7)),
            ("--listen unix:///run/x.sock", Listen::Path("/run/x.sock".into())),
            ("--listen stdio", Listen::Stdio),
            ("--listen stdio://", Listen::Stdio),
        ] {
            assert_eq!(parsed(arguments).ok().unwrap().listen, listen, "{arguments}");
        }
        let config = parsed("--listen fd:7 --bootstrap-fd 8 --lifeline-fd=9").ok().unwrap();
        assert_eq!(config.descriptors(), [7, 8, 9]);
        assert!(matches!(parse(["--version".into()]), Ok(Command::Version)));
    }

    #[test]
    fn bad_urls_fail_as_at_the_original() {
        let error = |arguments: &str| parsed(arguments).err().unwrap();
        for url in ["ws://localhost:0", "ws://127.0.0.1:0/x", "ws://127.0.0.1", "ws://127.0.0.1:99999"] {
            let text = format!("Error: invalid websocket --listen URL `{url}`; expected `ws://IP:PORT`");
            assert_eq!(error(&format!("--listen {url}")), UsageError { text, code: 1 });
        }
        for url in ["wss://127.0.0.1:0", "http://1.2.3.4:5", "foo"] {
            let text = format!("Error: unsupported --listen URL `{url}`; expected `ws://IP:PORT` or `stdio`");
            assert_eq!(error(&format!("--listen {url}")), UsageError { text, code: 1 });
        }
    }

    #[test]
    fn bad_flags_are_usage_errors_of_one_line() {
        let digest = "0".repeat(64);
        for (arguments, code) in [
            ("--bogus", 64),
            ("x", 64),
            ("--listen", 64),
            ("--listen fd:2", 64),
            ("--listen fd:x", 64),
            ("--listen unix://x", 64),
            ("--listen stdio --listen stdio", 64),
            ("--bootstrap-fd 1", 64),
            ("--bootstrap-fd 5 --lifeline-fd 5", 64),
            (&format!("--bootstrap-fd 5 --ws-auth capability-token --ws-token-sha256 {digest}"), 64),
            ("--ws-auth signed-bearer-token", 64),
            ("--ws-auth capability-token", 1),
            ("--ws-token-sha256 aa", 1),
            ("--ws-auth capability-token --ws-token-sha256 zz", 1),
            ("--ws-auth capability-token --ws-token-file /x --ws-token-sha256 zz", 1),
        ] {
            let error = parsed(arguments).err().unwrap();
            assert_eq!(error.code, code, "{arguments}: {error}");
            assert!(!error.text.contains('\n'));
        }
    }
}
