//! The client's own sandbox wishes (SPEC 10): they may only narrow, and what cannot be enforced is refused, never
//! ignored.

use legion_protocol::ErrorObject;
use legion_protocol::process::Start;
use legion_protocol::sandbox::Sandbox;

use crate::error::Outcome;

/// Passes a wish that asks for nothing beyond this server's surroundings.
///
/// # Errors
/// -32600 for any other: this server cannot narrow a single call.
pub(crate) fn check(sandbox: Option<&Sandbox>) -> Outcome<()> {
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
