//! What all connections of this server share. Everything runs on one thread, so nothing is locked.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use legion_protocol::limits::MAX_OUTPUT_CHUNK_BYTES;

use crate::confine::Brokers;
use crate::environment::Host;
use crate::http::Http;
use crate::memory::Trim;
use crate::process::reap::Reaper;
use crate::session::Sessions;
use crate::token::TokenDigest;

/// See the module.
pub(crate) struct Server {
    /// Facts about the surroundings.
    pub(crate) host: Host,
    /// All sessions.
    pub(crate) sessions: Rc<Sessions>,
    /// Tells who exited.
    pub(crate) reaper: Rc<Reaper>,
    /// What a client must present; `None` accepts everyone.
    pub(crate) token: Option<TokenDigest>,
    /// Open WebSocket connections.
    pub(crate) connections: Cell<usize>,
    /// Threads that answer for confined commands.
    pub(crate) brokers: Brokers,
    /// What HTTP requests share.
    pub(crate) http: Http,
    /// Told of every message.
    pub(crate) trim: Rc<Trim>,
    /// One read buffer for all processes: it is used and left within one step.
    pub(crate) read_buffer: RefCell<Box<[u8]>>,
}

impl Server {
    /// A server without connections.
    pub(crate) fn new(host: Host, token: Option<TokenDigest>) -> Rc<Self> {
        Rc::new(Self {
            host,
            sessions: Rc::default(),
            reaper: Rc::default(),
            token,
            connections: Cell::new(0),
            brokers: Brokers::default(),
            http: Http::default(),
            trim: Rc::default(),
            read_buffer: RefCell::new(vec![0; MAX_OUTPUT_CHUNK_BYTES].into_boxed_slice()),
        })
    }
}
