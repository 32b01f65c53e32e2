//! Which file a handle means: the records of a file's blocks name its path and the record that opened it.
//!
//! Invariant: a handle means what the exec-server agreed to; what was asked for counts only until there is an answer.

use std::collections::HashMap;

use legion_protocol::Method;

use super::Connection;
use crate::audit::record::{Object, Record};
use crate::limits::MAX_TRACKED_HANDLES;

/// A file a client has open, as records name it.
#[derive(Debug, Clone)]
pub(super) struct OpenFile {
    handle: String,
    path: Option<String>,
}

impl OpenFile {
    /// The file that a call opens.
    pub(super) fn of(method: Method, object: &Object) -> Option<Self> {
        let handle = object.handle_id.clone().filter(|_| method == Method::FsOpen)?;
        Some(Self { handle, path: object.path.clone() })
    }
}

/// The open files of a connection, each with the number of the record that opened it.
#[derive(Debug, Default)]
pub(super) struct OpenFiles(HashMap<String, (OpenFile, u64)>);

impl OpenFiles {
    /// The exec-server has opened it. What it closes itself, as after a failed read, stays here until its name or its place
    /// is needed.
    pub(super) fn opened(&mut self, file: OpenFile, call: u64) {
        self.0.insert(file.handle.clone(), (file, call));
        if self.0.len() > MAX_TRACKED_HANDLES {
            let oldest = self.0.iter().min_by_key(|(_, (_, call))| *call).map(|(handle, _)| handle.clone());
            oldest.and_then(|handle| self.0.remove(&handle));
        }
    }

    /// The client closes it.
    pub(super) fn closed(&mut self, handle: &str) {
        self.0.remove(handle);
    }
}

impl Connection {
    /// Lets the record of a block name the file.
    pub(super) fn name_file(&self, method: Method, record: &mut Record) {
        let Some(object) = record.object.as_mut().filter(|_| method == Method::FsWriteBlock) else { return };
        let Some(handle) = &object.handle_id else { return };
        let files = self.files.borrow();
        let pending = self.pending.borrow();
        let asked = || {
            let mut opens =
                pending.values().filter_map(|pending| Some((pending.opens.as_ref()?, pending.call?)));
            opens.find(|(file, _)| file.handle == *handle)
        };
        if let Some((file, call)) = files.0.get(handle).map(|(file, call)| (file, *call)).or_else(asked) {
            record.file = Some(call);
            object.path.clone_from(&file.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_means_what_was_opened_last_however_many_there_were() {
        let mut files = OpenFiles::default();
        let mut open = |handle: u64, path: &str, call: u64| {
            let handle = format!("h{handle}");
            files.opened(OpenFile { handle: handle.clone(), path: Some(path.to_owned()) }, call);
            let kept = files.0.get(&handle).map(|(file, call)| (file.path.clone(), *call));
            assert_eq!(kept, Some((Some(path.to_owned()), call)));
            assert!(files.0.len() <= MAX_TRACKED_HANDLES);
        };
        let most = MAX_TRACKED_HANDLES as u64;
        (0..most).for_each(|number| open(number, "/first", number));
        // The exec-server had closed this one.
        open(0, "/second", most);
        open(most, "/another", most + 1);
        assert!(files.0.contains_key("h0") && !files.0.contains_key("h1"));
    }
}
