//! The client's own sandbox wishes (SPEC 10): they may only narrow, and what cannot be enforced is refused, never
//! ignored.

use legion_protocol::ErrorObject;
use legion_protocol::process::Start;
use legion_protocol::sandbox::{Permissions, Sandbox};

use crate::error::Outcome;

/// Passes a wish about a file operation that asks for nothing beyond this server's surroundings. A wish about the
/// network alone is granted by itself: no file operation uses it.
///
/// # Errors
/// As [`check_command`].
pub(crate) fn check_files(sandbox: Option<&Sandbox>) -> Outcome<()> {
    match sandbox.map(|sandbox| &sandbox.permissions) {
        Some(Permissions::External { .. }) => Ok(()),
        _ => check_command(sandbox),
    }
}

/// Passes a wish about a command that asks for nothing beyond this server's surroundings.
///
/// # Errors
/// -32600 for any other: this server cannot narrow a single call.
pub(crate) fn check_command(sandbox: Option<&Sandbox>) -> Outcome<()> {
    match sandbox {
        None => Ok(()),
        Some(sandbox) if sandbox.is_disabled() => Ok(()),
        Some(_) => Err(ErrorObject::invalid_request(
            "this exec-server cannot narrow a single call yet; it already runs inside Legion's sandbox, so send \
             `sandbox: null` (codex: --dangerously-bypass-approvals-and-sandbox) and narrow the persona instead",
        )),
    }
}

/// Passes a start without a managed proxy; `enforceManagedNetwork` alone has no effect (SPEC 7.1).
///
/// # Errors
/// -32600: running the command without the proxy it should be confined to would widen.
pub(crate) fn check_proxy(start: &Start) -> Outcome<()> {
    if start.network_proxy.is_some() {
        return Err(ErrorObject::invalid_request(
            "this exec-server has no managed network proxy; send `networkProxy: null` and choose the network in the persona",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use legion_protocol::object::from_object;

    use super::*;

    fn wish(permissions: &str) -> Sandbox {
        from_object(&format!(r#"{{"permissions":{permissions},"windowsSandboxLevel":"disabled"}}"#)).unwrap()
    }

    #[test]
    fn only_wishes_that_narrow_nothing_pass() {
        let managed = r#"{"type":"managed","file_system":{"type":"unrestricted"},"network":"enabled"}"#;
        for (permissions, command, files) in [
            (r#"{"type":"disabled"}"#, true, true),
            (r#"{"type":"external","network":"enabled"}"#, true, true),
            (r#"{"type":"external","network":"restricted"}"#, false, true),
            (managed, false, false),
        ] {
            let wish = wish(permissions);
            assert_eq!(check_command(Some(&wish)).is_ok(), command, "{permissions}");
            assert_eq!(check_files(Some(&wish)).is_ok(), files, "{permissions}");
        }
        assert!(check_command(None).is_ok() && check_files(None).is_ok());
    }
}
