//! Memory of a process and all its descendants, as the kernel counts it.
//!
//! Invariant: one unit for everybody: the proportional set size where every process shows it, else the resident one.

use std::collections::BTreeMap;
use std::fs;
use std::io;

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
    let children = children_by_parent()?;
    let mut parents = vec![root];
    while let Some(parent) = parents.pop() {
        for child in children.get(&parent).into_iter().flatten() {
            // One that has just ended holds nothing.
            if let Ok(memory) = of_process(*child) {
                total.resident_bytes += memory.resident_bytes;
                total.proportional_bytes =
                    total.proportional_bytes.zip(memory.proportional_bytes).map(|(sum, more)| sum + more);
                total.processes += 1;
                parents.push(*child);
            }
        }
    }
    Ok(total)
}

/// The direct children of a process.
pub fn children_of(pid: u32) -> Vec<u32> {
    children_by_parent().ok().and_then(|mut children| children.remove(&pid)).unwrap_or_default()
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

/// A field of a `/proc` file, which counts in kB.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
}

fn children_by_parent() -> io::Result<BTreeMap<u32, Vec<u32>>> {
    let mut children = BTreeMap::<u32, Vec<u32>>::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        // The name of the program stands in parentheses and may hold anything.
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let parent = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)?.parse().ok());
        if let Some(parent) = parent {
            children.entry(parent).or_default().push(pid);
        }
    }
    Ok(children)
}
