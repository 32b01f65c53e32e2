//! What the user has told OpenCode in files and variables, read as OpenCode would.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use jsonc_parser::ParseOptions;
use serde_json::{Map, Value};

use super::config::{each_text, merge, references};
use crate::environment::Environment;
use crate::failure::{Failure, Outcome};
use crate::limits::MAX_CONFIG_BYTES;

/// The user's files, in the order in which OpenCode reads them: later ones win.
const FILES: [&str; 3] = ["config.json", "opencode.json", "opencode.jsonc"];

/// Everything that is read of the user's.
pub(super) struct User {
    /// The merged configuration, `{file:…}` filled in.
    pub(super) config: Value,
    /// Variables that the configuration names, as far as they are set.
    pub(super) variables: BTreeMap<String, String>,
    /// The user's own instructions for every project.
    pub(super) instructions: Option<String>,
}

/// Reads them.
pub(super) fn read(environment: &Environment) -> Outcome<User> {
    let directory = base(environment, "XDG_CONFIG_HOME", ".config")?.join("opencode");
    let mut paths: Vec<PathBuf> = FILES.iter().map(|name| directory.join(name)).collect();
    paths.extend(environment.var("OPENCODE_CONFIG").map(|path| environment.resolve(Path::new(path))));
    let mut config = Value::Object(Map::new());
    for path in &paths {
        let Some(text) = read_text(path)? else { continue };
        let value: Option<Value> = jsonc_parser::parse_to_serde_value(&text, &ParseOptions::default())
            .map_err(|error| failed(path, &error))?;
        let Some(mut value) = value else { continue };
        fill_in(&mut value, path, environment)?;
        merge(&mut config, value);
    }
    let mut names = BTreeSet::new();
    each_text(&mut config, &mut |text| {
        names.extend(references(text, "env").iter().map(|(.., name)| (*name).to_owned()));
    });
    let variables = names.into_iter().filter_map(|name| {
        let value = environment.var(&name)?.to_owned();
        Some((name, value))
    });
    let instructions = read_text(&directory.join("AGENTS.md"))?;
    Ok(User { config, variables: variables.collect(), instructions })
}

/// A base directory of the user, by the rules of XDG.
pub(in crate::cli) fn base(environment: &Environment, variable: &str, below_home: &str) -> Outcome<PathBuf> {
    let explicit = environment.var(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    explicit
        .or_else(|| environment.home().map(|home| home.join(below_home)))
        .ok_or_else(|| Failure::config("no place for OpenCode's files: set HOME"))
}

/// Puts the content of files where `{file:PATH}` names them: OpenCode will not see those files.
fn fill_in(value: &mut Value, config: &Path, environment: &Environment) -> Outcome<()> {
    let mut outcome = Ok(());
    each_text(value, &mut |text| {
        let mut filled = String::new();
        let mut done = 0;
        for (start, end, name) in references(text, "file") {
            let path = if name.starts_with("~/") {
                environment.resolve(Path::new(name))
            } else {
                config.parent().unwrap_or(Path::new("/")).join(name)
            };
            let content = read_text(&path).and_then(|content| {
                content.ok_or_else(|| {
                    failed(config, &format_args!("it names {}, which does not exist", path.display()))
                })
            });
            match content {
                Ok(content) => {
                    filled.push_str(&text[done..start]);
                    filled.push_str(content.trim());
                    done = end;
                }
                Err(failure) => outcome = Err(failure),
            }
        }
        if done > 0 {
            filled.push_str(&text[done..]);
            *text = filled;
        }
    });
    outcome
}

/// A file's text; `None` when there is none.
fn read_text(path: &Path) -> Outcome<Option<String>> {
    match fs::metadata(path) {
        Ok(meta) if meta.len() > MAX_CONFIG_BYTES => {
            Err(failed(path, &format_args!("it is larger than {MAX_CONFIG_BYTES} bytes")))
        }
        Ok(_) => fs::read_to_string(path).map(Some).map_err(|error| failed(path, &error)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(path, &error)),
    }
}

fn failed(path: &Path, why: &dyn std::fmt::Display) -> Failure {
    Failure::config(format_args!("cannot read OpenCode's configuration {}: {why}", path.display()))
}
