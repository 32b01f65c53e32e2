//! `policy replay`: a recorded session, decided once more. Nothing runs.

use std::path::Path;
use std::rc::Rc;

use serde_json::{Value, json};

use super::super::{Context, print_json, print_lines, table};
use super::Scene;
use crate::audit::chain::Line;
use crate::audit::read::Lines;
use crate::config::Config;
use crate::failure::{Failure, Outcome};
use crate::gate::recorded;
use crate::policy::{Decision, Rules, refusal};

/// What became of a call then, and what would become of it now.
struct Difference {
    record: Value,
    now: Decision,
}

pub(super) fn run(
    context: &Context,
    config: &Config,
    session: &str,
    persona: Option<&str>,
    as_json: bool,
) -> Outcome<u8> {
    let records = records(&context.dirs()?.audit(), session)?;
    let started = records.iter().find(|record| record["event"] == "sessionStarted").ok_or_else(|| {
        Failure::usage(format_args!("no session {session} is recorded: see legion-controller audit query"))
    })?;
    let text = |name: &str| started[name].as_str().unwrap_or_default().to_owned();
    let persona = config.persona(Some(persona.unwrap_or(&text("persona"))))?;
    let workspace = text("workspace");
    let scene = match super::scene(context, persona, Some(Path::new(&workspace))) {
        Ok((scene, notes)) => {
            super::super::tell(&notes);
            scene
        }
        Err(failure) => {
            super::super::tell(&[format!(
                "without what the workspace adds to the rules: {}",
                failure.message
            )]);
            let rules = Rules { persona: Rc::clone(&persona.policy), workspace: None };
            Scene::new(persona, Path::new(&workspace), rules)
        }
    };
    let (mut decided, mut unknown, mut differences) = (0, 0, Vec::new());
    for record in records.into_iter().filter(is_decision) {
        let Some(action) = recorded::action(&record, scene.sight()) else {
            unknown += 1;
            continue;
        };
        decided += 1;
        let now = scene.rules.decide(&action);
        if record["decision"] != now.verdict.name() {
            differences.push(Difference { record, now });
        }
    }
    if as_json {
        return print_json(&differences.iter().map(to_json).collect::<Vec<_>>());
    }
    let mut lines: Vec<_> = differences.iter().map(|one| table::printable(&line(one))).collect();
    lines.push(format!(
        "{decided} calls, {} would be decided otherwise; {unknown} cannot be told (their records are redacted or cut)",
        differences.len()
    ));
    print_lines(&lines)
}

fn records(dir: &Path, session: &str) -> Outcome<Vec<Value>> {
    let failed = |error: std::io::Error| {
        Failure::unavailable(format_args!("cannot read the audit log in {}: {error}", dir.display()))
    };
    let mut lines = Lines::open(dir);
    let mut records = Vec::new();
    while lines.advance().map_err(failed)? {
        let Some(line) = lines.line().ok().and_then(|text| Line::parse(text).ok()) else { continue };
        let record: Value = serde_json::from_str(line.e.get()).unwrap_or_default();
        if record["session"] == session {
            records.push(record);
        }
    }
    Ok(records)
}

/// Whether a record says what the rules decided; what became of a question is what a person decided.
fn is_decision(record: &Value) -> bool {
    let reason = record["reason"].as_str().unwrap_or_default();
    let by_person = reason.starts_with("approved ") || reason.starts_with("Legion asked the user");
    record["event"] == "call" && record.get("object").is_some() && !by_person
}

fn line(difference: &Difference) -> String {
    let Difference { record, now } = difference;
    let object = &record["object"];
    let about = ["argv", "path", "url", "processId"].iter().find_map(|name| object.get(name));
    format!(
        "{} {} {}: was {}, would be {} ({})",
        record["seq"],
        record["method"].as_str().unwrap_or_default(),
        about.map_or_else(String::new, ToString::to_string),
        record["decision"].as_str().unwrap_or_default(),
        now.verdict.name(),
        refusal::because(now)
    )
}

fn to_json(difference: &Difference) -> Value {
    let Difference { record, now } = difference;
    json!({
        "seq": record["seq"],
        "method": record["method"],
        "object": record["object"],
        "was": record["decision"],
        "wasRule": record["rule"],
        "now": now.verdict.name(),
        "nowRule": now.rule(),
        "why": refusal::because(now),
    })
}
