//! The one table of methods: wire name, direction, phase and guard (SPEC 9.8).
//!
//! Everything that asks "may this frame pass here, now" asks this table. A name that is not in it is unknown.

/// Who sends a message with this method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Harness → exec-server, with an id.
    ClientRequest,
    /// Harness → exec-server, without an id.
    ClientNotification,
    /// Exec-server → harness, without an id.
    ServerNotification,
    /// Exec-server → harness, with an id.
    ServerRequest,
}

/// When a connection may use a method (SPEC 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Only as the first request of a connection.
    Opening,
    /// Only after a successful `initialize`.
    Opened,
    /// Only after `initialized`.
    Ready,
}

/// Whether the gate decides on and records each call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// Decided by the policy and recorded before it is forwarded.
    Guarded,
    /// Forwarded as it is: it neither acts nor reads anything that a guarded call did not open.
    Free,
}

macro_rules! methods {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $direction:ident, $phase:ident, $guard:ident, $group:literal;)*) => {
        /// Every method of the protocol, and Legion's own under the `legion/` prefix.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Method {
            $($(#[$doc])* $variant,)*
        }

        impl Method {
            /// All methods, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The method with this wire name.
            pub fn from_name(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// The wire name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Who sends it.
            pub const fn direction(self) -> Direction {
                match self { $(Self::$variant => Direction::$direction,)* }
            }

            /// When it is legal.
            pub const fn phase(self) -> Phase {
                match self { $(Self::$variant => Phase::$phase,)* }
            }

            /// Whether the gate decides on it.
            pub const fn guard(self) -> Guard {
                match self { $(Self::$variant => Guard::$guard,)* }
            }

            /// The word the original uses in `client must call initialize before using <group> methods` (SPEC 3).
            pub const fn group(self) -> &'static str {
                match self { $(Self::$variant => $group,)* }
            }
        }
    };
}

methods! {
    /// Opens or resumes a session (SPEC 3.1).
    Initialize = "initialize", ClientRequest, Opening, Free, "";
    /// Ends the handshake.
    Initialized = "initialized", ClientNotification, Opened, Free, "";
    /// Starts a command (SPEC 7.1).
    ProcessStart = "process/start", ClientRequest, Ready, Guarded, "exec";
    /// Reads retained output; everything it returns was sent as a notification before (SPEC 7.4).
    ProcessRead = "process/read", ClientRequest, Ready, Free, "exec";
    /// Writes to a command's stdin or terminal (SPEC 7.5).
    ProcessWrite = "process/write", ClientRequest, Ready, Guarded, "exec";
    /// Interrupts a command (SPEC 7.6).
    ProcessSignal = "process/signal", ClientRequest, Ready, Guarded, "exec";
    /// Kills a command (SPEC 7.7).
    ProcessTerminate = "process/terminate", ClientRequest, Ready, Guarded, "exec";
    /// Closes the stdin pipe of a command. Legion's own; the original has no way to do it (SPEC 7.5).
    LegionCloseStdin = "legion/closeStdin", ClientRequest, Ready, Guarded, "exec";
    /// Sends a signal the original does not know (SPEC 7.6). Legion's own.
    LegionSignal = "legion/signal", ClientRequest, Ready, Guarded, "exec";
    /// Resizes the terminal of a command. Legion's own; the original has no way to do it (SPEC 7.1).
    LegionResizeTerminal = "legion/resizeTerminal", ClientRequest, Ready, Free, "exec";
    /// Type, size and times of a path.
    FsGetMetadata = "fs/getMetadata", ClientRequest, Ready, Guarded, "filesystem";
    /// A whole file.
    FsReadFile = "fs/readFile", ClientRequest, Ready, Guarded, "filesystem";
    /// Truncates and writes a file.
    FsWriteFile = "fs/writeFile", ClientRequest, Ready, Guarded, "filesystem";
    /// Makes a directory.
    FsCreateDirectory = "fs/createDirectory", ClientRequest, Ready, Guarded, "filesystem";
    /// Removes a path.
    FsRemove = "fs/remove", ClientRequest, Ready, Guarded, "filesystem";
    /// Resolves all links of a path.
    FsCanonicalize = "fs/canonicalize", ClientRequest, Ready, Guarded, "filesystem";
    /// Lists a directory.
    FsReadDirectory = "fs/readDirectory", ClientRequest, Ready, Guarded, "filesystem";
    /// Lists a tree.
    FsWalk = "fs/walk", ClientRequest, Ready, Guarded, "filesystem";
    /// Copies a path.
    FsCopy = "fs/copy", ClientRequest, Ready, Guarded, "filesystem";
    /// Opens a file for block access.
    FsOpen = "fs/open", ClientRequest, Ready, Guarded, "filesystem";
    /// Reads a block of an open file.
    FsReadBlock = "fs/readBlock", ClientRequest, Ready, Free, "filesystem";
    /// Writes a block of an open file.
    FsWriteBlock = "fs/writeBlock", ClientRequest, Ready, Guarded, "filesystem";
    /// Closes an open file.
    FsClose = "fs/close", ClientRequest, Ready, Free, "filesystem";
    /// Watches for missing paths to appear.
    FsWatchMissing = "fs/watchMissing", ClientRequest, Ready, Guarded, "filesystem";
    /// Facts about the environment (SPEC 9.1).
    EnvironmentInfo = "environment/info", ClientRequest, Ready, Free, "environment info";
    /// Readiness (SPEC 9.2).
    EnvironmentStatus = "environment/status", ClientRequest, Ready, Free, "environment status";
    /// The executor's own configuration layers (SPEC 9.3).
    EnvironmentConfigRead = "environmentConfig/read", ClientRequest, Ready, Guarded, "environment config";
    /// Skills and plugins of a directory (SPEC 9.4).
    CapabilitiesDiscover = "capabilities/discoverV2", ClientRequest, Ready, Guarded, "capability discovery";
    /// Skills below given roots (SPEC 9.5).
    CapabilityRootsDiscover = "capabilityRoots/discoverV1", ClientRequest, Ready, Guarded, "capability discovery";
    /// One HTTP request from inside (SPEC 9.6).
    HttpRequest = "http/request", ClientRequest, Ready, Guarded, "http";
    /// A piece of output.
    ProcessOutput = "process/output", ServerNotification, Opened, Free, "";
    /// The direct child was reaped.
    ProcessExited = "process/exited", ServerNotification, Opened, Free, "";
    /// The last notification of a process.
    ProcessClosed = "process/closed", ServerNotification, Opened, Free, "";
    /// A watched path appeared.
    FsMissingChanged = "fs/missingChanged", ServerNotification, Opened, Free, "";
    /// A piece of a streamed HTTP body.
    HttpRequestBodyDelta = "http/request/bodyDelta", ServerNotification, Opened, Free, "";
    /// A managed proxy asks about a host (SPEC 9.7); Legion's exec-server never sends it.
    NetworkPolicyRequest = "network/policyRequest", ServerRequest, Opened, Free, "";
    /// A managed proxy reports a decision (SPEC 9.7); Legion's exec-server never sends it.
    NetworkPolicyDecision = "network/policyDecision", ServerNotification, Opened, Free, "";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_resolve_to_their_method() {
        for method in Method::ALL {
            assert_eq!(Method::from_name(method.name()), Some(*method));
        }
        assert_eq!(Method::from_name("process/kill"), None);
        assert_eq!(Method::from_name("Process/start"), None);
    }

    #[test]
    fn only_client_requests_are_guarded() {
        for method in Method::ALL.iter().filter(|method| method.guard() == Guard::Guarded) {
            assert_eq!(method.direction(), Direction::ClientRequest, "{}", method.name());
        }
    }
}
