//! Processes: those of the host are not there, and process 1 inside, the exec-server, cannot be looked into, stopped or
//! taken over.
//!
//! Invariant: the attempts after a signal to process 1 show that it is still there: they have outcomes.

use crate::probe::{Probe, probe};

pub(crate) const PROBES: &[Probe] = &[
    probe("exists {pid}", "ESRCH").unconfined("ok|EPERM"),
    probe("read /proc/{pid}/cmdline", "ENOENT").unconfined("ok"),
    probe("processes", "[abuse-probe exe legion-exec-ser]"),
    probe("search /proc/1/environ {secret}", "EACCES"),
    probe("search /proc/1/cmdline {secret}", "absent"),
    probe("search /proc/1/cmdline {scratch}", "absent"),
    probe("search /proc/1/mountinfo {secret}", "absent|EACCES"),
    probe("read /proc/1/maps", "EACCES"),
    probe("read /proc/1/exe", "EACCES"),
    probe("read /proc/1/io", "EACCES"),
    probe("memory 1", "EACCES"),
    probe("memory self", "ok"),
    probe("open-to-write /proc/1/oom_score_adj", "EACCES"),
    probe("take-descriptor 1 4", "EPERM"),
    probe("read /proc/1/fd/4", "EACCES"),
    probe("descriptors", "[0 1 2]"),
    probe("core-size", "Some(0) Some(0)"),
    probe("terminal", "ENXIO"),
    probe("signal 1 STOP", "ok"),
    probe("signal 1 KILL", "ok"),
    probe("pidfd-signal 1 KILL", "ok"),
    probe("signal 1 QUIT", "ok"),
    probe("signal 1 SEGV", "ok"),
    probe("signal 1 USR1", "ok"),
    probe("signal 1 HUP", "ok"),
    probe("signal 1 TERM", "ok"),
    probe("signal 1 INT", "ok"),
    probe("bomb", "EAGAIN"),
    probe("threads", "ok"),
];
