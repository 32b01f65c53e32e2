//! Listening URLs: `ws://ADDR:PORT` on loopback, `wss://ADDR:PORT` anywhere.

use std::fmt;
use std::net::SocketAddr;

use crate::failure::{Failure, Outcome};

/// Where a front door opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenUrl {
    /// Port 0 takes any free one.
    pub address: SocketAddr,
    /// `wss://`
    pub tls: bool,
    /// `?query_token=true`: also take the token from the URL's query, for clients that cannot send a header. Such
    /// clients may print the URL in error messages.
    pub query_token: bool,
}

impl ListenUrl {
    /// Parses one URL.
    ///
    /// # Errors
    /// Exit 78 for anything that is not exactly such a URL, and for `ws://` on an address others can reach.
    pub fn parse(text: &str) -> Outcome<Self> {
        let fail = |why: &str| {
            Failure::config(format_args!(
                "cannot listen on `{text}`: {why}; use ws://127.0.0.1:0 or wss://ADDR:PORT"
            ))
        };
        let (tls, rest) = match text.split_once("://") {
            Some(("ws", rest)) => (false, rest),
            Some(("wss", rest)) => (true, rest),
            _ => return Err(fail("the scheme must be ws or wss")),
        };
        let (address, query) =
            rest.split_once('?').map_or((rest, None), |(address, query)| (address, Some(query)));
        let query_token = match query {
            None | Some("query_token=false") => false,
            Some("query_token=true") => true,
            Some(_) => return Err(fail("the only option is ?query_token=true")),
        };
        let address: SocketAddr = address
            .strip_suffix('/')
            .unwrap_or(address)
            .parse()
            .map_err(|_| fail("it needs a numeric address and a port"))?;
        if !tls && !address.ip().is_loopback() {
            return Err(fail("other machines could read the token without TLS"));
        }
        Ok(Self { address, tls, query_token })
    }

    /// The URL for clients once the real address is known.
    pub fn at(&self, address: SocketAddr) -> Self {
        Self { address, ..self.clone() }
    }
}

impl fmt::Display for ListenUrl {
    /// Without options: what a client is given.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", if self.tls { "wss" } else { "ws" }, self.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_safe_and_complete_urls_pass() {
        for good in
            ["ws://127.0.0.1:0", "ws://[::1]:8080/", "wss://0.0.0.0:443", "ws://127.0.0.1:1?query_token=true"]
        {
            ListenUrl::parse(good).unwrap();
        }
        for bad in [
            "",
            "127.0.0.1:0",
            "http://127.0.0.1:0",
            "ws://localhost:0",
            "ws://127.0.0.1",
            "ws://0.0.0.0:0",
            "ws://10.0.0.1:1",
            "ws://127.0.0.1:0/path",
            "ws://127.0.0.1:0?token=x",
            "ws://127.0.0.1:99999",
        ] {
            assert_eq!(ListenUrl::parse(bad).unwrap_err().exit.code(), 78, "{bad}");
        }
    }
}
