//! What `/proc` says about processes: who descends from whom, what each holds.
//!
//! Invariant: only looks. One that has just ended has no children and holds nothing.

use std::collections::BTreeMap;
use std::fs;
use std::io;

/// The direct children of a process.
pub fn children_of(pid: u32) -> Vec<u32> {
    children_by_parent().ok().and_then(|mut children| children.remove(&pid)).unwrap_or_default()
}

/// All that descend from a process, itself not included.
///
/// # Errors
/// `/proc` cannot be read.
pub fn descendants_of(pid: u32) -> io::Result<Vec<u32>> {
    let children = children_by_parent()?;
    let (mut found, mut parents) = (Vec::new(), vec![pid]);
    while let Some(parent) = parents.pop() {
        let own = children.get(&parent).into_iter().flatten();
        found.extend(own.clone());
        parents.extend(own);
    }
    Ok(found)
}

/// Resident memory of a process in bytes; 0 when it has ended.
pub fn resident(pid: u32) -> u64 {
    of_status(pid, "VmRSS:")
}

/// The most resident memory a process has had so far, in bytes; 0 when it has ended.
pub fn peak(pid: u32) -> u64 {
    of_status(pid, "VmHWM:")
}

fn of_status(pid: u32, name: &str) -> u64 {
    fs::read_to_string(format!("/proc/{pid}/status"))
        .ok()
        .and_then(|status| field(&status, name))
        .unwrap_or(0)
}

/// Open descriptors of a process; 0 when it has ended.
pub fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

/// Time a process has spent on a processor, in nanoseconds; 0 when it has ended, or where the kernel does not count.
pub fn processor_time(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap_or_default();
    text.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// A field of a `/proc` file, which counts in kB.
pub(crate) fn field(text: &str, name: &str) -> Option<u64> {
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
