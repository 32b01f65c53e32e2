//! URLs of `http/request`: read as browsers and the original read them, as far as http and https go. Pure.
//!
//! Invariant: what is parsed can be sent: the host is ASCII without anything that could end it, the path has no dot
//! segments, and nothing is left that a request line could be broken with.

use std::fmt;

use legion_protocol::Chunk;

/// An http or https URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Url {
    /// https.
    pub(super) secure: bool,
    /// Lower-case; an IPv6 address in brackets.
    pub(super) host: String,
    /// The default of the scheme when it is not written.
    pub(super) port: u16,
    /// Starts with `/`.
    pub(super) path: String,
    /// Starts with `?`, or is empty.
    pub(super) query: String,
    /// The value of an `Authorization` header, from a user name and password in the URL.
    pub(super) credentials: Option<String>,
}

/// Why a text is no URL to ask; the texts are those of the original.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum UrlError {
    /// Not a URL.
    #[error("http/request url is invalid: {0}")]
    Invalid(&'static str),
    /// A URL of another kind.
    #[error("http/request only supports http and https URLs, got {0}")]
    Scheme(String),
}

impl Url {
    /// Parses an absolute URL.
    pub(super) fn parse(text: &str) -> Result<Self, UrlError> {
        let text = clean(text);
        let (scheme, rest) = split_scheme(&text).ok_or(UrlError::Invalid("relative URL without a base"))?;
        let secure = match scheme.as_str() {
            "http" => false,
            "https" => true,
            _ => return Err(UrlError::Scheme(scheme)),
        };
        let rest = rest.trim_start_matches(['/', '\\']);
        let end = rest.find(['/', '\\', '?', '#']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(end);
        let (userinfo, host) = match authority.rsplit_once('@') {
            Some((userinfo, host)) => (Some(userinfo), host),
            None => (None, authority),
        };
        let (host, port) = split_port(host)?;
        let default = if secure { 443 } else { 80 };
        let (path, query) = split_path(rest);
        Ok(Self {
            secure,
            host: check_host(host)?,
            port: port.unwrap_or(default),
            path: normal(path),
            query,
            credentials: userinfo.filter(|text| !text.is_empty()).map(basic),
        })
    }

    /// What a `Location` header leads to, seen from here.
    pub(super) fn join(&self, location: &str) -> Result<Self, UrlError> {
        let location = clean(location);
        if split_scheme(&location).is_some() {
            return Self::parse(&location);
        }
        if location.starts_with("//") || location.starts_with("\\\\") {
            return Self::parse(&format!("{}:{location}", self.scheme()));
        }
        let (path, query) = split_path(&location);
        let (path, query) = match path {
            // Only a query, or nothing at all.
            "" if query.is_empty() => (self.path.clone(), self.query.clone()),
            "" => (self.path.clone(), query),
            absolute if absolute.starts_with(['/', '\\']) => (normal(absolute), query),
            relative => {
                let directory = self.path.rfind('/').map_or("/", |end| &self.path[..=end]);
                (normal(&format!("{directory}{relative}")), query)
            }
        };
        Ok(Self { path, query, credentials: None, ..self.clone() })
    }

    /// `http` or `https`.
    pub(super) fn scheme(&self) -> &'static str {
        if self.secure { "https" } else { "http" }
    }

    /// Whether both name the same server.
    pub(super) fn is_same_origin(&self, other: &Self) -> bool {
        (self.secure, self.port, &self.host) == (other.secure, other.port, &other.host)
    }

    /// The value of a `Host` header.
    pub(super) fn authority(&self) -> String {
        let default = if self.secure { 443 } else { 80 };
        if self.port == default { self.host.clone() } else { format!("{}:{}", self.host, self.port) }
    }

    /// The host as a resolver wants it.
    pub(super) fn bare_host(&self) -> &str {
        self.host.trim_start_matches('[').trim_end_matches(']')
    }
}

impl fmt::Display for Url {
    /// Without user name and password: it ends up in error texts.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}{}", self.scheme(), self.authority(), self.path, self.query)
    }
}

/// Space around a URL and line breaks inside vanish.
fn clean(text: &str) -> String {
    let text = text.trim_matches(|c| c <= ' ');
    text.chars().filter(|c| !matches!(c, '\t' | '\n' | '\r')).collect()
}

fn split_scheme(text: &str) -> Option<(String, &str)> {
    let (scheme, rest) = text.split_once(':')?;
    let mut bytes = scheme.bytes();
    let valid = bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic())
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'));
    valid.then(|| (scheme.to_ascii_lowercase(), rest))
}

fn split_port(authority: &str) -> Result<(&str, Option<u16>), UrlError> {
    let after_host = authority.rfind(']').unwrap_or(0);
    let Some(colon) = authority[after_host..].find(':') else { return Ok((authority, None)) };
    let (host, port) = authority.split_at(after_host + colon);
    match &port[1..] {
        "" => Ok((host, None)),
        digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits
            .parse()
            .map(|port| (host, Some(port)))
            .map_err(|_| UrlError::Invalid("invalid port number")),
        _ => Err(UrlError::Invalid("invalid port number")),
    }
}

/// International names are not translated: they are refused, not sent as something else.
fn check_host(host: &str) -> Result<String, UrlError> {
    if host.is_empty() {
        return Err(UrlError::Invalid("empty host"));
    }
    if let Some(inner) = host.strip_prefix('[') {
        let address = inner.strip_suffix(']').and_then(|inner| inner.parse::<std::net::Ipv6Addr>().ok());
        let address = address.ok_or(UrlError::Invalid("invalid IPv6 address"))?;
        return Ok(format!("[{address}]"));
    }
    let plain = |byte: u8| {
        byte.is_ascii_alphanumeric()
            || matches!(
                byte,
                b'-' | b'.'
                    | b'_'
                    | b'~'
                    | b'!'
                    | b'$'
                    | b'&'
                    | b'\''
                    | b'('
                    | b')'
                    | b'*'
                    | b'+'
                    | b','
                    | b';'
                    | b'='
            )
    };
    if host.bytes().all(plain) {
        Ok(host.to_ascii_lowercase())
    } else {
        Err(UrlError::Invalid("invalid international domain name"))
    }
}

fn basic(userinfo: &str) -> String {
    let (user, password) = userinfo.split_once(':').unwrap_or((userinfo, ""));
    let plain = [percent_decode(user), b":".to_vec(), percent_decode(password)].concat();
    format!("Basic {}", Chunk::to_base64(&plain))
}

fn percent_decode(text: &str) -> Vec<u8> {
    let hex = |byte: u8| char::from(byte).to_digit(16);
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, more @ ..] = rest {
        let escaped = match rest {
            [b'%', high, low, ..] => {
                hex(*high).zip(hex(*low)).and_then(|(h, l)| u8::try_from(h * 16 + l).ok())
            }
            _ => None,
        };
        decoded.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &more[2..] } else { more };
    }
    decoded
}

/// The path, and the query as it is sent; a fragment is not sent.
fn split_path(text: &str) -> (&str, String) {
    let text = text.split_once('#').map_or(text, |(text, _)| text);
    match text.split_once('?') {
        Some((path, query)) => (path, format!("?{}", encode(query, b"\"'<>"))),
        None => (text, String::new()),
    }
}

/// Absolute, without dot segments, also when a dot is written `%2e`.
fn normal(path: &str) -> String {
    let path = path.replace('\\', "/");
    let segments: Vec<&str> = path.strip_prefix('/').unwrap_or(&path).split('/').collect();
    let mut kept: Vec<&str> = Vec::new();
    for (index, segment) in segments.iter().enumerate() {
        let dots = segment.to_ascii_lowercase().replace("%2e", ".");
        let last = index + 1 == segments.len();
        match dots.as_str() {
            "." if last => kept.push(""),
            "." => {}
            ".." => {
                kept.pop();
                if last {
                    kept.push("");
                }
            }
            _ => kept.push(segment),
        }
    }
    format!("/{}", encode(&kept.join("/"), b"\"<>`{}^|"))
}

/// Percent-encodes what may not stand in a request line, and `more`.
fn encode(text: &str, more: &[u8]) -> String {
    use fmt::Write as _;
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_graphic() && !more.contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &str) -> String {
        Url::parse(text).unwrap().to_string()
    }

    #[test]
    fn urls_are_read_as_browsers_read_them() {
        for (text, url) in [
            ("http://127.0.0.1:9191", "http://127.0.0.1:9191/"),
            (" HTTPS://Example.COM:443/a/../b?c d#e\n", "https://example.com/b?c%20d"),
            ("http:///x", "http://x/"),
            ("http:\\\\h\\a\\b", "http://h/a/b"),
            ("http://h/é?é", "http://h/%C3%A9?%C3%A9"),
            ("http://h/a b", "http://h/a%20b"),
            ("http://h/%41%2e%2E/./c/.", "http://h/%41%2e%2E/c/"),
            ("http://h/a/%2e%2E/c/..", "http://h/"),
            ("http://[::1]:1/", "http://[::1]:1/"),
            ("http://user:p%40w@h/x", "http://h/x"),
            ("http://h:/", "http://h/"),
            ("http://h?x=1", "http://h/?x=1"),
        ] {
            assert_eq!(parsed(text), url, "{text}");
        }
        let url = Url::parse("http://user:p%40w@h/x").unwrap();
        assert_eq!(url.credentials.as_deref(), Some("Basic dXNlcjpwQHc="));
        assert_eq!(Url::parse("https://[::1]/").unwrap().bare_host(), "::1");
    }

    #[test]
    fn what_is_no_url_is_refused_in_the_words_of_the_original() {
        for (text, message) in [
            ("not a url", "http/request url is invalid: relative URL without a base"),
            ("//x", "http/request url is invalid: relative URL without a base"),
            ("http://127.0.0.1:99999/", "http/request url is invalid: invalid port number"),
            ("http://h:x/", "http/request url is invalid: invalid port number"),
            ("http://a b/", "http/request url is invalid: invalid international domain name"),
            ("http://bücher.example/", "http/request url is invalid: invalid international domain name"),
            ("http://", "http/request url is invalid: empty host"),
            ("http://[::g]/", "http/request url is invalid: invalid IPv6 address"),
            ("ftp://x/", "http/request only supports http and https URLs, got ftp"),
            ("File:///etc/passwd", "http/request only supports http and https URLs, got file"),
        ] {
            assert_eq!(Url::parse(text).unwrap_err().to_string(), message, "{text}");
        }
    }

    #[test]
    fn locations_are_resolved_as_the_standard_says() {
        let base = Url::parse("http://a/b/c/d;p?q").unwrap();
        for (location, url) in [
            ("g", "http://a/b/c/g"),
            ("./g", "http://a/b/c/g"),
            ("g/", "http://a/b/c/g/"),
            ("/g", "http://a/g"),
            ("//g", "http://g/"),
            ("?y", "http://a/b/c/d;p?y"),
            ("g?y", "http://a/b/c/g?y"),
            ("#s", "http://a/b/c/d;p?q"),
            ("", "http://a/b/c/d;p?q"),
            (".", "http://a/b/c/"),
            ("..", "http://a/b/"),
            ("../..", "http://a/"),
            ("../../../g", "http://a/g"),
            ("g;x=1/../y", "http://a/b/c/y"),
            ("https://h:8443/x", "https://h:8443/x"),
            ("/a%20b?x#frag", "http://a/a%20b?x"),
        ] {
            assert_eq!(base.join(location).unwrap().to_string(), url, "{location}");
        }
        assert_eq!(base.join("ftp://x/").unwrap_err(), UrlError::Scheme("ftp".into()));
    }

    proptest! {
        /// Whatever is parsed is one line of visible ASCII, and means the same when it is parsed again.
        #[test]
        fn a_parsed_url_is_fit_to_be_sent(text in "(https?://)?[a-zA-Z0-9:@/\\\\?#. %\u{e9}\r\n\"<>\\[\\]{}|^]{0,40}") {
            if let Ok(url) = Url::parse(&text) {
                let shown = url.to_string();
                prop_assert!(shown.bytes().all(|byte| byte.is_ascii_graphic()), "{}", shown);
                prop_assert!(url.path.starts_with('/') && !url.path.split('/').any(|part| part == ".."));
                let again = Url::parse(&shown).unwrap();
                prop_assert_eq!(Url { credentials: None, ..url }, again);
            }
        }
    }
}
