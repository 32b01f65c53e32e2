//! Memory of a process and all its descendants, as the kernel counts it.
//!
//! Invariant: one unit for everybody: the proportional set size where every process shows it, else the resident one.

use std::fs;
use std::io;

use crate::process_table::{descendants_of, field};

/// What a tree of processes holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Resident pages, shared ones counted for each process.
    pub resident_bytes: u64,
    /// Resident pages, shared ones divided among their holders; `None` when one of the processes may not be looked at.
    pub proportional_bytes: Option<u64>,
    /// Processes counted.
    pub processes: usize,
}

/// Looks at `root` and everything below it.
///
/// # Errors
/// `root` is gone.
pub fn of_tree(root: u32) -> io::Result<Memory> {
    let mut total = of_process(root)?;
    for descendant in descendants_of(root)? {
        // One that has just ended holds nothing.
        if let Ok(memory) = of_process(descendant) {
            total.resident_bytes += memory.resident_bytes;
            total.proportional_bytes =
                total.proportional_bytes.zip(memory.proportional_bytes).map(|(sum, more)| sum + more);
            total.processes += 1;
        }
    }
    Ok(total)
}

fn of_process(pid: u32) -> io::Result<Memory> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok();
    Ok(Memory {
        resident_bytes: field(&status, "VmRSS:").unwrap_or(0),
        proportional_bytes: rollup.and_then(|text| field(&text, "Pss:")),
        processes: 1,
    })
}
