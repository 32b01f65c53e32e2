//! The environment of a child, computed from the session's and the client's policy (SPEC 7.2). Pure.
//!
//! Invariant: the order of the six steps is the specification; `env` of the request is never filtered.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use legion_protocol::StringMap;
use legion_protocol::process::{EnvPolicy, Inherit};

/// Names and values; names need not be UTF-8 because the session's own may not be.
pub(crate) type Environment = BTreeMap<OsString, OsString>;

/// What `inherit: core` takes of the session's environment.
const CORE: [&str; 11] =
    ["HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "USER", "TMPDIR", "TEMP", "TMP"];

/// Dropped unless `ignoreDefaultExcludes`.
const DEFAULT_EXCLUDES: [&str; 3] = ["*KEY*", "*SECRET*", "*TOKEN*"];

/// The environment of a child. Without a policy it is `env` alone.
pub(crate) fn compute(base: &Environment, policy: Option<&EnvPolicy>, env: &StringMap) -> Environment {
    let mut result = policy.map(|policy| inherited(base, policy)).unwrap_or_default();
    extend(&mut result, env);
    result
}

fn inherited(base: &Environment, policy: &EnvPolicy) -> Environment {
    let excluded = |name: &str| {
        (!policy.ignore_default_excludes && DEFAULT_EXCLUDES.iter().any(|pattern| matches(pattern, name)))
            || policy.exclude.iter().any(|pattern| matches(pattern, name))
    };
    let starts = |name: &OsStr| match policy.inherit {
        Inherit::All => true,
        Inherit::Core => CORE.iter().any(|core| name == *core),
        Inherit::None => false,
    };
    let mut result: Environment = base
        .iter()
        .filter(|(name, _)| starts(name) && !excluded(&name.to_string_lossy()))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    extend(&mut result, &policy.set);
    if !policy.include_only.is_empty() {
        result.retain(|name, _| {
            let name = name.to_string_lossy();
            policy.include_only.iter().any(|pattern| matches(pattern, &name))
        });
    }
    result
}

fn extend(environment: &mut Environment, additions: &StringMap) {
    environment.extend(additions.0.iter().map(|(name, value)| (name.into(), value.into())));
}

/// Whether `pattern` (`*` any run, `?` any one character, the rest in any case) covers the whole of `name`.
///
/// Runs in O(pattern × name): on a mismatch only the last `*` takes one character more.
fn matches(pattern: &str, name: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().flat_map(char::to_lowercase).collect();
    let name: Vec<char> = name.chars().flat_map(char::to_lowercase).collect();
    let (mut at, mut of) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while of < name.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, of));
                at += 1;
            }
            Some(&expected) if expected == '?' || expected == name[of] => {
                at += 1;
                of += 1;
            }
            _ => {
                let Some((star_at, star_of)) = star else { return false };
                star = Some((star_at, star_of + 1));
                at = star_at + 1;
                of = star_of + 1;
            }
        }
    }
    pattern[at..].iter().all(|rest| *rest == '*')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn map(pairs: &[(&str, &str)]) -> StringMap {
        StringMap(pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect())
    }

    fn base(pairs: &[(&str, &str)]) -> Environment {
        pairs.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))).collect()
    }

    fn policy(inherit: Inherit) -> EnvPolicy {
        EnvPolicy {
            inherit,
            ignore_default_excludes: true,
            exclude: Vec::new(),
            set: StringMap::default(),
            include_only: Vec::new(),
        }
    }

    #[test]
    fn without_a_policy_only_env_remains() {
        assert_eq!(compute(&base(&[("A", "1")]), None, &map(&[("B", "2")])), base(&[("B", "2")]));
    }

    #[test]
    fn core_takes_the_named_ones_only() {
        let session = base(&[("PATH", "/bin"), ("HOME", "/h"), ("PWD", "/"), ("TERM", "x")]);
        let result = compute(&session, Some(&policy(Inherit::Core)), &StringMap::default());
        assert_eq!(result, base(&[("PATH", "/bin"), ("HOME", "/h")]));
    }

    #[test]
    fn default_excludes_look_for_words_in_any_case() {
        let session =
            base(&[("monkey", "1"), ("KEYBOARD", "1"), ("My_Secret_1", "1"), ("aToken", "1"), ("A", "1")]);
        let strict = EnvPolicy { ignore_default_excludes: false, ..policy(Inherit::All) };
        assert_eq!(compute(&session, Some(&strict), &StringMap::default()), base(&[("A", "1")]));
    }

    #[test]
    fn set_survives_exclude_but_not_include_only() {
        let chosen = EnvPolicy {
            exclude: vec!["A*".into()],
            set: map(&[("AX", "set"), ("B", "set")]),
            include_only: vec!["a?".into()],
            ..policy(Inherit::All)
        };
        let result = compute(&base(&[("AB", "base")]), Some(&chosen), &map(&[("C", "env")]));
        assert_eq!(result, base(&[("AX", "set"), ("C", "env")]));
    }

    /// Wildcards by definition: split at the first pattern character, try every way.
    fn model_matches(pattern: &[char], name: &[char]) -> bool {
        match pattern.split_first() {
            None => name.is_empty(),
            Some(('*', rest)) => (0..=name.len()).any(|taken| model_matches(rest, &name[taken..])),
            Some(('?', rest)) => !name.is_empty() && model_matches(rest, &name[1..]),
            Some((first, rest)) => {
                name.first().is_some_and(|c| c.eq_ignore_ascii_case(first)) && model_matches(rest, &name[1..])
            }
        }
    }

    /// SPEC 7.2 in the words of SPEC 7.2: what happens to one name.
    fn model_value<'a>(
        name: &str,
        base: &'a StringMap,
        policy: Option<&'a EnvPolicy>,
        env: &'a StringMap,
    ) -> Option<&'a str> {
        let fits = |patterns: &[String]| {
            let name: Vec<char> = name.chars().collect();
            patterns.iter().any(|pattern| model_matches(&pattern.chars().collect::<Vec<_>>(), &name))
        };
        if let Some(value) = env.0.get(name) {
            return Some(value);
        }
        let policy = policy?;
        if !policy.include_only.is_empty() && !fits(&policy.include_only) {
            return None;
        }
        if let Some(value) = policy.set.0.get(name) {
            return Some(value);
        }
        let upper = name.to_uppercase();
        let dropped = fits(&policy.exclude)
            || (!policy.ignore_default_excludes
                && ["KEY", "SECRET", "TOKEN"].iter().any(|word| upper.contains(word)));
        let starts = match policy.inherit {
            Inherit::All => true,
            Inherit::Core => CORE.contains(&name),
            Inherit::None => false,
        };
        if starts && !dropped { base.0.get(name).map(String::as_str) } else { None }
    }

    fn any_name() -> impl Strategy<Value = String> {
        prop_oneof![
            "[AaBb]{1,4}",
            "[A-Ca-c]?(KEY|Token|sEcReT)[AB]?",
            Just("PATH".to_owned()),
            Just("HOME".to_owned())
        ]
    }

    fn any_map() -> impl Strategy<Value = StringMap> {
        prop::collection::btree_map(any_name(), "[a-z]{0,3}", 0..6).prop_map(StringMap)
    }

    fn any_policy() -> impl Strategy<Value = EnvPolicy> {
        let patterns = || prop::collection::vec("[AaBb*?]{0,4}", 0..3);
        let inherit = prop_oneof![Just(Inherit::All), Just(Inherit::Core), Just(Inherit::None)];
        (inherit, any::<bool>(), patterns(), any_map(), patterns()).prop_map(
            |(inherit, ignore_default_excludes, exclude, set, include_only)| EnvPolicy {
                inherit,
                ignore_default_excludes,
                exclude,
                set,
                include_only,
            },
        )
    }

    proptest! {
        #[test]
        fn patterns_match_as_defined(pattern in "[ab*?]{0,8}", name in "[abAB]{0,8}") {
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            prop_assert_eq!(matches(&pattern, &name), model_matches(&chars(&pattern), &chars(&name)));
        }

        #[test]
        fn every_name_gets_the_value_of_the_model(
            session in any_map(), policy in prop::option::of(any_policy()), env in any_map()
        ) {
            let mut start = Environment::new();
            extend(&mut start, &session);
            let result = compute(&start, policy.as_ref(), &env);
            let set = policy.iter().flat_map(|policy| policy.set.0.keys());
            for name in session.0.keys().chain(env.0.keys()).chain(set) {
                let expected = model_value(name, &session, policy.as_ref(), &env);
                prop_assert_eq!(result.get(OsStr::new(name)).and_then(|value| value.to_str()), expected, "{}", name);
            }
            for name in result.keys() {
                let name = name.to_str().unwrap();
                prop_assert!(model_value(name, &session, policy.as_ref(), &env).is_some());
            }
        }
    }
}
