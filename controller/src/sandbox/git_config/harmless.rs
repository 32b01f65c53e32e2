//! Which lines of a git configuration may stay in a repository that was made inside. Pure.
//!
//! Git has hundreds of variables and gets new ones, many of which start programs: so what is known to do no harm is
//! listed, and everything else, what cannot be read plainly included, is no part of it.

/// Sections and what of them does no harm; `*` is any name, where values are colours or switches. `core.worktree`, `core.fsmonitor`, `submodule.*.update` and the
/// filter of git-lfs depend on the value.
const HARMLESS: [(&str, &[&str]); 27] = [
    ("advice", &["*"]),
    ("author", &["name", "email"]),
    (
        "branch",
        &["remote", "merge", "rebase", "description", "pushremote", "autosetupmerge", "autosetuprebase"],
    ),
    ("color", &["*"]),
    ("commit", &["gpgsign", "verbose", "cleanup"]),
    ("committer", &["name", "email"]),
    (
        "core",
        &[
            "abbrev",
            "autocrlf",
            "bare",
            "bigfilethreshold",
            "checkstat",
            "commitgraph",
            "compression",
            "eol",
            "filemode",
            "ignorecase",
            "logallrefupdates",
            "longpaths",
            "multipackindex",
            "precomposeunicode",
            "preloadindex",
            "protecthfs",
            "protectntfs",
            "quotepath",
            "repositoryformatversion",
            "safecrlf",
            "sharedrepository",
            "sparsecheckout",
            "sparsecheckoutcone",
            "symlinks",
            "trustctime",
            "untrackedcache",
            "whitespace",
        ],
    ),
    (
        "diff",
        &[
            "algorithm",
            "colormoved",
            "ignoresubmodules",
            "mnemonicprefix",
            "noprefix",
            "renamelimit",
            "renames",
        ],
    ),
    (
        "extensions",
        &[
            "compatobjectformat",
            "objectformat",
            "partialclone",
            "preciousobjects",
            "refstorage",
            "relativeworktrees",
            "worktreeconfig",
        ],
    ),
    ("feature", &["experimental", "manyfiles"]),
    ("fetch", &["parallel", "prune", "prunetags", "recursesubmodules", "writecommitgraph"]),
    (
        "gc",
        &[
            "auto",
            "autodetach",
            "autopacklimit",
            "bigpackthreshold",
            "cruftpacks",
            "logexpiry",
            "packrefs",
            "pruneexpire",
            "reflogexpire",
            "reflogexpireunreachable",
            "worktreepruneexpire",
            "writecommitgraph",
        ],
    ),
    ("index", &["recordendofindexentries", "recordoffsettable", "skiphash", "sparse", "threads", "version"]),
    ("init", &["defaultbranch"]),
    ("lfs", &["locksverify", "repositoryformatversion"]),
    ("log", &["date", "decorate", "follow"]),
    ("maintenance", &["auto", "strategy"]),
    ("merge", &["conflictstyle", "ff", "renamelimit", "renames"]),
    (
        "pack",
        &[
            "compression",
            "depth",
            "indexversion",
            "packsizelimit",
            "threads",
            "usebitmaps",
            "usesparse",
            "window",
            "windowmemory",
        ],
    ),
    ("pull", &["ff", "rebase"]),
    ("push", &["autosetupremote", "default", "followtags"]),
    ("rebase", &["autosquash", "autostash", "updaterefs"]),
    (
        "remote",
        &[
            "fetch",
            "mirror",
            "partialclonefilter",
            "promisor",
            "prune",
            "prunetags",
            "push",
            "pushurl",
            "tagopt",
            "url",
        ],
    ),
    ("rerere", &["autoupdate", "enabled"]),
    (
        "status",
        &[
            "aheadbehind",
            "branch",
            "relativepaths",
            "renames",
            "short",
            "showstash",
            "showuntrackedfiles",
            "submodulesummary",
        ],
    ),
    (
        "submodule",
        &["active", "branch", "fetchrecursesubmodules", "ignore", "path", "recurse", "shallow", "url"],
    ),
    ("user", &["name", "email", "signingkey"]),
];

/// What `git lfs install` writes.
const LFS_FILTER: [(&str, &[&str]); 4] = [
    ("clean", &["git-lfs clean -- %f"]),
    ("process", &["git-lfs filter-process", "git-lfs filter-process --skip"]),
    ("required", &["true", "false"]),
    ("smudge", &["git-lfs smudge -- %f", "git-lfs smudge --skip -- %f"]),
];

/// A configuration without what is not known to be harmless.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// What stays.
    pub text: String,
    /// Names of what does not, as far as there are any.
    pub dropped: Vec<String>,
}

/// Goes through a configuration line by line. `is_inside` says of a value of `core.worktree` whether it lies where a
/// repository made inside may lie.
pub fn keep(text: &str, is_inside: impl Fn(&str) -> bool) -> Kept {
    let mut kept = Kept::default();
    // None until a header that was kept, and after one that was not.
    let mut section: Option<(String, Option<&str>)> = None;
    for line in text.split_inclusive('\n') {
        let plain = line.trim_matches([' ', '\t', '\r', '\n']);
        let verdict = if plain.is_empty() || plain.starts_with(['#', ';']) {
            // A comment cannot go on in the next line.
            Ok(())
        } else if plain.starts_with('[') {
            section = header(plain);
            section.as_ref().map(|_| ()).ok_or(plain)
        } else {
            match &section {
                Some((section, sub)) if is_harmless(section, *sub, plain, &is_inside) => Ok(()),
                _ => Err(plain),
            }
        };
        match verdict {
            Ok(()) => kept.text.push_str(line),
            Err(line) => kept.dropped.push(name(section.as_ref(), line)),
        }
    }
    kept
}

/// Whether a variable named in full, `section.name` or `section.sub.name`, may be set to this value.
pub fn is_harmless_setting(key: &str, value: &str) -> bool {
    let Some((section, rest)) = key.split_once('.') else { return false };
    let (sub, name) = rest.rsplit_once('.').map_or((None, rest), |(sub, name)| (Some(sub), name));
    is_harmless(&section.to_ascii_lowercase(), sub, &format!("{name}={value}"), &|_| false)
}

fn name(section: Option<&(String, Option<&str>)>, line: &str) -> String {
    let key = line.split(['=', ' ', '\t']).next().unwrap_or_default();
    match section {
        Some((section, _)) => format!("{section}.{}", key.to_ascii_lowercase()),
        None => key.to_owned(),
    }
}

/// Section in lower case, and subsection, of a line that is nothing but a header.
fn header(line: &str) -> Option<(String, Option<&str>)> {
    let inner = line.strip_prefix('[')?.strip_suffix(']')?;
    let (section, sub) = match inner.split_once([' ', '\t']) {
        Some((section, sub)) => {
            (section, Some(sub.trim_matches([' ', '\t']).strip_prefix('"')?.strip_suffix('"')?))
        }
        None => (inner, None),
    };
    let is_word = !section.is_empty() && section.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let is_plain =
        |sub: &str| !sub.contains(|letter: char| matches!(letter, '"' | '\\') || letter.is_control());
    (is_word && sub.is_none_or(is_plain)).then(|| (section.to_ascii_lowercase(), sub))
}

fn is_harmless(section: &str, sub: Option<&str>, line: &str, is_inside: &impl Fn(&str) -> bool) -> bool {
    // A line that ends so goes on in the next.
    if line.ends_with('\\') || line.chars().any(|letter| letter.is_control() && letter != '\t') {
        return false;
    }
    let (key, value) = match line.split_once('=') {
        Some((key, value)) => (key.trim_end_matches([' ', '\t']), super::unquoted(value)),
        None => (line, "true".to_owned()),
    };
    let key = key.to_ascii_lowercase();
    match (section, key.as_str()) {
        ("core", "worktree") => is_inside(&value),
        ("core", "fsmonitor") => matches!(value.as_str(), "true" | "false"),
        ("submodule", "update") => matches!(value.as_str(), "checkout" | "rebase" | "merge" | "none"),
        ("filter", _) => {
            let of_lfs =
                LFS_FILTER.iter().any(|(name, values)| *name == key && values.contains(&value.as_str()));
            sub == Some("lfs") && of_lfs
        }
        _ => {
            let known = HARMLESS.iter().find(|(name, _)| *name == section);
            known.is_some_and(|(_, names)| names.contains(&"*") || names.contains(&key.as_str()))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PLAIN: &str = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare\n# ours\n\n[remote \"origin\"]\n\
        \turl = https://example.org/x.git\n\tfetch = +refs/heads/*:refs/remotes/origin/*\r\n[branch \"a/b\"]\n\tmerge = x\n\
        [filter \"lfs\"]\n\tclean = git-lfs clean -- %f\n\trequired = true\n[Color \"diff\"]\nmeta = yellow\n\
        [submodule \"x\"]\n\tupdate = none\n";

    #[test]
    fn what_git_itself_writes_stays() {
        assert_eq!(keep(PLAIN, |_| false), Kept { text: PLAIN.into(), dropped: Vec::new() });
    }

    #[test]
    fn what_may_start_programs_goes() {
        for (line, told) in [
            ("\tfsmonitor = /tmp/x\n", "core.fsmonitor"),
            ("\tFsMonitor=x\n", "core.fsmonitor"),
            ("\thooksPath = .husky\n", "core.hookspath"),
            ("\tworktree = /home/u\n", "core.worktree"),
            ("\tbare = fal\\\n", "core.bare"),
            ("\tsshCommand = sh -c x\n", "core.sshcommand"),
            ("\tfile\x0bmode = x\n", "core.file\x0bmode"),
            ("[core] fsmonitor = x\n", "[core]"),
            ("[include]\npath = x\n", "include.path"),
            ("[alias]\nst = !x\n", "alias.st"),
            ("[gc]\nrecentObjectsHook = x\n", "gc.recentobjectshook"),
            ("[filter \"lfs\"]\nclean = sh x\n", "filter.clean"),
            ("[filter \"x\"]\nclean = git-lfs clean -- %f\n", "filter.clean"),
            ("[submodule \"x\"]\nupdate = !x\n", "submodule.update"),
            ("[core \"a\\\"]\n[core]\nfsmonitor=\"x\"]\n", "[core"),
        ] {
            let kept = keep(&format!("[core]\n{line}"), |_| false);
            assert_eq!(kept.dropped.first().map(String::as_str), Some(told), "{line:?}");
            assert!(!kept.text.contains("= x") && !kept.text.contains('!'), "{line:?}: {}", kept.text);
        }
        // What follows a header that was not understood belongs to nothing.
        assert_eq!(keep("[user]\n[core] x = 1\nname = y\n", |_| true).text, "[user]\n");
        assert_eq!(keep("\u{feff}[core]\nbare = true\n", |_| true).text, "");
    }

    proptest! {
        #[test]
        fn what_stays_stays_again(text in "(\\[(core|alias|filter \"lfs\"|x)\\]?|fsmonitor|bare|=|\\\\|\"|!| |\n|\r|#|a){0,40}") {
            let once = keep(&text, |_| false);
            let twice = keep(&once.text, |_| false);
            prop_assert_eq!(&twice.text, &once.text);
            prop_assert!(twice.dropped.is_empty());
            for (section, key, value) in super::super::entries(&once.text) {
                prop_assert!(section != "alias" && (key != "fsmonitor" || value == "true"), "{section}.{key}={value}");
            }
        }
    }
}
