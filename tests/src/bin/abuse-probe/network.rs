//! Attempts on networks and sockets.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixStream};
use std::time::Duration;

use crate::{Seen, ok, sys};

/// How long a connection may take where nothing refuses it: the outcome is told apart anyway.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

pub(crate) fn attempt(words: &[&str]) -> Option<Seen> {
    Some(match *words {
        ["tcp", address] => ok(TcpStream::connect_timeout(&address.parse().ok()?, CONNECT_TIMEOUT)),
        ["udp", address] => udp(address.parse().ok()?),
        ["unix", path] => ok(UnixStream::connect(path)),
        ["abstract", name] => abstract_socket(name),
        // The resolver has errors of its own, without a number.
        ["resolve", name] => {
            Ok(if (name, 443).to_socket_addrs().is_ok() { "ok" } else { "no such name" }.to_owned())
        }
        ["interfaces"] => interfaces(),
        ["own-loopback", address] => own_loopback(address.parse().ok()?),
        ["socketpair"] => socketpair(),
        ["socket", name] => {
            let (_, [family, kind, protocol]) = SOCKETS.iter().find(|(known, _)| *known == name)?;
            ok(sys::socket(*family, *kind, *protocol))
        }
        _ => return None,
    })
}

/// Of the first Linux, and still there.
const SOCK_PACKET: i32 = 10;

const SOCKETS: &[(&str, [i32; 3])] = &[
    ("alg", [libc::AF_ALG, libc::SOCK_SEQPACKET, 0]),
    ("bluetooth", [libc::AF_BLUETOOTH, libc::SOCK_RAW, 1]),
    ("can", [libc::AF_CAN, libc::SOCK_RAW, 1]),
    ("netlink-audit", [libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_AUDIT]),
    ("netlink-connector", [libc::AF_NETLINK, libc::SOCK_DGRAM, libc::NETLINK_CONNECTOR]),
    ("netlink-generic", [libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_GENERIC]),
    ("netlink-kobject", [libc::AF_NETLINK, libc::SOCK_DGRAM, libc::NETLINK_KOBJECT_UEVENT]),
    ("netlink-netfilter", [libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_NETFILTER]),
    ("netlink-route", [libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE]),
    ("netlink-sock-diag", [libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_SOCK_DIAG]),
    ("packet", [libc::AF_PACKET, libc::SOCK_RAW, 0]),
    ("packet-old", [libc::AF_INET, SOCK_PACKET, 0x300]),
    ("raw", [libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP]),
    ("raw6", [libc::AF_INET6, libc::SOCK_RAW, libc::IPPROTO_ICMPV6]),
    ("rds", [libc::AF_RDS, libc::SOCK_SEQPACKET, 0]),
    ("tipc", [libc::AF_TIPC, libc::SOCK_SEQPACKET, 0]),
    ("unix", [libc::AF_UNIX, libc::SOCK_STREAM, 0]),
    ("vsock", [libc::AF_VSOCK, libc::SOCK_STREAM, 0]),
    ("xdp", [libc::AF_XDP, libc::SOCK_RAW, 0]),
];

fn udp(address: SocketAddr) -> Seen {
    let own = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    ok(UdpSocket::bind(own)?.send_to(b"x", address))
}

fn abstract_socket(name: &str) -> Seen {
    ok(UnixStream::connect_addr(&UnixAddr::from_abstract_name(name)?))
}

/// The names of the network interfaces.
fn interfaces() -> Seen {
    let table = std::fs::read_to_string("/proc/net/dev")?;
    let mut names: Vec<_> = table.lines().filter_map(|line| Some(line.split_once(':')?.0.trim())).collect();
    names.sort_unstable();
    Ok(format!("[{}]", names.join(" ")))
}

/// A byte from one end of a connection of its own to the other.
fn own_loopback(address: SocketAddr) -> Seen {
    let listener = TcpListener::bind(address)?;
    let mut client = TcpStream::connect(listener.local_addr()?)?;
    let (mut server, _) = listener.accept()?;
    client.write_all(b"x")?;
    ok(server.read_exact(&mut [0; 1]))
}

fn socketpair() -> Seen {
    let (mut one, mut other) = UnixStream::pair()?;
    one.write_all(b"x")?;
    ok(other.read_exact(&mut [0; 1]))
}
