//! The attempts: security.md section 8 line by line, and what else came to mind.

mod files;
mod kernel;
mod network;
mod options;
mod processes;
mod terminal;
mod workspace;

use crate::probe::Probe;

pub(crate) use options::{DEBUG, HOST_NETWORK, NO_UNIX_SOCKETS};
pub(crate) use terminal::TERMINAL;

/// Name and attempts of the parts every sandbox is put to.
pub(crate) const PARTS: &[(&str, &[Probe])] = &[
    ("files", files::PROBES),
    ("workspace", workspace::PROBES),
    ("kernel", kernel::PROBES),
    ("calls", kernel::CALLS),
    ("network", network::PROBES),
    ("processes", processes::PROBES),
];
