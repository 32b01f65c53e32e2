//! `policy why|check|replay`: what the rules decide, whether they make sense, and what they would have decided. Nothing
//! runs.

mod check;
mod replay;

use std::path::{Path, PathBuf};
use std::rc::Rc;

use legion_protocol::{Method, PathUri};
use serde_json::json;

use super::{Context, print_json, print_lines, table};
use crate::config::{Config, Persona};
use crate::failure::{Failure, Outcome};
use crate::policy::action::{Http, Look, Op, Sight};
use crate::policy::command::{Part, Standing};
use crate::policy::{Action, Decision, Rules, What, refusal};
use crate::sandbox::workspace::Workspace;
use crate::session::{Outlook, read_workspace_rules};

#[derive(clap::Subcommand)]
pub(super) enum PolicyCommand {
    /// Say what would become of a call, and why
    Why(WhyArgs),
    /// Look for rules without effect and patterns that match nothing, and run the [[test]]s of the configuration
    Check {
        /// Directory that patterns are tried on
        #[arg(long, value_name = "DIR")]
        workspace: Option<PathBuf>,
    },
    /// Decide the calls of a recorded session once more, by the rules of now, and print what would differ
    Replay {
        /// Public id of the session
        session: String,
        /// Persona whose rules decide; the session's own unless given
        #[arg(long, value_name = "NAME")]
        persona: Option<String>,
        /// Print one JSON object a line
        #[arg(long)]
        json: bool,
    },
}

#[derive(clap::Args)]
pub(super) struct WhyArgs {
    /// Persona whose rules decide
    #[arg(long, value_name = "NAME")]
    persona: Option<String>,
    /// Workspace of the session
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
    /// Name of a variable that the client sets; may be repeated
    #[arg(long, value_name = "NAME")]
    env: Vec<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    asked: Asked,
}

#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct Asked {
    /// Reading a path
    #[arg(long, value_name = "PATH")]
    read: Option<String>,
    /// Writing a path
    #[arg(long, value_name = "PATH")]
    write: Option<String>,
    /// Removing a path and what lies below
    #[arg(long, value_name = "PATH")]
    remove: Option<String>,
    /// An HTTP request, e.g. `GET https://example.com/`
    #[arg(long, value_name = "REQUEST")]
    http: Option<String>,
    /// Any other call, by its method
    #[arg(long, value_name = "NAME")]
    method: Option<String>,
    /// A command and its arguments
    #[arg(trailing_var_arg = true, value_name = "CMD")]
    command: Vec<String>,
}

pub(super) fn run(context: &Context, command: PolicyCommand) -> Outcome<u8> {
    let config = Config::load(&context.environment, &context.overrides(Vec::new()))?;
    match command {
        PolicyCommand::Why(args) => why(context, &config, &args),
        PolicyCommand::Check { workspace } => check::run(context, &config, workspace.as_deref()),
        PolicyCommand::Replay { session, persona, json } => {
            replay::run(context, &config, &session, persona.as_deref(), json)
        }
    }
}

/// The rules of a session that does not exist, and how it would see its calls.
struct Scene {
    rules: Rules,
    outlook: Outlook,
}

impl Scene {
    fn new(persona: &Persona, workspace: &Path, rules: Rules) -> Self {
        Self { rules, outlook: Outlook::new(persona, workspace) }
    }

    fn sight(&self) -> Sight<'_> {
        let look = self.rules.look_at_files().then_some(&self.outlook as &dyn Look);
        Sight { places: self.outlook.places(), look }
    }

    fn decide(&self, method: Method, what: What) -> Decision {
        self.rules.decide(&Action { method: method.name(), what })
    }
}

/// The scene a session of this persona would have here.
fn scene(context: &Context, persona: &Persona, workspace: Option<&Path>) -> Outcome<(Scene, Vec<String>)> {
    let path = context.environment.resolve(workspace.unwrap_or(&persona.workspace));
    let workspace = Workspace::open(&path, context.environment.home(), &context.dirs()?)?;
    let narrowing = read_workspace_rules(&workspace, &persona.policy)?;
    let (policy, notes) =
        narrowing.map_or((None, Vec::new()), |narrowing| (Some(Rc::new(narrowing.policy)), narrowing.notes));
    let rules = Rules { persona: Rc::clone(&persona.policy), workspace: policy };
    Ok((Scene::new(persona, &workspace.path, rules), notes))
}

/// A path as a client may name it: absolute, or from the workspace.
fn path(scene: &Scene, text: &str) -> Outcome<PathBuf> {
    let base = scene.outlook.places().workspace.first().cloned().unwrap_or_default();
    let whole =
        if text.starts_with("file:") { text.to_owned() } else { base.join(text).display().to_string() };
    let parsed = PathUri::parse(&whole);
    parsed
        .map(PathUri::into_path)
        .map_err(|error| Failure::usage(format_args!("`{text}` is no path: {error}")))
}

fn http(text: &str) -> Outcome<Http> {
    let (method, url) = text.split_once(' ').ok_or_else(|| {
        Failure::usage(format_args!("`{text}` is no request: write \"GET https://example.com/\""))
    })?;
    Ok(Http::new(method, url, false))
}

fn asked(scene: &Scene, asked: &Asked, env: &[String]) -> Outcome<(Method, What)> {
    let sight = scene.sight();
    let touch = |method, op, text: &str, tree| {
        Ok((method, What::Files(vec![sight.touch(op, &path(scene, text)?, tree)])))
    };
    if let Some(text) = &asked.read {
        return touch(Method::FsReadFile, Op::Read, text, false);
    }
    if let Some(text) = &asked.write {
        return touch(Method::FsWriteFile, Op::Write, text, false);
    }
    if let Some(text) = &asked.remove {
        return touch(Method::FsRemove, Op::Remove, text, true);
    }
    if let Some(text) = &asked.http {
        return Ok((Method::HttpRequest, What::Http(http(text)?)));
    }
    if let Some(name) = &asked.method {
        let method = Method::from_name(name).ok_or_else(|| {
            Failure::usage(format_args!("there is no method {name}: unknown methods are always refused"))
        })?;
        return Ok((method, What::Other));
    }
    let cwd = scene.outlook.places().workspace.first().cloned().unwrap_or_default();
    Ok((Method::ProcessStart, sight.command(asked.command.clone(), None, &cwd, env.to_vec())))
}

fn why(context: &Context, config: &Config, args: &WhyArgs) -> Outcome<u8> {
    let persona = config.persona(args.persona.as_deref())?;
    let (scene, notes) = scene(context, persona, args.workspace.as_deref())?;
    super::tell(&notes);
    let (method, what) = asked(&scene, &args.asked, &args.env)?;
    let decision = scene.decide(method, what.clone());
    let (parts, opaque) = match &what {
        What::Command(command) => {
            let parts = command.reading.parts.iter().filter(|part| part.standing == Standing::Own);
            (parts.map(Part::text).collect(), command.reading.opaque.clone())
        }
        _ => (Vec::new(), Vec::new()),
    };
    if args.json {
        return print_json(&[json!({
            "verdict": decision.verdict.name(),
            "rule": decision.rule(),
            "why": refusal::because(&decision),
            "message": decision.message,
            "part": decision.part,
            "parts": parts,
            "opaque": opaque,
        })]);
    }
    let mut lines = vec![format!("{}: {}", decision.verdict.name(), refusal::because(&decision))];
    lines.extend(decision.message.iter().map(|message| format!("message: {message}")));
    lines.extend(decision.part.iter().map(|part| format!("decided by: {part}")));
    lines.extend(parts.iter().map(|part| format!("it runs: {part}")));
    lines.extend(opaque.iter().map(|why| format!("cannot be seen: {why}")));
    print_lines(&lines.iter().map(|line| table::printable(line)).collect::<Vec<_>>())
}
