//! The HTTP server that `http/request` cases call (SPEC 9.6).
//!
//! Invariant: it answers only what a case asks for, on the loopback interface; every request is bounded.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use serde_json::json;

/// Longest request head or body, in bytes.
const MAX_REQUEST: usize = 1024 * 1024;
/// How long a connection may stay open.
const LIFETIME: Duration = Duration::from_secs(20);
/// Body of `/big`, in bytes; more than one read of any client.
const BIG: usize = 2_500_000;

/// Starts the server; it lives as long as the test process.
pub(crate) fn start() -> Result<SocketAddr, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|e| e.to_string())?;
    let address = listener.local_addr().map_err(|e| e.to_string())?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A client that goes away in the middle is part of some cases.
            std::thread::spawn(move || serve(stream).unwrap_or_default());
        }
    });
    Ok(address)
}

fn serve(stream: TcpStream) -> std::io::Result<()> {
    stream.set_read_timeout(Some(LIFETIME))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut writer = stream;
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || lines.iter().map(String::len).sum::<usize>() > MAX_REQUEST {
            return Ok(());
        }
        match line.trim_end() {
            "" => break,
            text => lines.push(text.to_owned()),
        }
    }
    let mut words = lines.first().map(String::as_str).unwrap_or_default().split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let headers: Vec<(String, &str)> = lines
        .iter()
        .skip(1)
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value))
        .collect();
    let length =
        headers.iter().find(|(n, _)| n == "content-length").and_then(|(_, v)| v.parse().ok()).unwrap_or(0);
    let mut body = vec![0; usize::min(length, MAX_REQUEST)];
    reader.read_exact(&mut body)?;
    // What the client adds by itself (accept, user-agent) is its own affair; x-* and these are the case's.
    let seen: Vec<_> = headers
        .iter()
        .filter(|(name, _)| name.starts_with("x-") || name == "content-type" || name == "authorization")
        .collect();
    let echo =
        json!({"method": method, "path": path, "headers": seen, "body": String::from_utf8_lossy(&body)});
    answer(&mut writer, &mut reader, path, &echo.to_string())
}

fn answer(writer: &mut TcpStream, reader: &mut impl Read, path: &str, echo: &str) -> std::io::Result<()> {
    let mut reply = |status: &str, extra: &str, body: &str| {
        write!(
            writer,
            "HTTP/1.1 {status}\r\nx-a: 1\r\nx-a: 2\r\n{extra}content-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        )
    };
    match path {
        "/redirect" => reply("302 Found", "location: /end\r\n", ""),
        "/500" => reply("500 Internal Server Error", "", echo),
        "/404" => reply("404 Not Found", "", echo),
        "/big" => reply("200 OK", "", &"B".repeat(BIG)),
        // Answers nothing; the read ends when the client gives up.
        "/silent" => reader.read(&mut [0]).map(drop),
        // Promises more than it sends.
        "/short" => write!(writer, "HTTP/1.1 200 OK\r\ncontent-length: 10\r\nconnection: close\r\n\r\nfour"),
        _ => reply("200 OK", "", echo),
    }
}
