//! The exec-server protocol as types: what a frame is, which methods exist, what their parameters and results look
//! like, and the bounds both tiers share.
//!
//! Architecture invariant: nothing here does I/O, knows about async, or reads a clock. Both tiers decode a frame with
//! the same functions of this crate, so the gate decides on exactly what the exec-server will execute.
#![forbid(unsafe_code)]

pub mod bootstrap;
pub mod capability;
pub mod chunk;
pub mod environment;
pub mod frame;
pub mod fs;
pub mod head;
pub mod http;
pub mod jsonrpc;
pub mod limits;
pub mod method;
pub mod object;
pub mod path_uri;
pub mod process;
pub mod sandbox;
pub mod scan;
pub mod session;
pub mod upgrade;

pub use chunk::Chunk;
pub use frame::{Frame, Params};
pub use head::Head;
pub use jsonrpc::{ErrorCode, ErrorObject, RequestId};
pub use method::Method;
pub use object::StringMap;
pub use path_uri::PathUri;
