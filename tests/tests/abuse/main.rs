//! The abuse suite (security.md section 8): everything code inside a sandbox might try, in every kind of sandbox there is,
//! each with the outcome it must have.
//!
//! Invariant: the same attempts run everywhere; where an outcome differs the table says why, and nothing is left out
//! without being counted.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "this is a test")]

mod kind;
mod probe;
mod scene;
mod table;

use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

use legion_tests::user::Identity;
use libtest_mimic::{Arguments, Failed, Trial};

use crate::kind::{Kind, Report};

/// All attempts of one kind, made when the first of them is asked for.
type Reports = Arc<OnceLock<Result<Report, String>>>;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let root = Identity::root().is_some();
    let (kinds, left_out): (Vec<Kind>, Vec<Kind>) =
        Kind::ALL.into_iter().partition(|kind| root || !kind.is_root());
    let everywhere = Kind::UserMinimal.probes();
    let differing = everywhere.iter().filter(|(_, probe)| probe.differs()).count();
    let trials: Vec<Trial> = kinds.into_iter().flat_map(trials).collect();
    eprintln!(
        "abuse: {} attempts in every sandbox, {differing} with a stated difference; {} tests in all kinds",
        everywhere.len(),
        trials.len()
    );
    for kind in left_out {
        eprintln!("abuse: {} not run: the tests do not run as root", kind.name());
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn trials(kind: Kind) -> Vec<Trial> {
    let reports = Reports::default();
    let mut trials = Vec::new();
    for (index, (part, probe)) in kind.probes().into_iter().enumerate() {
        let reports = Arc::clone(&reports);
        let name = format!("{}::{part}::{}", kind.name(), probe.attempt);
        let because = kind.expected(probe).1;
        trials.push(Trial::test(name, move || {
            let (expected, outcome) = &report(kind, &reports)?.outcomes[index];
            if expected.split('|').any(|expected| expected == outcome) {
                return Ok(());
            }
            let because = because.map(|because| format!(", because {because}")).unwrap_or_default();
            Err(Failed::from(format!("must give {expected}{because}; gave {outcome}")))
        }));
    }
    trials.push(Trial::test(format!("{}::afterwards", kind.name()), move || {
        match &report(kind, &reports)?.complaints[..] {
            [] => Ok(()),
            complaints => Err(Failed::from(complaints.join("; "))),
        }
    }));
    trials
}

fn report(kind: Kind, reports: &Reports) -> Result<&Report, Failed> {
    reports.get_or_init(|| kind.report()).as_ref().map_err(Failed::from)
}
