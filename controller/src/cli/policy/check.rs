//! `policy check`: lint and the tests of the configuration.

use std::path::{Path, PathBuf};

use legion_protocol::Method;

use super::super::{Context, print_lines, table};
use super::{Scene, http, path};
use crate::config::{Config, Persona, RuleTest};
use crate::failure::{Failure, Outcome};
use crate::limits::MAX_CHECKED_PATHS;
use crate::policy::action::{Look, Op, Places};
use crate::policy::pattern::PathPattern;
use crate::policy::{Rules, What, lint};

pub(super) fn run(context: &Context, config: &Config, workspace: Option<&Path>) -> Outcome<u8> {
    let mut lines = Vec::new();
    for persona in config.personas.values() {
        let path = context.environment.resolve(workspace.unwrap_or(&persona.workspace));
        let mut findings = lint::findings(&persona.policy);
        findings.extend(unmatched(persona, &path));
        lines.extend(findings.into_iter().map(|line| format!("persona {}: {line}", persona.name)));
    }
    let mut failed = 0;
    for (index, test) in config.tests.iter().enumerate() {
        let persona = config.persona(test.persona.as_deref())?;
        let place = context.environment.resolve(workspace.unwrap_or(&persona.workspace));
        if let Err(why) = try_out(test, persona, &place) {
            failed += 1;
            lines.push(format!("test {}: {}", index + 1, why.message));
        }
    }
    lines.push(format!("{} tests, {failed} failed", config.tests.len()));
    print_lines(&lines.iter().map(|line| table::printable(line)).collect::<Vec<_>>())?;
    if failed > 0 {
        return Err(Failure::config(format_args!("{failed} of the configuration's tests do not hold")));
    }
    Ok(0)
}

fn try_out(test: &RuleTest, persona: &Persona, workspace: &Path) -> Outcome<()> {
    let rules = Rules { persona: persona.policy.clone(), workspace: None };
    let scene = Scene::new(persona, workspace, rules);
    let sight = scene.sight();
    let op = test.op.unwrap_or(Op::Read);
    let (what, method, shown) = if let Some(command) = &test.command {
        let cwd = path(&scene, test.cwd.as_deref().unwrap_or("."))?;
        let what = sight.command(command.clone(), None, &cwd, test.env.clone());
        (what, Method::ProcessStart, command.join(" "))
    } else if let Some(file) = &test.path {
        let method = match op {
            Op::Read => Method::FsReadFile,
            Op::Write => Method::FsWriteFile,
            Op::Remove => Method::FsRemove,
            Op::CopySource | Op::CopyDestination => Method::FsCopy,
        };
        (What::Files(vec![sight.touch(op, &path(&scene, file)?, false)]), method, file.clone())
    } else if let Some(request) = &test.http {
        (What::Http(http(request)?), Method::HttpRequest, request.clone())
    } else {
        return Err(Failure::config("it has no command, path or http"));
    };
    let decision = scene.decide(method, what);
    let told = crate::policy::refusal::because(&decision);
    if decision.verdict != test.expect {
        return Err(Failure::config(format_args!(
            "`{shown}` is {}, not {}: {told}",
            decision.verdict.name(),
            test.expect.name()
        )));
    }
    match &test.rule {
        Some(rule) if decision.rule() != Some(rule) => {
            Err(Failure::config(format_args!("`{shown}` is decided, but not by rule {rule}: {told}")))
        }
        _ => Ok(()),
    }
}

/// Patterns that match nothing that is there now: likely misspelt.
fn unmatched(persona: &Persona, workspace: &Path) -> Vec<String> {
    let mut patterns: Vec<_> = lint::patterns(&persona.policy).collect();
    if patterns.is_empty() {
        return Vec::new();
    }
    let scene = Scene::new(persona, workspace, Rules::default());
    let places = scene.outlook.places();
    let inside = places.workspace.first().cloned().unwrap_or_default();
    let mut found = vec![inside.clone()];
    list(workspace, &inside, &mut found);
    if found.len() >= MAX_CHECKED_PATHS {
        return vec![format!("patterns were not tried: {} is too large", workspace.display())];
    }
    patterns.retain(|(_, _, pattern)| !is_there(pattern, &found, places, &scene));
    let line = |(rule, key, pattern): &(&crate::policy::Rule, &str, &PathPattern)| {
        format!("rule {}: {key} `{}` matches nothing that is there now", rule.id, pattern.text())
    };
    patterns.iter().map(line).collect()
}

fn is_there(pattern: &PathPattern, found: &[PathBuf], places: &Places, scene: &Scene) -> bool {
    let is_match = |path: &PathBuf| pattern.matches(&places.names(path));
    if found.iter().any(is_match) {
        return true;
    }
    // Outside the workspace only what is named can be looked at.
    !pattern.is_relative() && scene.outlook.resolve(pattern.base(), true).is_some_and(|path| path.exists())
}

/// All paths below, under the name they have inside.
fn list(directory: &Path, inside: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        if found.len() >= MAX_CHECKED_PATHS {
            return;
        }
        let path = inside.join(entry.file_name());
        found.push(path.clone());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            list(&entry.path(), &path, found);
        }
    }
}
