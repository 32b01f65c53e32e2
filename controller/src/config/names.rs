//! Sets of variable names: `NAME` or `PREFIX_*`.

use crate::failure::{Failure, Outcome};

/// A list of names and prefixes.
#[derive(Debug, Clone, Default)]
pub struct NameSet(Vec<String>);

impl NameSet {
    /// Checks each item; a star may only end a prefix.
    pub fn build(items: Vec<String>, key: &str) -> Outcome<Self> {
        for item in &items {
            let name = item.strip_suffix('*').unwrap_or(item);
            if item.is_empty() || (!name.is_empty() && !is_variable_name(name)) {
                return Err(Failure::config(format_args!(
                    "`{item}` in {key} is no variable name: write NAME or PREFIX_*"
                )));
            }
        }
        Ok(Self(items))
    }

    /// Whether the set has this name.
    pub fn matches(&self, name: &str) -> bool {
        self.0
            .iter()
            .any(|item| item.strip_suffix('*').map_or(item == name, |prefix| name.starts_with(prefix)))
    }
}

/// A name every shell accepts.
pub fn is_variable_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_prefixes_match() {
        let set = NameSet::build(vec!["LANG".into(), "LC_*".into()], "inherit").unwrap();
        assert!(set.matches("LANG") && set.matches("LC_ALL") && set.matches("LC_"));
        assert!(!set.matches("LANGUAGE") && !set.matches("lang") && !set.matches("L"));
        assert!(NameSet::build(vec!["*".into()], "x").unwrap().matches("anything"));
        for bad in ["", "A*B", "1A", "A B", "**"] {
            assert!(NameSet::build(vec![bad.into()], "x").is_err(), "{bad}");
        }
    }
}
