//! `.env` and the secret values in it.
//!
//! Invariant: values are wiped on drop, never shown by `Debug`, and leave this module only by [`Secret::expose`].

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use secrecy::{ExposeSecret, SecretString};

use crate::failure::{Failure, Outcome};
use crate::limits::{MAX_CONFIG_BYTES, MAX_ENV_FILE_VARIABLES};

/// A value from `.env`.
#[derive(Debug, Clone)]
pub struct Secret(SecretString);

impl Secret {
    /// The value, for the one place that hands it to a sandbox or looks for it in a record.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

impl From<String> for Secret {
    fn from(value: String) -> Self {
        Self(value.into())
    }
}

/// The variables of `.env` by name.
pub type Secrets = BTreeMap<String, Secret>;

/// Reads `.env`. A missing file is empty unless it was asked for by name.
///
/// dotenvy expands `$NAME` in unquoted and double-quoted values; single quotes keep a dollar sign.
pub fn read_env_file(path: &Path, asked_for: bool) -> Outcome<Secrets> {
    let fail = |why: &dyn std::fmt::Display| {
        Failure::config(format_args!("cannot read the environment file {}: {why}", path.display()))
    };
    match std::fs::metadata(path) {
        Ok(meta) if !meta.is_file() => return Err(fail(&"it is not a regular file")),
        Ok(meta) if meta.len() > MAX_CONFIG_BYTES => {
            return Err(fail(&format_args!("it is larger than {MAX_CONFIG_BYTES} bytes")));
        }
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound && !asked_for => return Ok(Secrets::new()),
        Err(error) => return Err(fail(&error)),
    }
    let entries = dotenvy::from_path_iter(path).map_err(|error| fail(&describe(&error, None)))?;
    let mut secrets = Secrets::new();
    let mut last = None;
    for entry in entries {
        let (name, value) = entry.map_err(|error| fail(&describe(&error, last.as_deref())))?;
        secrets.insert(name.clone(), value.into());
        last = Some(name);
        if secrets.len() > MAX_ENV_FILE_VARIABLES {
            return Err(fail(&format_args!("it has more than {MAX_ENV_FILE_VARIABLES} variables")));
        }
    }
    Ok(secrets)
}

/// dotenvy's own text for a bad line contains the line, and so perhaps a secret: only the place is told.
fn describe(error: &dotenvy::Error, last: Option<&str>) -> String {
    match (error, last) {
        (dotenvy::Error::Io(error), _) => error.to_string(),
        (_, Some(name)) => format!("the line after the variable {name} is malformed: quote its value"),
        (_, None) => "its first line is malformed: write NAME='value'".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_and_never_shown() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(".env");
        std::fs::write(&path, "A=plain\nexport B=\"two words\"\n# c\nC='$A'\n").unwrap();
        let secrets = read_env_file(&path, true).unwrap();
        assert_eq!(secrets["B"].expose(), "two words");
        assert_eq!(secrets["C"].expose(), "$A");
        assert!(!format!("{secrets:?}").contains("plain"));
    }

    #[test]
    fn bad_files_are_named_without_their_content() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(".env");
        assert!(read_env_file(&path, false).unwrap().is_empty());
        assert!(read_env_file(&path, true).unwrap_err().message.contains("No such file"));
        std::fs::write(&path, "GOOD=1\nBAD=hunter2 and more\n").unwrap();
        let message = read_env_file(&path, true).unwrap_err().message;
        assert!(message.contains("after the variable GOOD") && !message.contains("hunter2"), "{message}");
        assert!(read_env_file(dir.path(), true).unwrap_err().message.contains("not a regular file"));
    }
}
