//! The kinds of sandboxes, and making all attempts of a table in one.
//!
//! Invariant: every attempt is made in a process of its own in the real sandbox, started as users start it.

use std::panic::AssertUnwindSafe;

use legion_tests::audit::Audit;
use legion_tests::child::Child;
use legion_tests::legion;
use legion_tests::user::Identity;

use crate::probe::Probe;
use crate::scene::Scene;
use crate::table;

/// A kind of sandbox, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// No sandbox: shows that the attempts can succeed.
    Unconfined,
    /// Started by an ordinary user, view `minimal`.
    UserMinimal,
    /// Started by an ordinary user, view `host-ro`.
    UserHostRo,
    /// Started by root on root's own workspace, view `minimal`.
    RootMinimal,
    /// Started by root on root's own workspace, view `host-ro`.
    RootHostRo,
    /// `unix_sockets = false`
    NoUnixSockets,
    /// `debug = true`
    Debug,
    /// `network = "host"`
    HostNetwork,
}

/// What became of the attempts of one kind.
#[derive(Debug)]
pub(crate) struct Report {
    /// In the order of [`Kind::probes`]: the expected outcome with its values filled in, and the actual one.
    pub(crate) outcomes: Vec<(String, String)>,
    /// What is not as it must be afterwards.
    pub(crate) complaints: Vec<String>,
}

impl Kind {
    pub(crate) const ALL: [Self; 8] = [
        Self::Unconfined,
        Self::UserMinimal,
        Self::UserHostRo,
        Self::RootMinimal,
        Self::RootHostRo,
        Self::NoUnixSockets,
        Self::Debug,
        Self::HostNetwork,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Unconfined => "unconfined",
            Self::UserMinimal => "user_minimal",
            Self::UserHostRo => "user_host_ro",
            Self::RootMinimal => "root_minimal",
            Self::RootHostRo => "root_host_ro",
            Self::NoUnixSockets => "no_unix_sockets",
            Self::Debug => "debug",
            Self::HostNetwork => "host_network",
        }
    }

    const fn persona(self) -> &'static str {
        match self {
            Self::Unconfined | Self::UserMinimal | Self::RootMinimal => "minimal",
            Self::UserHostRo | Self::RootHostRo => "host-ro",
            Self::NoUnixSockets => "no-unix-sockets",
            Self::Debug => "debug",
            Self::HostNetwork => "host-network",
        }
    }

    const fn is_host_ro(self) -> bool {
        matches!(self, Self::UserHostRo | Self::RootHostRo)
    }

    /// Whether it is started by root.
    pub(crate) const fn is_root(self) -> bool {
        matches!(self, Self::RootMinimal | Self::RootHostRo)
    }

    /// Part and attempt, in the order they are made.
    pub(crate) fn probes(self) -> Vec<(&'static str, &'static Probe)> {
        let every =
            table::PARTS.iter().flat_map(|(part, probes)| probes.iter().map(move |probe| (*part, probe)));
        let only = |probes: &'static [Probe]| probes.iter().map(|probe| ("option", probe)).collect();
        match self {
            Self::Unconfined => every.filter(|(_, probe)| probe.expected_unconfined().is_some()).collect(),
            Self::NoUnixSockets => only(table::NO_UNIX_SOCKETS),
            Self::Debug => only(table::DEBUG),
            Self::HostNetwork => only(table::HOST_NETWORK),
            _ => every.chain(table::TERMINAL.iter().map(|probe| ("terminal", probe))).collect(),
        }
    }

    /// The expected outcome of an attempt and the reason why it is another than elsewhere.
    pub(crate) fn expected(self, probe: &Probe) -> (&'static str, Option<&'static str>) {
        match (self, probe.expected_unconfined()) {
            (Self::Unconfined, Some(expected)) => (expected, None),
            _ => probe.expected(self.is_host_ro()),
        }
    }

    /// Makes all attempts. A harness that fails is told as one text.
    pub(crate) fn report(self) -> Result<Report, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| format!("no runtime: {error}"))?;
        let run = AssertUnwindSafe(|| runtime.block_on(self.attempts()));
        std::panic::catch_unwind(run).map_err(|cause| {
            let text = cause.downcast_ref::<String>().cloned();
            text.or_else(|| cause.downcast_ref::<&str>().map(|text| (*text).to_owned()))
                .unwrap_or_else(|| "the harness failed".to_owned())
        })
    }

    async fn attempts(self) -> Report {
        let identity = if self.is_root() { Identity::Root } else { Identity::User };
        let home = (!self.is_host_ro()).then_some("/home/legion");
        let scene = Scene::new(identity, home).await;
        let probes = self.probes();
        let (terminal, plain): (Vec<_>, Vec<_>) = probes.iter().partition(|(part, _)| *part == "terminal");
        let mut outcomes = self.batch(&scene, &plain, false).await;
        if !terminal.is_empty() {
            outcomes.extend(self.batch(&scene, &terminal, true).await);
        }
        let expected = probes.iter().map(|(_, probe)| scene.fill_in(self.expected(probe).0));
        let outcomes = expected.zip(outcomes).collect();
        let complaints = match self {
            Self::UserMinimal | Self::UserHostRo | Self::RootMinimal | Self::RootHostRo => {
                Audit::verify(&scene.scratch).await;
                scene.complaints().await
            }
            _ => Vec::new(),
        };
        Report { outcomes, complaints }
    }

    /// Makes these attempts in one session, with or without a terminal.
    async fn batch(self, scene: &Scene, probes: &[(&str, &Probe)], terminal: bool) -> Vec<String> {
        let lines: Vec<_> = probes.iter().map(|(_, probe)| scene.fill_in(probe.attempt)).collect();
        let list = scene.scratch.write("workspace/attempts", lines.join("\n") + "\n").display().to_string();
        let (workspace, program) = (scene.scratch.workspace().display().to_string(), scene.probe());
        let mut command = if self == Self::Unconfined {
            scene.scratch.command(&program)
        } else {
            let mut command = legion::command(
                &scene.scratch,
                &["exec", "--persona", self.persona(), "--workspace", &workspace],
            );
            command.args(terminal.then_some("--tty")).args(["--", &program]);
            command
        };
        command.args(["batch", &list]);
        let finished = Child::spawn(self.name(), command).finish().await;
        let outcomes: Vec<_> = finished.stdout.lines().map(|line| line.trim_end().to_owned()).collect();
        assert_eq!(outcomes.len(), lines.len(), "not every attempt has an outcome: {finished:#?}");
        finished.assert_success();
        outcomes
    }
}
