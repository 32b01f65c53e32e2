//! Rules of this repository that the compiler does not hold: layout, layering, what may be used where, and what must
//! not be in a tracked file at all.
//!
//! Invariant: each rule says what to do when it is broken; none has a silent exception.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "this is a test")]

mod tree;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use tree::{File, assert_none, has_word, root, tracked};

/// Lines of a file that can be read in one go.
const MAX_LINES: usize = 400;

/// Packages that the program inside the sandbox is made of, its own included.
const MAX_EXEC_SERVER_PACKAGES: usize = 75;

/// Decisions and formats of the controller: functions of values.
const PURE: &[&str] = &[
    "controller/src/cli/opencode/config.rs",
    "controller/src/token.rs",
    "controller/src/gate.rs",
    "controller/src/gate/call.rs",
    "controller/src/gate/recorded.rs",
    "controller/src/policy/lint.rs",
    "controller/src/policy/mod.rs",
    "controller/src/policy/workspace.rs",
    "controller/src/policy/action.rs",
    "controller/src/policy/command.rs",
    "controller/src/policy/pattern.rs",
    "controller/src/policy/programs.rs",
    "controller/src/policy/refusal.rs",
    "controller/src/policy/rule.rs",
    "controller/src/policy/script.rs",
    "controller/src/policy/shell.rs",
    "controller/src/policy/unwrap.rs",
    "controller/src/audit/record.rs",
    "controller/src/audit/chain.rs",
    "controller/src/audit/mark.rs",
    "controller/src/audit/checkpoint.rs",
    "controller/src/audit/batch.rs",
    "controller/src/audit/query.rs",
    "controller/src/audit/ocsf.rs",
    "controller/src/redaction/mod.rs",
    "controller/src/redaction/forms.rs",
    "controller/src/redaction/tape.rs",
    "controller/src/cli/safe.rs",
    "controller/src/audit/redact.rs",
    "controller/src/sandbox/argv.rs",
    "controller/src/sandbox/run_as.rs",
    "controller/src/sandbox/seccomp.rs",
    "controller/src/tools/arguments.rs",
    "controller/src/tools/clip.rs",
    "controller/src/tools/lines.rs",
    "controller/src/tools/name_pattern.rs",
    "controller/src/tools/patch.rs",
    "controller/src/tools/replace.rs",
    "controller/src/tools/text.rs",
];

/// What a pure module does without.
const IMPURE: [&str; 5] = ["tokio", "std::fs", "std::net", "std::process", "std::env"];

/// Where the environment is read.
const READS_ENVIRONMENT: [&str; 6] = [
    "controller/src/main.rs",
    "exec-server/src/main.rs",
    "tests/src/settings.rs",
    "tests/src/bin/abuse-probe/main.rs",
    "tests/src/bin/bench.rs",
    "tests/tests/conformance/main.rs",
];

fn rust() -> Vec<File> {
    tracked().unwrap_or_default().into_iter().filter(File::is_rust).collect()
}

/// Rust files below a directory; there must be some, where there is a checkout.
fn below(directory: &str) -> Vec<File> {
    let files = rust();
    let all = files.is_empty();
    let found: Vec<_> = files.into_iter().filter(|file| file.path.starts_with(directory)).collect();
    assert!(all || !found.is_empty(), "nothing lies below {directory}");
    found
}

fn file(path: &str) -> Option<File> {
    let found = tracked()?.into_iter().find(|file| file.path == path);
    Some(found.unwrap_or_else(|| panic!("{path} is not tracked: correct its name here")))
}

#[test]
fn a_file_begins_by_saying_what_lives_there() {
    let silent = rust().into_iter().filter(|file| !file.text.starts_with("//! ")).map(|file| file.path);
    assert_none("open the file with `//!`: what lives here, and its invariant", silent);
}

#[test]
fn a_file_can_be_read_in_one_go() {
    let length = |file: &File| file.text.lines().count();
    let long = rust().into_iter().filter(|file| length(file) > MAX_LINES);
    let found = long.map(|file| format!("{}: {} lines", file.path, length(&file)));
    assert_none("split the file", found);
}

#[test]
fn unsafe_code_has_one_address() {
    let words =
        ["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern", "allow(unsafe_code", "expect(unsafe_code"];
    let found = rust().into_iter().filter(|file| file.name() != "sys.rs" && !file.path.contains("/tidy/"));
    assert_none("move it to sys.rs", found.flat_map(|file| file.uses(&words)));
    if let Some(lib) = file("protocol/src/lib.rs") {
        assert!(
            lib.code().any(|(_, line)| line == "#![forbid(unsafe_code)]"),
            "the protocol forbids unsafe code"
        );
    }
}

#[test]
fn the_protocol_is_types_and_framing() {
    let found = below("protocol/src/").into_iter().flat_map(|file| file.uses(&IMPURE));
    assert_none("the protocol does no I/O and knows nothing of tasks", found);
}

#[test]
fn decisions_and_formats_are_pure() {
    let found = PURE.iter().filter_map(|path| file(path)).flat_map(|file| file.uses(&IMPURE));
    assert_none("pass values in", found);
}

#[test]
fn the_environment_is_read_in_one_place_a_program() {
    let words = ["std::env"];
    let reads = rust().into_iter().filter(|file| !READS_ENVIRONMENT.contains(&file.path.as_str()));
    let reads = reads.filter(|file| !file.path.contains("/tidy/"));
    let found = reads.flat_map(|file| file.uses(&words)).filter(|line| !line.contains("std::env::consts"));
    assert_none("read it in main.rs and pass it in", found);
}

#[test]
fn secrets_and_cryptography_have_their_places() {
    let controller = below("controller/src/");
    let outside = |places: &[&str], words: &[&str]| -> Vec<String> {
        let elsewhere = controller
            .iter()
            .filter(|file| !places.iter().any(|place| file.path == format!("controller/src/{place}")));
        elsewhere.flat_map(|file| file.uses(words)).collect()
    };
    assert_none("`.env` is read in secret.rs", outside(&["secret.rs"], &["dotenvy::"]));
    let places = [
        "token.rs",
        "approvals/digest.rs",
        "audit/chain.rs",
        "audit/checkpoint.rs",
        "audit/keys.rs",
        "audit/recover.rs",
        "audit/redact.rs",
        "session/recording.rs",
        "tls.rs",
        "sandbox/launch.rs",
    ];
    assert_none(
        "ring is used for tokens, approvals, the log, TLS and randomness",
        outside(&places, &["ring::"]),
    );
}

#[test]
fn the_two_tiers_do_not_know_each_other() {
    let (Some(controller), Some(exec_server)) =
        (file("controller/Cargo.toml"), file("exec-server/Cargo.toml"))
    else {
        return;
    };
    assert!(
        !controller.text.contains("legion-exec-server.") && !exec_server.text.contains("legion-controller.")
    );
    for (directory, other) in
        [("controller/src/", "legion_exec_server"), ("exec-server/src/", "legion_controller")]
    {
        let found = below(directory).into_iter().flat_map(|file| file.uses(&[other]));
        assert_none("what both need belongs to the protocol", found);
    }
    // The tests drive binaries.
    let words = ["legion_protocol", "legion_exec_server", "legion_controller"];
    let found = below("tests/").into_iter().filter(|file| !file.path.contains("/tidy/"));
    assert_none("the tests drive binaries", found.flat_map(|file| file.uses(&words)));
}

#[test]
fn every_dependency_is_used() {
    let mut unused = Vec::new();
    for member in ["protocol", "exec-server", "controller", "tests"] {
        let Some(manifest) = file(&format!("{member}/Cargo.toml")) else { return };
        let sources = below(&format!("{member}/"));
        for name in dependencies(&manifest) {
            let word = format!("{}::", name.replace('-', "_"));
            let is_used = |file: &File| file.code().any(|(_, line)| has_word(line, &word));
            if !sources.iter().any(is_used) {
                unused.push(format!("{member}/Cargo.toml: {name}"));
            }
        }
    }
    assert_none("remove it from the manifest", unused);
}

/// The names in a manifest's `[dependencies]`.
fn dependencies(manifest: &File) -> Vec<&str> {
    let lines = manifest.text.lines().skip_while(|line| line.trim() != "[dependencies]").skip(1);
    let section = lines.take_while(|line| !line.starts_with('['));
    section.filter_map(|line| line.split(['.', ' ', '=']).next()).filter(|name| !name.is_empty()).collect()
}

#[test]
fn little_comes_into_the_sandbox() {
    if file("exec-server/Cargo.toml").is_none() {
        return;
    }
    let args = [
        "tree",
        "--locked",
        "--offline",
        "--package",
        "legion-exec-server",
        "--edges",
        "normal",
        "--prefix",
        "none",
    ];
    let output =
        Command::new("cargo").args(args).current_dir(root()).output().expect("cargo runs these tests");
    assert!(output.status.success(), "cargo tree: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let package = |line: &str| line.split(' ').take(2).collect::<Vec<_>>().join(" ");
    let packages: BTreeSet<String> = text.lines().filter(|line| !line.is_empty()).map(package).collect();
    assert!(packages.iter().any(|package| package.starts_with("tokio ")), "read wrongly: {text}");
    assert!(packages.len() <= MAX_EXEC_SERVER_PACKAGES, "{} packages: {packages:#?}", packages.len());
}

#[test]
fn there_is_one_library_for_cryptography() {
    let Some(lock) = file("Cargo.lock") else { return };
    assert!(lock.text.contains("\nname = \"ring\"\n"));
    for name in ["openssl", "openssl-sys", "aws-lc-rs", "aws-lc-sys", "native-tls", "mbedtls"] {
        assert!(!lock.text.contains(&format!("\nname = \"{name}\"\n")), "{name} is in the lock file");
    }
}

#[test]
fn nothing_is_left_for_later() {
    let words =
        [concat!("todo", "!"), concat!("unimplemented", "!"), concat!("#[igno", "re"), concat!("dbg", "!(")];
    assert_none("do it now", rust().iter().flat_map(|file| all_uses(file, &words)));
    let notes = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
    let files = tracked().unwrap_or_default();
    let found = files
        .iter()
        .filter(|file| file.name() != "Cargo.lock" && !file.has_extension("json"))
        .flat_map(|file| {
            let lines = file.text.lines().enumerate();
            lines
                .filter(|(_, line)| notes.iter().any(|note| has_word(line, note)))
                .map(|(index, line)| format!("{}:{}: {}", file.path, index + 1, line.trim()))
                .collect::<Vec<_>>()
        });
    assert_none("do it now, or file it", found);
}

/// As [`File::uses`], tests included.
fn all_uses(file: &File, words: &[&str]) -> Vec<String> {
    let lines = file.code().filter(|(_, line)| words.iter().any(|word| line.contains(word)));
    lines.map(|(number, line)| format!("{}:{number}: {}", file.path, line.trim())).collect()
}

#[test]
fn nothing_names_a_registry_or_this_machine() {
    let hosts = [
        concat!("crates", ".io"),
        concat!("npmjs", ".org"),
        concat!("npmjs", ".com"),
        concat!("pypi", ".org"),
        concat!("rust-lang", ".org"),
        concat!("rustup", ".rs"),
        concat!("debian", ".org"),
        concat!("docker", ".io"),
    ];
    let mut found = Vec::new();
    for file in tracked().unwrap_or_default() {
        for (index, line) in file.text.lines().enumerate() {
            // Cargo's own name for where packages come from.
            let registry = file.path != "Cargo.lock" && hosts.iter().any(|host| line.contains(host));
            if registry || machine_paths(line) {
                found.push(format!("{}:{}: {}", file.path, index + 1, line.trim()));
            }
        }
    }
    assert_none("say it without the host's name, or with a relative path", found);
}

/// Whether a line has a path below somebody's home or work directory. `/home/u` and `/home/x` are nobody, `legion` is the
/// only user inside.
fn machine_paths(line: &str) -> bool {
    const NOBODY: [&str; 3] = ["u", "x", "legion"];
    [concat!("/ro", "ot/"), concat!("/wo", "rk/"), concat!("/ho", "me/")].iter().any(|start| {
        line.match_indices(start).any(|(at, _)| {
            let before = line[..at].chars().next_back();
            // The end of a longer path, or of a placeholder.
            let is_part = before.is_some_and(|c| c.is_alphanumeric() || "}_-.~".contains(c));
            let rest = &line[at + start.len()..];
            let name: String =
                rest.chars().take_while(|c| c.is_alphanumeric() || "-_.".contains(*c)).collect();
            !(is_part || name.is_empty() || start.starts_with("/h") && NOBODY.contains(&name.as_str()))
        })
    })
}

#[test]
fn scripts_are_short_and_can_be_run() {
    for file in tracked().unwrap_or_default() {
        if file.path.starts_with("scripts/") || file.path == ".ci/run" {
            let mode = fs::metadata(root().join(&file.path)).unwrap().permissions().mode();
            assert_eq!(mode & 0o111, 0o111, "{} cannot be run", file.path);
            assert!(file.text.starts_with("#!/usr/bin/env bash\n#"), "{} says what it is for", file.path);
            assert!(file.text.contains("\nset -euo pipefail\n"), "{} stops at a failure", file.path);
            assert!(file.text.lines().count() <= 60, "{} is not short", file.path);
        }
    }
}

#[test]
fn every_program_that_the_readme_names_is_built() {
    let (Some(readme), Some(files)) = (file("README.md"), tracked()) else { return };
    let built: Vec<&File> = files.iter().filter(|file| file.name() == "Cargo.toml").collect();
    let bold = readme.text.split("**").skip(1).step_by(2).filter(|word| word.starts_with("legion-"));
    let names: Vec<_> = bold.collect();
    assert!(names.len() >= 2, "the two tiers are introduced: {names:?}");
    for name in names {
        let line = format!("name = \"{name}\"");
        assert!(
            built.iter().any(|file| file.text.lines().any(|found| found == line)),
            "nothing builds {name}"
        );
    }
}

#[test]
fn the_rules_notice_what_they_are_for() {
    assert!(has_word("use ring::digest;", "ring::") && !has_word("let string::x", "ring::"));
    assert!(has_word("std::fs::read", "std::fs") && !has_word("std::fsx", "std::fs"));
    let bad =
        [concat!("cd /wo", "rk/main"), concat!("\"/ho", "me/somebody/x\""), concat!("=/ro", "ot/.cargo")];
    for line in bad {
        assert!(machine_paths(line), "{line}");
    }
    for line in [
        "/proc/1/root/etc",
        "{scratch}/home/secret",
        "file:///home/x/a",
        "/home/legion",
        "/root:/bin",
        "~/work/a",
    ] {
        assert!(!machine_paths(line), "{line}");
    }
    let file =
        File { path: "a.rs".into(), text: "//! x\n// unsafe {\nunsafe {\n#[cfg(test)]\nunsafe {\n".into() };
    assert_eq!(file.uses(&["unsafe {"]), ["a.rs:3: unsafe {"]);
}
