//! What the options of a persona change, and what they leave as it is.

use crate::probe::{Probe, probe};

/// `unix_sockets = false`
pub(crate) const NO_UNIX_SOCKETS: &[Probe] = &[
    probe("socket unix", "EPERM"),
    probe("unix {workspace}/host.sock", "EPERM"),
    probe("abstract {abstract}", "EPERM"),
    probe("socketpair", "ok"),
    probe("own-loopback 127.0.0.1:0", "ok"),
];

/// `debug = true`
pub(crate) const DEBUG: &[Probe] = &[
    probe("call ptrace-traceme", "ok"),
    probe("call ptrace-attach", "EPERM"),
    probe("call ptrace-seize", "EPERM"),
    probe("call pidfd_getfd", "EPERM"),
    probe("take-descriptor 1 4", "EPERM"),
    probe("memory 1", "EACCES"),
    probe("clone user", "EPERM"),
];

/// `network = "host"`
pub(crate) const HOST_NETWORK: &[Probe] = &[
    probe("tcp 127.0.0.1:{port}", "ok"),
    probe("abstract {abstract}", "ok"),
    probe("unix {in_tmp}.sock", "ENOENT"),
    probe("unix /run/user/{uid}/bus", "ENOENT"),
    probe("socket raw", "EPERM"),
    probe("socket packet", "EPERM"),
    probe("socket vsock", "EPERM"),
    probe("socket netlink-audit", "EPERM"),
    probe("open-to-write /proc/sys/net/ipv4/ip_forward", "EACCES"),
    probe("call sethostname", "EPERM"),
];
