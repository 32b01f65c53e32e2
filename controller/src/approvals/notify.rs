//! Desktop notifications, where there is a desktop.

use std::cell::Cell;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Instant;

use tokio::time::timeout;

use super::Question;
use crate::environment::Environment;
use crate::limits::{MAX_SHOWN_PART_CHARS, NOTIFY_INTERVAL, NOTIFY_TIMEOUT};
use crate::printable::printable;

/// Where a desktop says it is.
const DESKTOP: [&str; 3] = ["DISPLAY", "WAYLAND_DISPLAY", "DBUS_SESSION_BUS_ADDRESS"];

/// Runs `notify-send`, if there is one and a desktop to show it.
pub(super) struct Notifier {
    program: Option<PathBuf>,
    last: Cell<Option<Instant>>,
}

impl Notifier {
    pub(super) fn find(environment: &Environment) -> Self {
        let has_desktop = DESKTOP.iter().any(|name| environment.var(name).is_some());
        let program = has_desktop.then(|| environment.find_program("notify-send")).flatten();
        Self { program, last: Cell::default() }
    }

    /// Tells of a question; an agent that asks much is told of now and then.
    pub(super) fn tell(&self, question: &Question) {
        let Some(program) = &self.program else { return };
        let is_recent = |last: Instant| last.elapsed() < NOTIFY_INTERVAL;
        if self.last.get().is_some_and(is_recent) {
            return;
        }
        self.last.set(Some(Instant::now()));
        let call: String = question.call.chars().take(MAX_SHOWN_PART_CHARS).collect();
        let body = format!("{}\nlegion-controller approvals approve {}", escaped(&call), question.id);
        let mut command = tokio::process::Command::new(program);
        command.args(["--app-name=Legion", "--", "Legion: an agent asks for approval", &body]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        tokio::task::spawn_local(async move {
            let shown = timeout(NOTIFY_TIMEOUT, command.status()).await;
            if !matches!(shown, Ok(Ok(status)) if status.success()) {
                tracing::debug!("notify-send shows nothing");
            }
        });
    }
}

/// Notifications take markup, and break lines where the text does.
fn escaped(text: &str) -> String {
    printable(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
