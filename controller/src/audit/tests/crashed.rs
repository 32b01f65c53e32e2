//! What a crash, a restart or a hand on the files leaves behind, and what the log makes of it.

use super::*;

#[test]
fn an_end_that_is_all_zeros_is_a_gap() {
    let scene = Scene::new().written(10);
    let text = scene.text(1);
    let kept: usize = text.split_inclusive('\n').take(8).map(str::len).sum();
    // As long as it was: the machine died when its length was on disk and its content was not.
    let zeros = vec![0; text.len() - kept];
    std::fs::write(scene.file(1), [&text.as_bytes()[..kept], &zeros].concat()).unwrap();
    let mut log = scene.open();
    assert_eq!(log.append(&record()).unwrap(), 14, "a gap, what was cut, and no number twice");
    drop(log);
    scene.assert_found("records 9 to 11 are missing, as record 12 says");
    assert_eq!(scene.verify().torn, 1);
}

#[test]
fn a_file_that_is_moved_away_under_a_running_controller_is_missed() {
    for replaced in [false, true] {
        let scene = Scene::new();
        let mut log = scene.open();
        (0..5).for_each(|_| assert!(log.append(&record()).is_ok()));
        let text = scene.text(1);
        let away = scene.state().join("away");
        std::fs::rename(scene.file(1), &away).unwrap();
        if replaced {
            std::fs::write(scene.file(1), &text).unwrap();
        }
        log.append(&record()).unwrap();
        drop(log);
        assert_eq!(std::fs::read_to_string(&away).unwrap(), text);
        if replaced {
            assert_eq!(scene.verify().findings, [""; 0]);
        } else {
            scene.assert_found("records 1 to 5 are missing, as record 6 says");
        }
    }
}

#[test]
fn what_stops_work_leaves_everything_as_it_is() {
    let scene = Scene::new().written(3);
    let text = scene.text(1) + "{\"e\":{\"seq\":";
    std::fs::write(scene.file(1), &text).unwrap();
    std::fs::write(scene.file(2), "junk\n").unwrap();
    let uid = rustix::process::geteuid().as_raw();
    let failure = AuditLog::open(&scene.state(), uid, &scene.options).err().unwrap();
    assert!(failure.message.contains("audit-000002.jsonl is spoiled"), "{}", failure.message);
    assert_eq!(scene.text(1), text);
    // Moved away and looked at, as the message says.
    std::fs::remove_file(scene.file(2)).unwrap();
    let scene = scene.written(1);
    assert_eq!((scene.verify().torn, scene.verify().findings.len()), (1, 0));
}

#[test]
fn a_head_that_was_lost_is_told_though_the_first_to_see_it_is_killed() {
    let scene = Scene::new().written(3);
    let path = scene.state().join(anchor::NAME);
    std::fs::remove_file(&path).unwrap();
    // Killed after it was opened: nothing is written at the end.
    std::mem::forget(scene.open());
    drop(scene.open());
    scene.assert_found("audit.head was missing when record 5 was written");
}

#[test]
fn a_clock_set_back_while_nobody_ran_is_noted() {
    fn tomorrow() -> Moment {
        let now = Moment::now();
        Moment { wall: now.wall + jiff::SignedDuration::from_hours(24), ..now }
    }
    let scene = Scene::new();
    let mut log = scene.open();
    log.use_clock(tomorrow);
    log.append(&record()).unwrap();
    drop(log);
    let scene = scene.written(1).written(1);
    let text = scene.text(1);
    assert_eq!(text.matches("\"clockJumped\"").count(), 1, "{text}");
    assert!(text.contains(" s before the last record: it was set back"), "{text}");
    assert_eq!(scene.verify().findings, [""; 0]);
}

#[test]
fn the_last_of_long_records_is_found() {
    let scene = Scene::new();
    let mut log = scene.open();
    let padded = |length: usize| record().because("x".repeat(length));
    for length in [10, 70_000, 3_000_000, 600_000] {
        log.append(&padded(length)).unwrap();
    }
    // Not closed in good order: the last record is a long one.
    std::mem::forget(log);
    let mut log = scene.open();
    assert_eq!(log.append(&record()).unwrap(), 5);
    drop(log);
    assert_eq!(scene.verify().findings, [""; 0]);
}
