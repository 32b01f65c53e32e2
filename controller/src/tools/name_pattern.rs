//! Patterns of file names, as regular expressions for `grep -P` over the bytes of paths.
//!
//! Invariant: pure. A pattern without a slash is about names in every directory, one with a slash about the whole path
//! from where the search starts, as in `.gitignore` and with `rg --glob`.

use std::path::Path;

use globset::GlobBuilder;

/// The expression for one pattern; `root` is where the search starts.
///
/// # Errors
/// One line that says what is wrong with the pattern.
pub(super) fn expression(pattern: &str, root: &Path) -> Result<String, String> {
    let relative = match Path::new(pattern).strip_prefix(root) {
        Ok(rest) => rest.to_str().unwrap_or_default(),
        Err(_) if pattern.starts_with('/') => {
            return Err(format!(
                "{pattern:?} does not begin with {}: give the directory as path, and the pattern relative to it",
                root.display()
            ));
        }
        Err(_) => pattern.trim_start_matches("./"),
    };
    if relative.is_empty() {
        return Err("the pattern is empty".to_owned());
    }
    let anchored = if relative.contains('/') { relative.to_owned() } else { format!("**/{relative}") };
    let glob = GlobBuilder::new(&anchored)
        .literal_separator(true)
        .backslash_escape(true)
        .empty_alternates(true)
        .build()
        .map_err(|error| error.to_string())?;
    // The flag says that bytes are matched; with `grep` the locale says it.
    Ok(glob.regex().trim_start_matches("(?-u)").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pattern: &str) -> Result<String, String> {
        expression(pattern, Path::new("/p"))
    }

    #[test]
    fn a_slash_anchors_a_pattern() {
        assert_eq!(of("*.rs").unwrap(), of("**/*.rs").unwrap());
        assert_ne!(of("src/*.rs").unwrap(), of("**/src/*.rs").unwrap());
        assert_eq!(of("./src/*.rs").unwrap(), of("src/*.rs").unwrap());
        assert_eq!(of("/p/src/*.rs").unwrap(), of("src/*.rs").unwrap());
    }

    #[test]
    fn what_is_no_pattern_is_said() {
        for (pattern, what) in [("a[", "unclosed"), ("{a", "unclosed"), ("", "empty"), ("/q/*.rs", "/p")] {
            let error = of(pattern).unwrap_err();
            assert!(error.contains(what), "{pattern}: {error}");
        }
    }

    #[test]
    fn expressions_are_in_the_syntax_that_grep_knows() {
        for pattern in ["**/*.{js,ts,}", "a/**", "[!a-c]?.x", "\u{e9}*", "a\\*b"] {
            let expression = of(pattern).unwrap();
            assert!(expression.starts_with('^') && expression.ends_with('$'), "{pattern}: {expression}");
            assert!(!expression.contains("(?-"), "{pattern}: {expression}");
        }
    }
}
