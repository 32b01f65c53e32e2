//! Conformance of `legion-exec-server` with the `codex exec-server` protocol: the same cases against both.
//!
//! Invariant: the expectations in `cases/` are what the original does; where ours differs on purpose the case says
//! so and why, and nothing is skipped without being counted.

mod actions;
mod case;
mod conn;
mod jwt;
mod matcher;
mod process;
mod run;
mod scratch;
mod server;
mod step;
mod user;
mod vars;
mod web;
mod wire;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;

use libtest_mimic::{Arguments, Failed, Trial};

use crate::case::{Group, Target};
use crate::scratch::Scratch;
use crate::server::{Servers, Settings};
use crate::user::User;

/// The release the expectations were observed on.
const ORIGINAL_VERSION: &str = "0.171.0";
/// Cases spend their time waiting for processes, so more of them run at once than there are processors.
const THREADS: usize = 6;

/// What the environment says.
struct Environment {
    codex_bin: Option<PathBuf>,
    legion_bin_dir: Option<PathBuf>,
    user: String,
    record: Option<PathBuf>,
    cases: Option<PathBuf>,
}

#[expect(
    clippy::disallowed_methods,
    reason = "this is the one place of the suite that reads the environment"
)]
fn environment() -> Environment {
    let path = |name: &str| std::env::var_os(name).map(PathBuf::from);
    Environment {
        codex_bin: path("LEGION_CODEX_BIN"),
        legion_bin_dir: path("LEGION_BIN_DIR"),
        user: std::env::var("LEGION_TEST_USER").unwrap_or_else(|_| "legion-test".into()),
        record: path("LEGION_CONFORMANCE_RECORD"),
        cases: path("LEGION_CONFORMANCE_CASES"),
    }
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(THREADS);
    match suite(&arguments) {
        Ok(code) => code,
        Err(e) => {
            eprintln!("conformance: {e}");
            ExitCode::FAILURE
        }
    }
}

fn suite(arguments: &Arguments) -> Result<ExitCode, String> {
    // New files of the servers under test get the same permissions everywhere.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    let environment = environment();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let cases = environment.cases.clone().unwrap_or_else(|| here.join("tests/conformance/cases"));
    let groups = case::load(&cases)?;
    let base = tempfile::Builder::new().prefix("legion-conformance-").tempdir().map_err(|e| e.to_string())?;
    let mode = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o755);
    std::fs::set_permissions(base.path(), mode).map_err(|e| e.to_string())?;
    let user = User::to_drop_to(&environment.user)?;
    let (programs, missing) = programs(&environment, here, base.path());
    let settings = Settings { base: base.path().to_owned(), user, programs };
    let servers = Arc::new(Servers::new(settings));
    let web = web::start()?;

    let trials = trials(groups, &missing, &servers, web, environment.record.as_ref())?;
    let conclusion = libtest_mimic::run(arguments, trials);
    let complaints = servers.stop();
    for complaint in &complaints {
        eprintln!("conformance: {complaint}");
    }
    Ok(if complaints.is_empty() { conclusion.exit_code() } else { ExitCode::FAILURE })
}

/// The programs that were found, and for each of the others why not.
fn programs(
    environment: &Environment,
    here: &Path,
    base: &Path,
) -> (BTreeMap<Target, PathBuf>, BTreeMap<Target, String>) {
    let mut found = BTreeMap::new();
    let mut missing = BTreeMap::new();
    for (target, program) in
        [(Target::Original, original(environment, here, base)), (Target::Legion, legion(environment, base))]
    {
        match program {
            Ok(path) => drop(found.insert(target, path)),
            Err(e) => drop(missing.insert(target, e)),
        }
    }
    (found, missing)
}

fn original(environment: &Environment, here: &Path, base: &Path) -> Result<PathBuf, String> {
    // The platform package itself, or the wrapper package with the platform package next to it.
    let packages = ["codex", "codex-linux-x64"];
    let mut candidates: Vec<PathBuf> = environment.codex_bin.iter().cloned().collect();
    if candidates.is_empty() {
        let scope = here.join("clients/node_modules/@openai");
        candidates =
            packages.map(|p| scope.join(p).join("vendor/x86_64-unknown-linux-musl/bin/codex")).into();
    }
    let Some(program) = candidates.iter().find(|path| path.is_file()) else {
        return Err(format!(
            "none of {candidates:?} exists; run npm ci in tests/clients or set LEGION_CODEX_BIN"
        ));
    };
    // Whatever it is asked, it links its helpers into its home.
    let output = Command::new(program)
        .arg("--version")
        .env_clear()
        .env("CODEX_HOME", base.join("version"))
        .env("TMPDIR", base)
        .output()
        .map_err(|e| e.to_string())?;
    let version = String::from_utf8_lossy(&output.stdout);
    if version.trim().rsplit(' ').next() != Some(ORIGINAL_VERSION) {
        return Err(format!(
            "{} is {version}, the cases were observed on {ORIGINAL_VERSION}",
            program.display()
        ));
    }
    // The program looks for its helpers one directory up.
    user::reachable(program, 2, base)
}

fn legion(environment: &Environment, base: &Path) -> Result<PathBuf, String> {
    let beside = || {
        let own = std::env::current_exe().map_err(|e| e.to_string())?;
        own.ancestors()
            .nth(2)
            .map(Path::to_owned)
            .ok_or("the test program has no target directory".to_owned())
    };
    let dir = environment.legion_bin_dir.clone().map_or_else(beside, Ok)?;
    let program = dir.join("legion-exec-server");
    if !program.is_file() {
        let path = program.display();
        return Err(format!("{path} does not exist; build legion-exec-server or set LEGION_BIN_DIR"));
    }
    user::reachable(&program, 0, base)
}

/// A trial for every case and target; a target whose program is missing becomes one failing trial.
fn trials(
    groups: BTreeMap<String, Group>,
    missing: &BTreeMap<Target, String>,
    servers: &Arc<Servers>,
    web: SocketAddr,
    record: Option<&PathBuf>,
) -> Result<Vec<Trial>, String> {
    let mut trials = Vec::new();
    for (target, why) in missing {
        let why = why.clone();
        trials.push(Trial::test(format!("{}::available", target.name()), move || Err(Failed::from(why))));
    }
    let mut held_back: BTreeMap<String, usize> = BTreeMap::new();
    let (mut cases, mut different) = (0, 0);
    for (name, group) in groups {
        let group = Arc::new(group);
        for index in 0..group.cases.len() {
            let case = &group.cases[index];
            cases += 1;
            different += usize::from(case.differs());
            let original_only = case.original_only(&group);
            if let Some(why) = original_only {
                *held_back.entry(format!("original only: {why}")).or_default() += 1;
            }
            for target in [Target::Original, Target::Legion] {
                let skip =
                    missing.contains_key(&target) || (target == Target::Legion && original_only.is_some());
                if !skip {
                    trials.push(trial(target, &name, &group, index, servers, web, record)?);
                }
            }
        }
    }
    eprintln!("conformance: {cases} cases, {different} with a stated difference of ours");
    for (why, count) in held_back {
        eprintln!("conformance: {count} cases not run against legion, {why}");
    }
    Ok(trials)
}

fn trial(
    target: Target,
    name: &str,
    group: &Arc<Group>,
    index: usize,
    servers: &Arc<Servers>,
    web: SocketAddr,
    record: Option<&PathBuf>,
) -> Result<Trial, String> {
    let case_name = &group.cases[index].name;
    let scratch = servers.settings.base.join(format!("{}-{name}-{case_name}", target.name()));
    let record = match record {
        Some(dir) => {
            let dir = dir.join(target.name());
            std::fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
            Some(dir.join(format!("{name}-{case_name}.txt")))
        }
        None => None,
    };
    let (group, servers) = (Arc::clone(group), Arc::clone(servers));
    let full_name = format!("{}::{name}::{case_name}", target.name());
    Ok(Trial::test(full_name, move || {
        let scratch = Scratch::new(scratch, servers.settings.user.clone())?;
        let case = &group.cases[index];
        run::run(&servers, target, group.server, case, web, scratch, record.as_deref())
            .map_err(|e| Failed::from(format!("SPEC {}: {e}", group.spec)))
    }))
}
