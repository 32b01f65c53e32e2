//! What a session has left in its workspace that tools on the host would obey and that was not there before. Pure.
//!
//! A name that does not exist cannot be protected, and making it is often right: a clone, a new worktree. So it is told.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::protect::{Guard, Plan};

/// Absolute paths, the uppermost of each tree, in order. Both plans are of the same workspace.
pub fn new_names(before: &Plan, after: &Plan, workspace: &Path) -> Vec<PathBuf> {
    let known = names(before, workspace);
    let mut new: Vec<PathBuf> = Vec::new();
    // In order, a directory comes before what lies in it.
    for path in names(after, workspace).difference(&known) {
        if !new.last().is_some_and(|upper| path.starts_with(upper)) {
            new.push(path.clone());
        }
    }
    new
}

fn names(plan: &Plan, workspace: &Path) -> BTreeSet<PathBuf> {
    let obeyed = plan.guards.iter().filter(|(_, guard)| *guard == Guard::ReadOnly);
    let obeyed = obeyed.map(|(path, _)| workspace.join(path));
    obeyed.chain(plan.git_dirs.iter().cloned()).chain(plan.links.iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_new_is_told_and_once() {
        let mut before = Plan::default();
        before.guards.add(Path::new(".git/config"), Guard::ReadOnly);
        before.git_dirs.push("/w/.git".into());
        let mut after = before.clone();
        after.guards.add(Path::new("a/.git/config"), Guard::ReadOnly);
        after.guards.add(Path::new("a/.git/hooks"), Guard::ReadOnly);
        after.guards.add(Path::new("b/.envrc"), Guard::ReadOnly);
        after.guards.add(Path::new("b/.env"), Guard::Mask);
        after.git_dirs.push("/w/a/.git".into());
        after.links.push("/w/.vscode".into());
        let told = new_names(&before, &after, Path::new("/w"));
        assert_eq!(told, ["/w/.vscode", "/w/a/.git", "/w/b/.envrc"].map(PathBuf::from));
        assert_eq!(new_names(&after, &before, Path::new("/w")), [] as [PathBuf; 0]);
    }
}
