//! The harness of Legion's tests: it drives built binaries and real clients, and links none of Legion's crates.
//!
//! Invariant: every wait is bounded and ends by an event; everything started is stopped; nothing a test writes is
//! seen by another.
//!
//! What has to be there, all of it by `scripts/test`: the clients (`npm ci` in `tests/clients`), bubblewrap, the two
//! binaries in `LEGION_BIN_DIR` (default: where cargo puts them), and, when the tests run as root, the account
//! `LEGION_TEST_USER` (default `legion-test`, with bash as its shell), which must be able to read all these.
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a harness reports what went wrong by failing the test"
)]
#![allow(clippy::missing_panics_doc, reason = "see above")]

pub mod audit;
pub mod bench;
pub mod certificate;
pub mod chat_model;
pub mod child;
pub mod clients;
pub mod codex;
pub mod cut_proxy;
pub mod fifo;
pub mod http1;
pub mod legion;
pub mod mcp_client;
pub mod mock_model;
pub mod model_items;
pub mod opencode;
pub mod original;
pub mod process_table;
pub mod random;
pub mod scratch;
pub mod settings;
pub mod terminal;
pub mod tls;
pub mod user;
pub mod ws_client;
