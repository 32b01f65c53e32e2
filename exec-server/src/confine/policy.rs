//! What a wish allows, as a function from paths to [`Reach`]. Pure.
//!
//! Invariant: paths are absolute, real (no links, no dots) and compared name by name. The rule for the longest path
//! counts, as in the original; of two for the same path nothing beats writing, and writing beats reading. A rule that
//! takes something away also holds for other capitals of its names: a file system may not tell them apart.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::ops::Bound;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// How far a command or a file operation reaches at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reach {
    /// Neither reading nor writing.
    Nothing,
    /// Reading and executing.
    Read,
    /// And writing.
    Write,
}

impl Reach {
    /// The one of two that counts for the same path.
    fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Nothing, _) | (_, Self::Nothing) => Self::Nothing,
            (one, other) => one.max(other),
        }
    }
}

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Policy {
    rules: BTreeMap<PathBuf, Reach>,
    /// The same by their paths in small letters.
    folded: BTreeMap<PathBuf, BTreeMap<PathBuf, Reach>>,
}

impl Policy {
    /// Adds a rule for a path and what is below it.
    pub(crate) fn add(&mut self, path: PathBuf, reach: Reach) {
        let folded = fold(&path);
        let reach =
            *self.rules.entry(path.clone()).and_modify(|known| *known = known.or(reach)).or_insert(reach);
        self.folded.entry(folded).or_default().insert(path, reach);
    }

    /// All rules, a directory before what is below it.
    pub(crate) fn rules(&self) -> impl Iterator<Item = (&Path, Reach)> {
        self.rules.iter().map(|(path, reach)| (path.as_path(), *reach))
    }

    /// Number of rules.
    pub(crate) fn len(&self) -> usize {
        self.rules.len()
    }

    /// What is allowed at a path.
    pub(crate) fn reach(&self, path: &Path) -> Reach {
        let longest =
            path.ancestors().find_map(|path| Some((path.as_os_str().len(), *self.rules.get(path)?)));
        let Some((length, reach)) = longest else { return Reach::Nothing };
        // Small letters are as long as capitals, so lengths can be compared.
        let folded = fold(path);
        let longer = folded.ancestors().take_while(|path| path.as_os_str().len() > length);
        let taken =
            longer.filter_map(|path| self.folded.get(path)).filter_map(least).find(|least| *least < reach);
        taken.unwrap_or(reach)
    }

    /// Whether something strictly below a path allows less than `reach`. Landlock cannot take away from what it has
    /// granted above, and a directory that moves would take what is below it out of its rules.
    pub(crate) fn narrows_below(&self, path: &Path, reach: Reach) -> bool {
        let folded = fold(path);
        let range = self.folded.range::<Path, _>((Bound::Excluded(folded.as_path()), Bound::Unbounded));
        let below = range.take_while(|(known, _)| known.starts_with(&folded));
        below.filter_map(|(_, rules)| least(rules)).any(|least| least < reach)
    }
}

fn least(rules: &BTreeMap<PathBuf, Reach>) -> Option<Reach> {
    rules.values().min().copied()
}

fn fold(path: &Path) -> PathBuf {
    OsString::from_vec(path.as_os_str().as_bytes().to_ascii_lowercase()).into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn policy(rules: &[(&str, Reach)]) -> Policy {
        let mut policy = Policy::default();
        for (path, reach) in rules {
            policy.add(path.into(), *reach);
        }
        policy
    }

    #[test]
    fn the_longest_path_counts() {
        let policy = policy(&[
            ("/", Reach::Read),
            ("/w", Reach::Write),
            ("/w/.git", Reach::Read),
            ("/w/.git/x", Reach::Write),
            ("/w/secret", Reach::Nothing),
        ]);
        for (path, reach) in [
            ("/", Reach::Read),
            ("/etc/passwd", Reach::Read),
            ("/w", Reach::Write),
            ("/w/src/main.rs", Reach::Write),
            ("/w/.git", Reach::Read),
            ("/w/.git/config", Reach::Read),
            ("/w/.git/x/y", Reach::Write),
            ("/w/.gitignore", Reach::Write),
            ("/w/secret/key", Reach::Nothing),
            ("/w/.GIT/config", Reach::Read),
            ("/W/.git", Reach::Read),
            ("/w/Secret", Reach::Nothing),
        ] {
            assert_eq!(policy.reach(Path::new(path)), reach, "{path}");
        }
        assert_eq!(Policy::default().reach(Path::new("/")), Reach::Nothing);
    }

    #[test]
    fn of_two_rules_for_a_path_the_stronger_counts() {
        let both = |one, other| policy(&[("/w", one), ("/w", other)]).reach(Path::new("/w"));
        assert_eq!(both(Reach::Read, Reach::Write), Reach::Write);
        assert_eq!(both(Reach::Write, Reach::Read), Reach::Write);
        assert_eq!(both(Reach::Write, Reach::Nothing), Reach::Nothing);
        assert_eq!(both(Reach::Nothing, Reach::Read), Reach::Nothing);
    }

    #[test]
    fn what_is_taken_away_below_is_seen_from_above() {
        let policy = policy(&[("/", Reach::Read), ("/w", Reach::Write), ("/w/a/.git", Reach::Read)]);
        let narrows = |path: &str, reach| policy.narrows_below(Path::new(path), reach);
        assert!(
            narrows("/w", Reach::Write) && narrows("/w/a", Reach::Write) && narrows("/w/A", Reach::Write)
        );
        assert!(!narrows("/w/a/.git", Reach::Write) && !narrows("/w/b", Reach::Write));
        assert!(!narrows("/", Reach::Read) && !narrows("/wa", Reach::Write));
    }

    fn any_path() -> impl Strategy<Value = PathBuf> {
        prop::collection::vec("[ab]", 0..4).prop_map(|names| {
            let mut path = PathBuf::from("/");
            path.extend(names);
            path
        })
    }

    proptest! {
        /// Against the definition, looked up rule by rule.
        #[test]
        fn reach_and_narrowing_are_as_defined(
            rules in prop::collection::vec((any_path(), 0usize..3), 0..8), path in any_path()
        ) {
            let reaches = [Reach::Nothing, Reach::Read, Reach::Write];
            let rules: Vec<_> = rules.into_iter().map(|(path, index)| (path, reaches[index])).collect();
            let mut policy = Policy::default();
            for (path, reach) in &rules {
                policy.add(path.clone(), *reach);
            }
            let length = rules.iter().filter(|(rule, _)| path.starts_with(rule)).map(|(rule, _)| rule.as_os_str().len()).max();
            let at_it = rules.iter().filter(|(rule, _)| path.starts_with(rule) && Some(rule.as_os_str().len()) == length);
            let mut model = None;
            for (_, reach) in at_it {
                model = Some(match (model, *reach) {
                    (Some(Reach::Nothing), _) | (_, Reach::Nothing) => Reach::Nothing,
                    (Some(Reach::Write), _) | (_, Reach::Write) => Reach::Write,
                    _ => Reach::Read,
                });
            }
            prop_assert_eq!(policy.reach(&path), model.unwrap_or(Reach::Nothing));
            let merged = |rule: &Path| policy.reach(rule);
            let narrows = rules.iter().any(|(rule, _)| rule != &path && rule.starts_with(&path) && merged(rule) < Reach::Write);
            prop_assert_eq!(policy.narrows_below(&path, Reach::Write), narrows);
        }
    }
}
