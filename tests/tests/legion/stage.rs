//! One scene of the Codex scenarios: an execution environment, a scripted model, the real client, canaries.
//!
//! Invariant: the same script runs at every [`Place`]; what differs is only how the environment is reached.

use std::net::SocketAddr;
use std::path::Path;

use legion_tests::audit::Audit;
use legion_tests::codex::{Codex, Reach};
use legion_tests::legion::{self, Controller};
use legion_tests::mock_model::{MockModel, Script};
use legion_tests::original::Original;
use legion_tests::scratch::Scratch;

use crate::canaries::Canaries;
use crate::logged::assert_logged;
use crate::played::Played;

/// Where the commands run, and how Codex gets there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// The original server as a program: proves the test itself.
    OriginalStdio,
    /// The original server behind a URL and a token: proves the test itself.
    OriginalUrl,
    /// `legion-controller connect` as a program.
    LegionConnect,
    /// `legion-controller start` behind a URL and a token.
    LegionUrl,
}

/// What serves the environment. It ends when dropped.
enum Server {
    /// Codex starts the original server.
    OriginalProgram,
    Original(#[expect(dead_code, reason = "kept running")] Box<Original>),
    /// Codex starts `legion-controller connect`.
    Connect,
    Controller(Box<Controller>),
}

/// The set-up of one test.
pub(crate) struct Stage {
    pub(crate) scratch: Scratch,
    pub(crate) canaries: Canaries,
    reach: Reach,
    server: Server,
}

impl Stage {
    pub(crate) async fn at(place: Place) -> Self {
        let scratch = Scratch::new();
        match place {
            Place::OriginalStdio => {
                let reach = Original::as_program(&scratch);
                Self::new(scratch, reach, Server::OriginalProgram)
            }
            Place::OriginalUrl => {
                let server = Original::start(&scratch).await;
                Self::original(scratch, server.reach(), server)
            }
            Place::LegionConnect => {
                let reach = legion::connect(&scratch);
                Self::new(scratch, reach, Server::Connect)
            }
            Place::LegionUrl => {
                let controller = Controller::start(&scratch, &[]).await;
                Self::legion(scratch, controller.reach(), controller)
            }
        }
    }

    /// At a running original server that is reached in a way of its own.
    pub(crate) fn original(scratch: Scratch, reach: Reach, server: Original) -> Self {
        Self::new(scratch, reach, Server::Original(Box::new(server)))
    }

    /// At a running controller that is reached in a way of its own.
    pub(crate) fn legion(scratch: Scratch, reach: Reach, controller: Controller) -> Self {
        Self::new(scratch, reach, Server::Controller(Box::new(controller)))
    }

    fn new(scratch: Scratch, reach: Reach, server: Server) -> Self {
        Self { canaries: Canaries::plant(&scratch), scratch, reach, server }
    }

    /// Whether commands run in a sandbox.
    pub(crate) fn is_isolated(&self) -> bool {
        matches!(self.server, Server::Connect | Server::Controller(_))
    }

    /// How Codex gets there.
    pub(crate) fn reach(&self) -> &Reach {
        &self.reach
    }

    /// The server's URL, at a place that has one.
    pub(crate) fn url(&self) -> &str {
        match &self.reach {
            Reach::Url { url, .. } | Reach::UrlVariable(url) => url,
            Reach::Program { .. } => panic!("this place has no URL"),
        }
    }

    /// The server's socket address, at a place that has a URL.
    pub(crate) fn address(&self) -> SocketAddr {
        let authority = self.url().strip_prefix("ws://").expect("a ws:// URL").trim_end_matches('/');
        authority.parse().expect("an address and a port")
    }

    /// From now on Codex connects to this URL instead, with the same token.
    pub(crate) fn set_url(&mut self, new: String) {
        match &mut self.reach {
            Reach::Url { url, .. } | Reach::UrlVariable(url) => *url = new,
            Reach::Program { .. } => panic!("this place has no URL"),
        }
    }

    /// From now on Codex presents this token instead.
    pub(crate) fn set_token(&mut self, new: &str) {
        match &mut self.reach {
            Reach::Url { token, .. } => *token = Some(new.to_owned()),
            other => panic!("no token goes to {other:?}"),
        }
    }

    /// Plays the script to its end in the workspace.
    pub(crate) async fn play(&self, script: Script) -> Played {
        self.play_with(Codex::new(&self.scratch), script).await
    }

    /// Plays the script to its end with a prepared Codex.
    pub(crate) async fn play_with(&self, codex: Codex<'_>, script: Script) -> Played {
        let model = MockModel::start(script).await;
        codex.run(&self.reach, &model).await.assert_success();
        Played::of(model)
    }

    /// The end of every scenario: the log says what was done, the canaries are as they were, nothing goes on.
    pub(crate) async fn finish(self, played: &Played) {
        let isolated = self.is_isolated();
        let scratch = self.stop().await;
        if isolated {
            assert_logged(&scratch, played).await;
        }
    }

    /// The end of a scenario that looks at the log itself.
    pub(crate) async fn stop(self) -> Scratch {
        if let Server::Controller(controller) = self.server {
            controller.stop().await.assert_success();
        } else if let Server::Connect = self.server {
            // Codex does not wait for the program.
            let ended = |audit: &Audit| audit.events("controllerStopped").count() == 1;
            Audit::wait(&self.scratch, "the end of connect", ended).await;
        }
        assert_eq!(self.canaries.touched(), [] as [&Path; 0]);
        self.scratch
    }
}
