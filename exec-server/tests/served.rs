//! The built binary, driven from outside over an inherited Unix socket: what only a real process can show.

#[cfg(test)]
mod harness;

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::process::ExitStatusExt;
    use std::time::Duration;

    use rustix::process::{Pid, test_kill_process};
    use serde_json::{Value, json};

    use crate::harness::{Client, Server, TOKEN, within, written_by};

    /// The pid a script printed as its first line.
    async fn printed_pid(client: &mut Client, process: &str) -> Pid {
        let text = client.output_until(process, "\n").await;
        Pid::from_raw(text.trim().parse().unwrap()).unwrap()
    }

    async fn gone(pid: Pid) {
        within(async {
            while test_kill_process(pid).is_ok() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    }

    #[tokio::test]
    async fn only_the_sessions_token_opens_the_door() {
        let server = Server::start();
        assert!(Client::connect(&server, Some(TOKEN)).await.is_ok());
        for (token, status) in [(None, 401), (Some("other"), 401), (Some(""), 401)] {
            assert_eq!(Client::connect(&server, token).await.err(), Some(status), "{token:?}");
        }
    }

    #[tokio::test]
    async fn a_crowd_that_says_nothing_does_not_hold_up_who_speaks() {
        let server = Server::start();
        let silent: Vec<_> = (0..100).map(|_| server.silent_peer()).collect();
        assert!(Client::connect(&server, Some(TOKEN)).await.is_ok());
        // The oldest have been sent away to make places, so that those who came last are within their time still. Without
        // that, places are made by the end of that time only, for 32 at once.
        let gone: Vec<bool> = silent.iter().map(|peer| (&*peer).read(&mut [0]).is_ok()).collect();
        assert_eq!(gone, [vec![true; 69], vec![false; 31]].concat());
    }

    #[tokio::test]
    async fn children_get_the_bootstraps_environment_and_no_descriptor() {
        let server = Server::start();
        let mut client = Client::open(&server).await;
        let policy = json!({"inherit": "all", "ignoreDefaultExcludes": true, "exclude": [], "set": {}, "includeOnly": []});
        let script = "echo $SECRET_OF_THE_SESSION; ls /proc/self/fd | tr '\\n' ' '";
        client.start("p", script, json!({"envPolicy": policy, "cwd": "file:///tmp"})).await;
        let (output, code) = client.finish("p").await;
        // 3 is the directory that `ls` reads.
        assert_eq!((output.as_str(), code), ("value\n0 1 2 3 ", 0));
    }

    #[tokio::test]
    async fn inherited_descriptors_that_were_not_named_are_closed() {
        let server = Server::start();
        Client::open(&server).await;
        let leaked = std::fs::read_link(format!("/proc/{}/fd/20", server.pid().as_raw_nonzero()));
        assert!(leaked.is_err(), "{leaked:?}");
    }

    #[tokio::test]
    async fn the_end_of_the_lifeline_ends_server_and_children() {
        let mut server = Server::start();
        let mut client = Client::open(&server).await;
        client.start("p", "echo $$; exec sleep 1000", json!({})).await;
        let pid = printed_pid(&mut client, "p").await;
        server.cut_lifeline();
        assert_eq!(server.wait().await.code(), Some(0));
        gone(pid).await;
    }

    #[tokio::test]
    async fn signals_end_the_server_with_code_zero() {
        for signal in [rustix::process::Signal::TERM, rustix::process::Signal::INT] {
            let mut server = Server::start();
            let mut client = Client::open(&server).await;
            client.start("p", "echo $$; exec sleep 1000", json!({"tty": true})).await;
            let pid = printed_pid(&mut client, "p").await;
            rustix::process::kill_process(server.pid(), signal).unwrap();
            let status = server.wait().await;
            assert_eq!((status.code(), status.signal()), (Some(0), None));
            gone(pid).await;
        }
    }

    #[tokio::test]
    async fn a_session_is_taken_over_from_a_connection_that_hangs() {
        let server = Server::start();
        let mut first = Client::open(&server).await;
        first.start("p", "echo one; read x; echo $x; read x; exit 7", json!({"pipeStdin": true})).await;
        assert_eq!(first.output_until("p", "\n").await, "one\n");
        // Two at the same time: the later one wins, nobody is told that the session is attached elsewhere.
        let mut second = Client::connect(&server, Some(TOKEN)).await.unwrap();
        second.resume(&first.session).await.unwrap();
        assert!(first.ended().await);
        second.write("p", b"two\n", "1").await;
        assert_eq!(second.output_until("p", "\n").await, "two\n");
        let mut third = Client::connect(&server, Some(TOKEN)).await.unwrap();
        third.resume(&first.session).await.unwrap();
        let read = third.call("process/read", json!({"processId": "p", "afterSeq": 0})).await.unwrap();
        let seqs: Vec<_> =
            read["chunks"].as_array().unwrap().iter().map(|chunk| chunk["seq"].clone()).collect();
        assert_eq!(seqs, [1, 2]);
        // A retry of a write that was answered is not written again.
        third.write("p", b"two\n", "1").await;
        third.write("p", b"end\n", "2").await;
        assert_eq!(third.finish("p").await.1, 7);
        let unknown = third.resume("no-such-session").await.unwrap_err();
        assert_eq!(unknown["message"], "initialize may only be sent once per connection");
    }

    #[tokio::test]
    async fn a_full_stdin_delays_nothing_else() {
        let server = Server::start();
        let mut client = Client::open(&server).await;
        client.start("p", "exec sleep 1000", json!({"pipeStdin": true})).await;
        let chunk = vec![b'x'; 4 << 20];
        let mut asked = Vec::new();
        for id in 0..8 {
            asked.push(client.ask_write("p", &chunk, &id.to_string()).await);
        }
        assert_eq!(client.call("environment/status", Value::Null).await.unwrap()["status"], "ready");
        assert!(client.is_answered(asked[0]) && !client.is_answered(asked[7]));
        let ended = client.call("process/terminate", json!({"processId": "p"})).await.unwrap();
        assert_eq!(ended["running"], true);
        for id in asked {
            // Those that waited learn of the end, or were taken when the reader went away.
            let status = client.answer(id).await.unwrap()["status"].clone();
            assert!(status == "accepted" || status == "stdinClosed", "{status}");
        }
        assert_eq!(client.finish("p").await.1, 137);
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_stops_the_pipes_and_nothing_else() {
        let server = Server::start();
        let mut client = Client::open(&server).await;
        client.start("quiet", "echo $$; exec sleep 1000", json!({})).await;
        let quiet = printed_pid(&mut client, "quiet").await;
        client.start("flood", "echo $$; exec yes", json!({})).await;
        let flood = printed_pid(&mut client, "flood").await;
        // Nothing is read from here on; the flood fills the socket, the queue and the pipe, and then has to wait.
        within(async {
            let mut last = None;
            loop {
                let written = written_by(flood);
                if written.is_some() && written == last {
                    return;
                }
                last = written;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        })
        .await;
        assert!(server.memory() < 32 << 20, "{} bytes", server.memory());
        client.ask("process/terminate", json!({"processId": "quiet"})).await;
        gone(quiet).await;
        client.ask("process/terminate", json!({"processId": "flood"})).await;
        gone(flood).await;
        assert_eq!(client.finish("flood").await.1, 137);
        assert_eq!(client.finish("quiet").await.1, 137);
    }

    #[tokio::test]
    async fn a_long_poll_delays_nothing_else_and_wakes_at_output() {
        let server = Server::start();
        let mut client = Client::open(&server).await;
        client.start("p", "read x; echo $x", json!({"pipeStdin": true})).await;
        let poll = client.ask("process/read", json!({"processId": "p", "waitMs": 600_000})).await;
        client.write("p", b"hello\n", "1").await;
        let result = client.answer(poll).await.unwrap();
        assert_eq!(result["chunks"][0]["seq"], 1);
        client.finish("p").await;
    }

    #[tokio::test]
    async fn pipelined_calls_see_the_changes_of_those_before_them() {
        let server = Server::start();
        let mut client = Client::open(&server).await;
        let dir = tempfile::tempdir().unwrap();
        let uri = |name: &str| format!("file://{}/{name}", dir.path().display());
        let big = legion_protocol::Chunk::to_base64(&vec![b'a'; 6 << 20]);
        let mut asked = Vec::new();
        for round in 0..5 {
            let file = uri(&format!("d{round}/f"));
            for (method, params) in [
                ("fs/createDirectory", json!({"path": uri(&format!("d{round}"))})),
                ("fs/writeFile", json!({"path": file, "dataBase64": big})),
                ("fs/getMetadata", json!({"path": file})),
                (
                    "fs/copy",
                    json!({"sourcePath": file, "destinationPath": uri(&format!("c{round}")), "recursive": false}),
                ),
                ("fs/remove", json!({"path": uri(&format!("d{round}"))})),
            ] {
                asked.push((method, client.ask(method, params).await));
            }
            let script = format!("wc -c < {}/c{round}", dir.path().display());
            client.ask_start(&format!("p{round}"), &script, json!({})).await;
        }
        for (method, id) in asked {
            let result = client.answer(id).await.unwrap();
            if method == "fs/getMetadata" {
                assert_eq!(result["size"], 6 << 20);
            }
        }
        for round in 0..5 {
            let (output, _) = client.finish(&format!("p{round}")).await;
            assert_eq!(output, "6291456\n");
        }
    }

    #[tokio::test]
    async fn limits_of_the_persona_end_a_command_and_say_so() {
        let limits = json!({"wallMs": 300, "outputBytes": 1000, "openFiles": 77, "dataBytes": 1 << 30});
        let server = Server::start_with(&limits);
        let mut client = Client::open(&server).await;
        for tty in [false, true] {
            let (slow, loud, plain) = (format!("slow{tty}"), format!("loud{tty}"), format!("plain{tty}"));
            let killed = if tty { 1 } else { 137 };
            client.start(&slow, "echo before; sleep 1000", json!({"tty": tty})).await;
            client.start(&loud, "trap '' TERM INT; exec yes", json!({"tty": tty})).await;
            client.start(&plain, "ulimit -H -n; ulimit -H -d", json!({"tty": tty})).await;
            let said = |limit: &str| {
                let end = if tty { "\r\n" } else { "\n" };
                format!("legion: the command was killed: it reached {limit} of its persona{end}")
            };
            let (output, code) = client.finish(&slow).await;
            let output = output.strip_suffix(&said("limits.wall")).unwrap();
            assert_eq!((output.trim(), code, client.limit(&slow)), ("before", killed, Some("limits.wall")));
            let (output, code) = client.finish(&loud).await;
            let output = output.strip_suffix(&said("limits.output")).unwrap();
            assert_eq!((output.len(), code, client.limit(&loud)), (1000, killed, Some("limits.output")));
            let (output, code) = client.finish(&plain).await;
            assert_eq!(
                (output.replace('\r', "").as_str(), code, client.limit(&plain)),
                ("77\n1048576\n", 0, None)
            );
        }
        // Exited before anybody looked: what it wrote is cut, and that is said.
        client.start("quick", "head -c 3000 /dev/zero; exit 5", json!({})).await;
        let (output, _) = client.finish("quick").await;
        assert_eq!(output.find("legion: "), Some(1000));
        assert_eq!(client.limit("quick"), Some("limits.output"));
    }

    #[tokio::test]
    async fn thousands_of_short_commands_leave_nothing_behind() {
        let server = Server::start();
        let mut client = Client::open(&server).await;
        for round in 0..4 {
            let ids: Vec<_> = (0..250).map(|index| format!("{round}-{index}")).collect();
            for id in &ids {
                client.ask_start(id, "exit 3", json!({})).await;
            }
            for id in &ids {
                assert_eq!(client.finish(id).await.1, 3);
            }
        }
        assert_eq!(server.children(), 0);
        match std::fs::read_dir(format!("/proc/{}/fd", server.pid().as_raw_nonzero())) {
            Ok(descriptors) => {
                let open = descriptors.count();
                assert!(open < 32, "{open} descriptors");
            }
            // It is undumpable: only root may look.
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                assert!(!rustix::process::geteuid().is_root(), "{error}");
                eprintln!("descriptors not counted: the tests do not run as root");
            }
            Err(error) => panic!("{error}"),
        }
    }
}
