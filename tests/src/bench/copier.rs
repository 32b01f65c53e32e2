//! A server behind somebody who only copies bytes: the least that anything between a client and its server costs, because
//! every message then wakes two more.
//!
//! Invariant: one connection, a thread for each direction, nothing is looked at; both end with the connection.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;

use super::subject::{COPIED, Subject};

/// Bytes moved at a time.
const BUFFER_BYTES: usize = 64 << 10;

/// The subject, behind a copier that takes one connection.
///
/// # Errors
/// There is no port.
pub fn before(subject: &Subject) -> io::Result<Subject> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let (address, authority) = subject.address.by_way_of(&listener.local_addr()?.to_string());
    thread::Builder::new().name("copier".into()).spawn(move || {
        // A failure ends the connection, and the measure says so.
        let _ = copy_one(&listener, &authority);
    })?;
    Ok(Subject { name: COPIED.to_owned(), address, pid: None, ..subject.clone() })
}

fn copy_one(listener: &TcpListener, authority: &str) -> io::Result<()> {
    let (client, _) = listener.accept()?;
    let server = TcpStream::connect(authority)?;
    for socket in [&client, &server] {
        socket.set_nodelay(true)?;
    }
    let (from, to) = (server.try_clone()?, client.try_clone()?);
    let back = thread::Builder::new().name("copier".into()).spawn(move || copy(&from, &to))?;
    copy(&client, &server);
    // It ends with the connection, and has nothing to say.
    let _ = back.join();
    Ok(())
}

fn copy(mut from: &TcpStream, mut to: &TcpStream) {
    let mut buffer = vec![0; BUFFER_BYTES];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    for socket in [from, to] {
        // It may be gone already.
        let _ = socket.shutdown(Shutdown::Both);
    }
}
