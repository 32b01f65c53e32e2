//! The only unsafe code of this crate: what a safe interface cannot promise.
#![allow(unsafe_code, reason = "each block says why it is sound")]

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::unix::AsyncFd;

/// Watches a descriptor for readiness.
pub fn watch_fd(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the descriptor is owned by the returned value, which removes it from the poller before closing it.
    unsafe { AsyncFd::register(fd) }.map_err(io::Error::from)
}
