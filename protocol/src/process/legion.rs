//! What Legion adds to the methods on processes, for clients that know it.

use serde::{Deserialize, Serialize};

/// Legion's own part of [`super::Start`].
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LegionStart {
    /// The size a terminal starts with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal_size: Option<TerminalSize>,
    /// The output ends with the process itself, whoever else has its pipes.
    #[serde(default)]
    pub ends_at_exit: bool,
}

/// Parameters of `legion/resizeTerminal`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResizeTerminal {
    /// The client's name for the process.
    pub process_id: String,
    /// The new size.
    pub size: TerminalSize,
}

/// A terminal's size in character cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TerminalSize {
    /// From top to bottom.
    pub rows: u16,
    /// From left to right.
    pub columns: u16,
}

/// Parameters of `legion/signal`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SendAnySignal {
    /// The client's name for the process.
    pub process_id: String,
    /// Sent to the process group.
    pub signal: AnySignal,
}

/// What a program is told by its surroundings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum AnySignal {
    /// SIGHUP.
    Hangup,
    /// SIGINT.
    Interrupt,
    /// SIGQUIT.
    Quit,
    /// SIGTERM.
    Terminate,
    /// SIGUSR1.
    User1,
    /// SIGUSR2.
    User2,
}

impl AnySignal {
    /// As on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hangup => "hangup",
            Self::Interrupt => "interrupt",
            Self::Quit => "quit",
            Self::Terminate => "terminate",
            Self::User1 => "user1",
            Self::User2 => "user2",
        }
    }
}
