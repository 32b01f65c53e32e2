//! Sending records on to syslog (RFC 5424), each with its place in the chain, so that a copy lies elsewhere.
//!
//! Invariant: nothing waits for it. A full queue or a receiver that takes nothing costs records there, never here, and
//! how many is counted.

use std::io;
use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Instant;

use crate::config::Syslog;
use crate::limits::{MAX_QUEUED_SYSLOG, MAX_SYSLOG_BYTES, SYSLOG_RETRY, SYSLOG_TIMEOUT};

/// Facility authpriv, severities informational and warning.
const PRIORITY: (u8, u8) = (10 * 8 + 6, 10 * 8 + 4);

/// The running thread.
pub struct Forwarder {
    queue: Option<SyncSender<String>>,
    dropped: Arc<AtomicU64>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Forwarder {
    /// Starts it.
    pub fn start(target: Syslog) -> io::Result<Self> {
        let (queue, lines) = sync_channel(MAX_QUEUED_SYSLOG);
        let dropped = Arc::<AtomicU64>::default();
        let shared = Arc::clone(&dropped);
        let thread = std::thread::Builder::new()
            .name("audit-syslog".into())
            .spawn(move || Sender { target, dropped: shared, socket: None, failed: None }.run(&lines))?;
        Ok(Self { queue: Some(queue), dropped, thread: Some(thread) })
    }

    /// Takes a line of the log.
    pub fn send(&self, line: &str) {
        let taken = self.queue.as_ref().is_some_and(|queue| queue.try_send(line.to_owned()).is_ok());
        if !taken {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many were not sent since this was asked last.
    pub fn take_dropped(&self) -> u64 {
        self.dropped.swap(0, Ordering::Relaxed)
    }
}

impl Drop for Forwarder {
    /// What is queued is sent, as long as somebody takes it.
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

enum Socket {
    Unix(UnixDatagram),
    Udp(UdpSocket),
}

impl Socket {
    fn open(target: &Syslog) -> io::Result<Self> {
        match target {
            Syslog::Unix(path) => {
                let socket = UnixDatagram::unbound()?;
                socket.connect(path)?;
                socket.set_write_timeout(Some(SYSLOG_TIMEOUT))?;
                Ok(Self::Unix(socket))
            }
            Syslog::Udp(address) => {
                let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
                let socket = UdpSocket::bind(any)?;
                socket.connect(address)?;
                socket.set_write_timeout(Some(SYSLOG_TIMEOUT))?;
                Ok(Self::Udp(socket))
            }
        }
    }

    fn send(&self, message: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(socket) => socket.send(message),
            Self::Udp(socket) => socket.send(message),
        }
    }
}

struct Sender {
    target: Syslog,
    dropped: Arc<AtomicU64>,
    socket: Option<Socket>,
    /// When sending failed last.
    failed: Option<Instant>,
}

impl Sender {
    fn run(mut self, lines: &Receiver<String>) {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        for line in lines {
            if self.failed.is_some_and(|failed| failed.elapsed() < SYSLOG_RETRY) {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            } else if let Err(error) = self.send(message(&line, &host).as_bytes()) {
                tracing::warn!(%error, "records cannot be sent to syslog; they are counted");
                self.failed = Some(Instant::now());
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// A receiver that was started anew needs a new connection.
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        if let Some(socket) = &self.socket
            && socket.send(message).is_ok()
        {
            return Ok(());
        }
        self.socket.insert(Socket::open(&self.target)?).send(message).map(|_| ())
    }
}

/// `<PRI>1 TIME HOST legion-controller PID audit - LINE`
fn message(line: &str, host: &str) -> String {
    let line = line.trim_end();
    let member = |name: &str| {
        let rest = line.split_once(name)?.1;
        rest.split_once('"').map(|(value, _)| value)
    };
    let time = member("\"time\":\"").unwrap_or("-");
    let priority = if line.contains("\"decision\":\"deny\"") { PRIORITY.1 } else { PRIORITY.0 };
    let host = if host.is_empty() { "-" } else { host };
    let head = format!("<{priority}>1 {time} {host} legion-controller {} audit - ", std::process::id());
    if head.len() + line.len() <= MAX_SYSLOG_BYTES {
        return head + line;
    }
    // What is too long for a datagram is named: its hash is the record's.
    let hash = line.rsplit_once("\"h\":\"").map_or("", |(_, rest)| rest.trim_end_matches("\"}"));
    format!("{head}{{\"tooLong\":{},\"h\":\"{hash}\"}}", line.len())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const LINE: &str = "{\"e\":{\"seq\":1,\"time\":\"2026-11-29T10:00:00.000Z\",\"event\":\"call\",\"decision\":\"deny\"},\"p\":\"00\",\"h\":\"ab\"}\n";

    #[test]
    fn a_message_has_the_form_of_rfc_5424() {
        let pid = std::process::id();
        let start = format!("<84>1 2026-11-29T10:00:00.000Z box legion-controller {pid} audit - {{\"e\":");
        assert!(message(LINE, "box").starts_with(&start), "{}", message(LINE, "box"));
        let long = LINE.replace("call", &"x".repeat(MAX_SYSLOG_BYTES));
        let short = message(&long, "");
        assert!(short.len() < 200 && short.ends_with(",\"h\":\"ab\"}"), "{short}");
    }

    #[test]
    fn records_arrive_and_those_that_do_not_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let receiver = UnixDatagram::bind(&path).unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let forwarder = Forwarder::start(Syslog::Unix(path)).unwrap();
        forwarder.send(LINE);
        let mut buffer = [0; 1024];
        let count = receiver.recv(&mut buffer).unwrap();
        assert!(buffer[..count].ends_with(b"\"h\":\"ab\"}"));
        assert_eq!(forwarder.take_dropped(), 0);
        drop(receiver);
        forwarder.send(LINE);
        let dropped = Arc::clone(&forwarder.dropped);
        drop(forwarder);
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn records_arrive_over_udp_of_both_families() {
        for any in ["127.0.0.1:0", "[::1]:0"] {
            // A machine may lack one of them.
            let Ok(receiver) = UdpSocket::bind(any) else { continue };
            receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            let forwarder = Forwarder::start(Syslog::Udp(receiver.local_addr().unwrap())).unwrap();
            let long = LINE.replace("call", &"x".repeat(MAX_SYSLOG_BYTES - 400));
            for line in [LINE, &long] {
                forwarder.send(line);
                let mut buffer = vec![0; 64 << 10];
                let count = receiver.recv(&mut buffer).unwrap();
                assert!(buffer[..count].ends_with(line.trim_end().as_bytes()), "{any} {count}");
            }
            assert_eq!(forwarder.take_dropped(), 0);
        }
    }

    #[test]
    fn a_receiver_that_takes_nothing_delays_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let _silent = UnixDatagram::bind(&path).unwrap();
        let forwarder = Forwarder::start(Syslog::Unix(path)).unwrap();
        let begin = Instant::now();
        (0..MAX_QUEUED_SYSLOG * 4).for_each(|_| forwarder.send(LINE));
        assert!(begin.elapsed() < SYSLOG_TIMEOUT, "{:?}", begin.elapsed());
        assert!(forwarder.take_dropped() > 0);
    }
}
