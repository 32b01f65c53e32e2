//! The case files: their shape, and how a case is resolved for one target.
//!
//! Invariant: a file with an unknown member, a step without exactly one action, or an intended difference without a
//! reason does not load, so a typing error cannot turn a check into a no-op. README.md describes the format.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// The server a case talks to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target {
    /// `codex exec-server`, the reference.
    Original,
    /// `legion-exec-server`.
    Legion,
}

impl Target {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Original => "original",
            Self::Legion => "legion",
        }
    }
}

/// How the server of a group is started; servers are shared by all groups with the same profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Profile {
    /// No authentication, default flags.
    #[default]
    Plain,
    /// The original with `--concurrent-requests 16`; ours is always concurrent (SPEC 15.2).
    Concurrent,
    /// `--ws-auth capability-token --ws-token-file`.
    TokenFile,
    /// `--ws-auth capability-token --ws-token-sha256`.
    TokenSha256,
    /// `--ws-auth signed-bearer-token` with issuer and audience.
    Jwt,
    /// `--listen stdio`, one server for each case.
    Stdio,
    /// As `plain`, but a server for each case, which its steps may restart.
    Own,
    /// No shared server: the steps start processes themselves.
    None,
}

/// One file under `cases/`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Group {
    /// The section of SPEC.md that the group covers.
    pub(crate) spec: String,
    #[serde(default)]
    pub(crate) server: Profile,
    /// Why our server is never held to this group.
    pub(crate) original_only: Option<String>,
    pub(crate) cases: Vec<Case>,
}

/// One named sequence of steps.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Case {
    pub(crate) name: String,
    /// What is shown, where the name does not say it.
    #[serde(rename = "about")]
    _about: Option<String>,
    /// What exists in the scratch directory before the first step.
    #[serde(default)]
    pub(crate) files: Map<String, Value>,
    /// Whether connection `a` is opened and initialized before the first step.
    #[serde(default = "yes")]
    pub(crate) handshake: bool,
    /// Whether connection `a` is opened at all.
    #[serde(default = "yes")]
    pub(crate) connect: bool,
    steps: Vec<Map<String, Value>>,
    legion: Option<CaseDifference>,
    original_only: Option<String>,
}

/// Steps that replace those of the original for our server.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseDifference {
    reason: String,
    steps: Vec<Map<String, Value>>,
}

const fn yes() -> bool {
    true
}

/// A step as a case file wrote it, resolved for a target.
pub(crate) type Step = Map<String, Value>;

/// The members that state an expectation; a difference that names one of them replaces all of them.
const EXPECTATIONS: [&str; 3] = ["result", "error", "dropped"];

impl Case {
    /// Why this case is not run against our server, if it is not.
    pub(crate) fn original_only<'a>(&'a self, group: &'a Group) -> Option<&'a str> {
        self.original_only.as_deref().or(group.original_only.as_deref())
    }

    /// Whether anything is expected of our server that the original does not do.
    pub(crate) fn differs(&self) -> bool {
        self.legion.is_some() || self.steps.iter().any(|step| step.contains_key("legion"))
    }

    /// The steps as `target` has to answer them.
    pub(crate) fn steps(&self, target: Target) -> Vec<Step> {
        match (target, &self.legion) {
            (Target::Legion, Some(difference)) => difference.steps.clone(),
            _ => self.steps.iter().filter_map(|step| resolve(step, target)).collect(),
        }
    }

    fn check(&self) -> Result<(), String> {
        if let Some(difference) = &self.legion
            && difference.reason.is_empty()
        {
            return Err("\"legion\" without a reason".into());
        }
        for step in &self.steps {
            let Some(difference) = step.get("legion") else { continue };
            if difference.get("reason").and_then(Value::as_str).unwrap_or_default().is_empty() {
                return Err(format!("\"legion\" without a reason in {}", Value::Object(step.clone())));
            }
        }
        for target in [Target::Original, Target::Legion] {
            for step in self.steps(target) {
                crate::run::check_step(&step)?;
            }
        }
        Ok(())
    }
}

/// `None`: the step is not for `target`.
fn resolve(step: &Step, target: Target) -> Option<Step> {
    let mut step = step.clone();
    let difference = step.remove("legion");
    let (Target::Legion, Some(Value::Object(mut difference))) = (target, difference) else {
        return Some(step);
    };
    if difference.get("skip") == Some(&Value::Bool(true)) {
        return None;
    }
    difference.remove("reason");
    if EXPECTATIONS.iter().any(|name| difference.contains_key(*name)) {
        step.retain(|name, _| !EXPECTATIONS.contains(&name.as_str()));
    }
    step.extend(difference);
    Some(step)
}

/// Reads every file of `directory`; the key is the group name, the file's stem.
pub(crate) fn load(directory: &Path) -> Result<BTreeMap<String, Group>, String> {
    let mut groups = BTreeMap::new();
    let entries = std::fs::read_dir(directory).map_err(|e| format!("{}: {e}", directory.display()))?;
    for entry in entries {
        let path = entry.map_err(|e| e.to_string())?.path();
        let stem = path.file_stem().and_then(|s| s.to_str()).unwrap_or_default().to_owned();
        let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let group: Group = serde_json::from_str(&text).map_err(|e| format!("{stem}.json: {e}"))?;
        check_group(&stem, &group)?;
        groups.insert(stem, group);
    }
    Ok(groups)
}

fn check_group(stem: &str, group: &Group) -> Result<(), String> {
    let mut names = std::collections::BTreeSet::new();
    if group.spec.is_empty() {
        return Err(format!("{stem}.json: \"spec\" names a section"));
    }
    for case in &group.cases {
        case.check().map_err(|e| format!("{stem}::{}: {e}", case.name))?;
        if !names.insert(&case.name) {
            return Err(format!("{stem}::{} exists twice", case.name));
        }
    }
    Ok(())
}

/// Reads a step's members into the type of its action.
pub(crate) fn members<T: DeserializeOwned>(step: &Step) -> Result<T, String> {
    serde_json::from_value(Value::Object(step.clone()))
        .map_err(|e| format!("{e} in {}", Value::Object(step.clone())))
}
