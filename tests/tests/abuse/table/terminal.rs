//! Keystrokes put into a terminal: attempts of a command that has one.

use crate::probe::{Probe, probe};

pub(crate) const TERMINAL: &[Probe] = &[
    probe("terminal", "ok"),
    probe("inject TIOCSTI /dev/tty", "EPERM"),
    probe("inject TIOCSTI stdin", "EPERM"),
    probe("inject TIOCSTI own", "EPERM"),
    probe("inject TIOCSTI-high /dev/tty", "EPERM"),
    probe("inject TIOCSTI-high stdin", "EPERM"),
    probe("inject TIOCLINUX /dev/tty", "EPERM"),
    probe("inject TIOCLINUX stdin", "EPERM"),
    probe("inject TIOCLINUX-high stdin", "EPERM"),
    probe("descriptors", "[0 1 2]"),
];
