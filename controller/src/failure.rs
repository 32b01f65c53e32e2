//! What ends a subcommand early: one line for the user and an exit code.
//!
//! Invariant: a message is one line that says what failed, why, and what to do; it never holds a secret.

use std::fmt;
use std::process::ExitCode;

/// The exit codes of the command line, after sysexits(3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// 64: the command line makes no sense.
    Usage,
    /// 69: the sandbox or a service cannot be had.
    Unavailable,
    /// 70: a bug or a broken environment.
    Internal,
    /// 77: the policy or a token check said no.
    Refused,
    /// 78: the configuration is wrong.
    Config,
}

impl Exit {
    /// The number given to the shell.
    pub const fn code(self) -> u8 {
        match self {
            Self::Usage => 64,
            Self::Unavailable => 69,
            Self::Internal => 70,
            Self::Refused => 77,
            Self::Config => 78,
        }
    }

    /// The code of a number received over the control socket.
    pub const fn from_code(code: u8) -> Self {
        match code {
            64 => Self::Usage,
            69 => Self::Unavailable,
            77 => Self::Refused,
            78 => Self::Config,
            _ => Self::Internal,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// A failed subcommand.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// How the process exits.
    pub exit: Exit,
    /// One line for the user.
    pub message: String,
}

/// The result of everything a subcommand does.
pub type Outcome<T> = Result<T, Failure>;

impl Failure {
    /// A failure whose message is made one line.
    pub fn new(exit: Exit, message: impl fmt::Display) -> Self {
        let mut line = String::new();
        for part in message.to_string().split_whitespace() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(part);
        }
        Self { exit, message: line }
    }

    /// Exit 64.
    pub fn usage(message: impl fmt::Display) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// Exit 69.
    pub fn unavailable(message: impl fmt::Display) -> Self {
        Self::new(Exit::Unavailable, message)
    }

    /// Exit 70.
    pub fn internal(message: impl fmt::Display) -> Self {
        Self::new(Exit::Internal, message)
    }

    /// Exit 77.
    pub fn refused(message: impl fmt::Display) -> Self {
        Self::new(Exit::Refused, message)
    }

    /// Exit 78.
    pub fn config(message: impl fmt::Display) -> Self {
        Self::new(Exit::Config, message)
    }
}
