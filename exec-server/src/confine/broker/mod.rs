//! The broker of one confined command: a thread that answers the calls which the command's filter hands over.
//!
//! It is what makes a policy that Landlock cannot express hold to the letter: new names beside protected ones, attributes
//! of files. It runs without the command's restrictions, so it does nothing but what [`judge`] allows. It ends with the
//! last process of the command, also one that outlives its session.

mod call;
mod caller;
mod judge;
mod place;
mod sys;

use std::io;
use std::sync::Arc;

use rustix::io::Errno;
use tokio::sync::OwnedSemaphorePermit;

use super::policy::Policy;
use super::ruleset::Grants;
use crate::limits::BROKER_STACK_BYTES;
use caller::{Caller, own_umask};
use judge::{Judge, Reply};
pub(crate) use sys::Listener;
use sys::Notification;

/// What a broker goes by.
pub(crate) struct Rules {
    pub(super) policy: Policy,
    pub(super) grants: Grants,
}

/// Starts the broker of a command. `place` is given back at its end.
///
/// # Errors
/// There can be no further thread; then the command must not go on either.
pub(crate) fn start(listener: Listener, rules: Arc<Rules>, place: OwnedSemaphorePermit) -> io::Result<()> {
    let builder = std::thread::Builder::new().name("broker".to_owned()).stack_size(BROKER_STACK_BYTES);
    builder.spawn(move || {
        let _place = place;
        listener.wake_synchronously();
        // What it takes is given back; without knowing it, everything is.
        let umask = own_umask().unwrap_or(0o777);
        // After an error nobody answers: the calls of the command fail as calls that do not exist.
        while let Ok(Some(notification)) = listener.next() {
            answer(&listener, &rules, umask, &notification);
        }
    })?;
    Ok(())
}

fn answer(listener: &Listener, rules: &Rules, umask: u32, notification: &Notification) {
    let id = notification.id;
    match decide(listener, rules, umask, notification) {
        Ok(Reply::Kernel) => listener.proceed(id),
        Ok(Reply::Done) => listener.answer(id, Ok(())),
        Ok(Reply::Descriptor { opened, close_on_exec }) => {
            if let Err(error) = listener.give(id, &opened, close_on_exec) {
                listener.answer(id, Err(error));
            }
        }
        Err(error) => listener.answer(id, Err(error)),
    }
}

fn decide(
    listener: &Listener,
    rules: &Rules,
    umask: u32,
    notification: &Notification,
) -> Result<Reply, Errno> {
    let call = call::decode(notification.number, notification.arguments).ok_or(Errno::NOSYS)?;
    // Who must not be looked at gets what Landlock allows, and nothing that only the broker could judge.
    let caller = match Caller::open(notification.thread) {
        Err(_) if call.is_known_to_landlock() => return Ok(Reply::Kernel),
        caller => caller.map_err(|_| Errno::PERM)?,
    };
    let judge = Judge {
        policy: &rules.policy,
        grants: &rules.grants,
        umask,
        still_waits: &|| listener.is_waiting(notification.id),
    };
    judge.judge(&caller, call)
}
