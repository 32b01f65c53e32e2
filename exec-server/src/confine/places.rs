//! From the entries of a wish to the rules of a [`Policy`]: special places, links, patterns (SPEC 10).
//!
//! Invariant: whatever takes something away ends up as a rule, or the wish is refused. A path is followed through all
//! its links first, also when it does not exist yet, so that rules and the kernel mean the same place.

use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use legion_protocol::sandbox::{Access, Entry, EntryPath, PolicyContext, Sandbox, Special, SpecialKind};
use legion_protocol::{ErrorObject, PathUri};

use super::glob::{self, Allowance};
use super::mounts::Mounts;
use super::policy::{Policy, Reach};
use crate::error::Outcome;
use crate::limits::{MAX_LINKS, MAX_POLICY_RULES};

/// What a program needs to start, wherever it comes from.
const MINIMAL: [&str; 12] = [
    "/bin",
    "/dev",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
    "/proc",
    "/run/current-system/sw",
    "/sbin",
    "/usr",
];

/// The directories that the special places of a wish stand for.
pub(super) struct Places<'a> {
    cwd: Option<&'a Path>,
    roots: Vec<&'a Path>,
    tmpdir: Option<&'a Path>,
}

impl<'a> Places<'a> {
    /// Those of a wish; `cwd` where it names none of its own.
    pub(super) fn of(sandbox: &'a Sandbox, cwd: Option<&'a Path>, tmpdir: Option<&'a Path>) -> Self {
        let own = sandbox.cwd.as_ref().map(PathUri::path);
        let (own, roots) = match &sandbox.policy_context {
            Some(PolicyContext { cwd, workspace_roots }) => (Some(cwd.path()), workspace_roots),
            None => (own, &sandbox.workspace_roots),
        };
        let tmpdir = tmpdir.filter(|path| path.is_absolute());
        Self { cwd: own.or(cwd), roots: roots.iter().map(PathUri::path).collect(), tmpdir }
    }

    /// The policy of these entries.
    ///
    /// # Errors
    /// -32602 for what means nothing here; -32600 for what cannot be resolved.
    pub(super) fn policy(&self, entries: &[Entry]) -> Outcome<Policy> {
        let mut policy = Policy::default();
        let mut allowance = Allowance::default();
        for entry in entries {
            let reach = match entry.access {
                Access::Read => Reach::Read,
                Access::Write => Reach::Write,
                Access::Deny | Access::None => Reach::Nothing,
            };
            for path in self.paths(&entry.path, &mut allowance)? {
                add(&mut policy, &path, reach);
            }
            check_size(&policy)?;
        }
        repeat_for_aliases(&mut policy)?;
        check_size(&policy)?;
        Ok(policy)
    }

    fn paths(&self, path: &EntryPath, allowance: &mut Allowance) -> Outcome<Vec<PathBuf>> {
        match path {
            EntryPath::Path { path } => Ok(vec![path.path().to_owned()]),
            EntryPath::Special { value } => self.special(value),
            EntryPath::GlobPattern { pattern } => {
                let absolute = if pattern.starts_with('/') {
                    pattern.clone()
                } else {
                    format!("{}/{pattern}", self.cwd()?.display())
                };
                glob::find(&absolute, allowance)
                    .map_err(|error| ErrorObject::invalid_request(error.to_string()))
            }
        }
    }

    fn special(&self, special: &Special) -> Outcome<Vec<PathBuf>> {
        let bases: Vec<&Path> = match special.kind {
            SpecialKind::Root => vec![Path::new("/")],
            SpecialKind::Minimal => MINIMAL.map(Path::new).to_vec(),
            SpecialKind::CurrentWorkingDirectory => vec![self.cwd()?],
            SpecialKind::ProjectRoots => {
                // As in the original: what the roots are relative to has to be said, too.
                self.cwd()?;
                self.roots.clone()
            }
            SpecialKind::Tmpdir => self.tmpdir.into_iter().collect(),
            SpecialKind::SlashTmp => vec![Path::new("/tmp")],
            SpecialKind::Unknown => {
                return Err(ErrorObject::invalid_params(
                    "this exec-server does not know all special paths of the sandbox object; use a client of its version",
                ));
            }
        };
        let Some(subpath) = &special.subpath else {
            return Ok(bases.into_iter().map(Path::to_owned).collect());
        };
        let inward = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
        if !Path::new(subpath).components().all(inward) {
            return Err(ErrorObject::invalid_params(format!(
                "subpath `{subpath}` of a special path leads out of it"
            )));
        }
        Ok(bases.into_iter().map(|base| base.join(subpath)).collect())
    }

    fn cwd(&self) -> Outcome<&'a Path> {
        self.cwd.ok_or_else(|| {
            ErrorObject::invalid_params("file system sandbox context with dynamic permissions requires cwd")
        })
    }
}

fn check_size(policy: &Policy) -> Outcome<()> {
    if policy.len() <= MAX_POLICY_RULES {
        return Ok(());
    }
    Err(ErrorObject::invalid_request(format!(
        "the sandbox object names more than {MAX_POLICY_RULES} paths; name directories instead"
    )))
}

/// What is given or taken away at one path is given or taken away at every other path of the same place; of two rules for
/// one place that counts what counts of two for one path. First what is given: what takes from it is seen only then.
fn repeat_for_aliases(policy: &mut Policy) -> Outcome<()> {
    let mounts = Mounts::read().map_err(|error| {
        ErrorObject::invalid_request(format!(
            "the sandbox object cannot be enforced: other names of its paths are not known: {error}"
        ))
    })?;
    // All of them: what gives nothing more under its own name may do so where the other name has less above.
    let names = policy
        .rules()
        .flat_map(|(path, reach)| mounts.names(path).into_iter().map(move |name| (name, reach)));
    let more: Vec<_> = names.filter(|(name, reach)| policy.reach(name) < *reach).collect();
    for (name, reach) in more {
        policy.add(name, reach);
    }
    check_size(policy)?;
    let is_less = |path: &Path, reach| path.parent().is_some_and(|parent| policy.reach(parent) > reach);
    let taken = policy.rules().filter(|(path, reach)| is_less(path, *reach));
    let aliases =
        taken.flat_map(|(path, reach)| mounts.aliases(path).into_iter().map(move |alias| (alias, reach)));
    let less: Vec<_> = aliases.filter(|(alias, reach)| policy.reach(alias) > *reach).collect();
    for (alias, reach) in less {
        policy.add(alias, reach);
    }
    Ok(())
}

/// Adds the rule for where a path leads. One that takes something away also holds for the link itself: whoever may
/// replace the link decides where it leads.
fn add(policy: &mut Policy, path: &Path, reach: Reach) {
    let target = real(path);
    if let (true, Some(parent), Some(name)) = (reach < Reach::Write, path.parent(), path.file_name()) {
        let link = real(parent).join(name);
        if link != target {
            policy.add(link, reach);
        }
    }
    policy.add(target, reach);
}

/// Where an absolute path leads, through all links, and on through names that do not exist yet.
pub(super) fn real(path: &Path) -> PathBuf {
    let mut names: Vec<_> = reversed(path);
    let mut real = PathBuf::from("/");
    let mut links = 0;
    while let Some(name) = names.pop() {
        if name == ".." {
            real.pop();
            continue;
        }
        let next = real.join(&name);
        match std::fs::read_link(&next) {
            // A loop leads nowhere: its own name is as good as any.
            Ok(target) if links < MAX_LINKS => {
                links += 1;
                if target.is_absolute() {
                    real = PathBuf::from("/");
                }
                names.extend(reversed(&target));
            }
            _ => real = next,
        }
    }
    real
}

fn reversed(path: &Path) -> Vec<OsString> {
    let names = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    });
    let mut names: Vec<_> = names.collect();
    names.reverse();
    names
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use legion_protocol::object::from_object;

    use super::*;

    fn wish(dir: &Path, entries: &str) -> Sandbox {
        let dir = dir.display();
        from_object(&format!(
            r#"{{"permissions":{{"type":"managed","file_system":{{"type":"restricted","entries":[{entries}]}},"network":"restricted"}},
            "cwd":"file://{dir}/w","workspaceRoots":["file://{dir}/w"],"windowsSandboxLevel":"disabled"}}"#
        ))
        .unwrap()
    }

    fn policy_of(sandbox: &Sandbox) -> Outcome<Policy> {
        let legion_protocol::sandbox::Permissions::Managed { file_system, .. } = &sandbox.permissions else {
            panic!("not managed")
        };
        let legion_protocol::sandbox::FileSystem::Restricted { entries } = file_system else {
            panic!("not restricted")
        };
        Places::of(sandbox, None, Some(Path::new("/var/tmp"))).policy(entries)
    }

    #[test]
    fn special_places_are_those_of_the_wish() {
        let dir = tempfile::tempdir().unwrap();
        let base = real(dir.path());
        fs::create_dir(base.join("w")).unwrap();
        let entries = r#"{"path":{"type":"special","value":{"kind":"root"}},"access":"read"},
            {"path":{"type":"special","value":{"kind":"project_roots"}},"access":"write"},
            {"path":{"type":"special","value":{"kind":"slash_tmp"}},"access":"write"},
            {"path":{"type":"special","value":{"kind":"tmpdir"}},"access":"write"},
            {"path":{"type":"special","value":{"kind":"project_roots","subpath":".git"}},"access":"read","missing_path_behavior":"skip"}"#;
        let policy = policy_of(&wish(&base, entries)).unwrap();
        let reach = |path: &str| policy.reach(Path::new(path));
        assert_eq!(
            (reach("/etc"), reach("/tmp/x"), reach("/var/tmp/x")),
            (Reach::Read, Reach::Write, Reach::Write)
        );
        assert_eq!(policy.reach(&base.join("w/x")), Reach::Write);
        assert_eq!(policy.reach(&base.join("w/.git/x")), Reach::Read, "protected although it does not exist");
    }

    #[test]
    fn what_means_nothing_here_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        for (value, text) in [
            (r#"{"kind":"unknown"}"#, "does not know all special paths"),
            (r#"{"kind":"project_roots","subpath":"../out"}"#, "leads out of it"),
            (r#"{"kind":"root","subpath":"/etc"}"#, "leads out of it"),
        ] {
            let entry = format!(r#"{{"path":{{"type":"special","value":{value}}},"access":"read"}}"#);
            let error = policy_of(&wish(dir.path(), &entry)).unwrap_err();
            assert!(error.message.contains(text), "{}", error.message);
        }
        let entry =
            r#"{"path":{"type":"special","value":{"kind":"current_working_directory"}},"access":"read"}"#;
        let mut sandbox = wish(dir.path(), entry);
        sandbox.cwd = None;
        assert!(policy_of(&sandbox).unwrap_err().message.ends_with("requires cwd"));
    }

    #[test]
    fn links_are_followed_and_protected_themselves() {
        let dir = tempfile::tempdir().unwrap();
        let base = real(dir.path());
        fs::create_dir_all(base.join("w/real")).unwrap();
        fs::create_dir(base.join("git")).unwrap();
        symlink(base.join("git"), base.join("w/.git")).unwrap();
        symlink("later", base.join("w/dangling")).unwrap();
        symlink("loop", base.join("w/loop")).unwrap();
        symlink(base.join("w"), base.join("alias")).unwrap();
        assert_eq!(real(&base.join("alias/real/../dangling/x")), base.join("w/later/x"));
        assert_eq!(real(&base.join("w/loop")), base.join("w/loop"));
        let entry = |path: &str, access: &str| {
            format!(
                r#"{{"path":{{"type":"path","path":"file://{}/{path}"}},"access":"{access}"}}"#,
                base.display()
            )
        };
        let entries =
            [entry("alias", "write"), entry("alias/.git", "read"), entry("w/dangling", "none")].join(",");
        let policy = policy_of(&wish(&base, &entries)).unwrap();
        let reach = |path: &str| policy.reach(&base.join(path));
        assert_eq!(reach("w/x"), Reach::Write);
        assert_eq!((reach("w/.git"), reach("git/config")), (Reach::Read, Reach::Read));
        assert_eq!((reach("w/dangling"), reach("w/later")), (Reach::Nothing, Reach::Nothing));
    }

    #[test]
    fn patterns_become_the_paths_that_match_now() {
        let dir = tempfile::tempdir().unwrap();
        let base = real(dir.path());
        fs::create_dir_all(base.join("w/sub")).unwrap();
        fs::write(base.join("w/sub/a.env"), "").unwrap();
        let entries = r#"{"path":{"type":"special","value":{"kind":"root"}},"access":"read"},
            {"path":{"type":"glob_pattern","pattern":"**/*.env"},"access":"deny"}"#;
        let policy = policy_of(&wish(&base, entries)).unwrap();
        assert_eq!(policy.reach(&base.join("w/sub/a.env")), Reach::Nothing);
        assert_eq!(policy.reach(&base.join("w/sub/b.env")), Reach::Read);
    }
}
