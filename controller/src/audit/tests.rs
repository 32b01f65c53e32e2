//! The log as a whole: several writers, rotation, restarts, and every way of changing it that must be noticed.

use std::path::PathBuf;

use jiff::Timestamp;

use super::anchor;
use super::chain::{self, GENESIS, Line};
use super::clock::Moment;
use super::verify::{self, Expected, Report};
use super::*;
use crate::config::AuditOptions;
use crate::limits::{CHECKPOINT_RECORDS, MAX_KEPT_RECORDS, MAX_RECORD_BYTES, MAX_RECORD_LINE_BYTES};

mod crashed;
mod shared;

struct Scene {
    dir: tempfile::TempDir,
    options: AuditOptions,
}

impl Scene {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), options: AuditOptions::default() }
    }

    /// Files of a few records.
    fn small() -> Self {
        Self { options: AuditOptions { file_bytes: 4096, ..AuditOptions::default() }, ..Self::new() }
    }

    fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    fn open(&self) -> AuditLog {
        AuditLog::open(&self.state(), rustix::process::geteuid().as_raw(), &self.options)
            .map_err(|failure| failure.message)
            .unwrap()
    }

    /// A log of so many records, closed in good order.
    fn written(self, records: usize) -> Self {
        let mut log = self.open();
        (0..records).for_each(|_| assert!(log.append(&record()).is_ok()));
        self
    }

    fn file(&self, number: u32) -> PathBuf {
        self.state().join(DIRECTORY).join(files::name(number))
    }

    fn files(&self) -> Vec<u32> {
        files::list(std::fs::File::open(self.state().join(DIRECTORY)).unwrap()).unwrap()
    }

    fn text(&self, number: u32) -> String {
        std::fs::read_to_string(self.file(number)).unwrap()
    }

    fn edit(&self, number: u32, edit: impl FnOnce(&mut Vec<String>)) {
        let mut lines = self.text(number).split_inclusive('\n').map(str::to_owned).collect();
        edit(&mut lines);
        std::fs::write(self.file(number), lines.concat()).unwrap();
    }

    fn edit_with_a_long_line(&self, text: &str) {
        let long = "x".repeat(MAX_RECORD_LINE_BYTES + 1);
        let lines: Vec<_> = text.split_inclusive('\n').collect();
        std::fs::write(self.file(1), lines[..10].concat() + &long + "\n" + lines[10]).unwrap();
    }

    fn try_verify(&self) -> Result<Report, String> {
        let key = keys::find_public(&self.state()).unwrap();
        assert!(key.is_some());
        verify::verify(&self.state(), &Expected { key, head: None }).map_err(|error| error.to_string())
    }

    fn verify(&self) -> Report {
        self.try_verify().unwrap()
    }

    #[track_caller]
    fn assert_broken(&self, words: &str) {
        let error = self.try_verify().unwrap_err();
        assert!(error.contains(words), "{error}");
    }

    #[track_caller]
    fn assert_found(&self, words: &str) {
        let findings = self.verify().findings;
        assert!(findings.len() == 1 && findings[0].contains(words), "{findings:?}");
    }
}

fn record() -> Record {
    Record::new(Event::Call).of_session("abcdefgh")
}

/// Chains entries anew from the beginning, as a forger without the key would.
fn rechain(lines: &mut [String], change: impl Fn(&str) -> String) {
    let mut previous = GENESIS.to_owned();
    for text in lines {
        let entry = change(Line::parse(text).unwrap().e.get());
        let hash = chain::link(&previous, &entry);
        *text = chain::line(&entry, &previous, &hash);
        previous = hash;
    }
}

#[test]
fn two_writers_share_one_chain_over_many_files() {
    let scene = Scene::small();
    let (mut one, mut two) = (scene.open(), scene.open());
    for _ in 0..100 {
        let seq = one.append(&record()).unwrap();
        assert!(two.append(&record()).unwrap() > seq);
    }
    drop((one, two));
    assert!(scene.files().len() > 5);
    for number in scene.files() {
        assert!(scene.text(number).len() <= 4096);
        assert_eq!(scene.text(number).contains("\"logRotated\""), number > 1);
    }
    let report = scene.verify();
    assert_eq!(report.findings, [""; 0]);
    assert!(report.checkpoints >= 2 && report.unsigned == 0 && report.records > 200, "{report:?}");
}

#[test]
fn threads_and_reopening_lose_no_record() {
    let scene = Scene::small();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut log = scene.open();
                (0..100).for_each(|_| assert!(log.append(&record()).is_ok()));
            });
        }
    });
    let calls: usize =
        scene.files().iter().map(|number| scene.text(*number).matches("\"call\"").count()).sum();
    assert_eq!(calls, 400);
    assert_eq!(scene.verify().findings, [""; 0]);
}

#[test]
fn deferred_records_keep_their_place_and_are_not_lost() {
    let scene = Scene::new();
    let mut log = scene.open();
    assert_eq!(log.append(&record()).unwrap(), 1);
    log.defer(&record().because("first")).unwrap();
    log.defer(&record().because("second")).unwrap();
    assert_eq!(log.append(&record()).unwrap(), 4);
    log.defer(&record()).unwrap();
    drop(log);
    assert_eq!(scene.verify().head.seq, 6, "five and a checkpoint");
    let text = scene.text(1);
    assert!(text.find("first").unwrap() < text.find("second").unwrap());
}

#[test]
fn records_that_cannot_be_written_are_kept_while_there_is_room_and_then_counted() {
    let scene = Scene::small();
    let mut log = scene.open();
    // Nothing can be written once the first file is full.
    std::fs::create_dir_all(scene.file(2)).unwrap();
    while log.append(&record()).is_ok() {}
    (0..MAX_KEPT_RECORDS).for_each(|_| assert!(log.defer(&record().because("kept")).is_ok()));
    (0..2).for_each(|_| assert!(log.defer(&record().because("lost")).is_err()));
    std::fs::remove_dir(scene.file(2)).unwrap();
    log.defer(&record().because("kept")).unwrap();
    drop(log);
    let text: String = scene.files().into_iter().map(|number| scene.text(number)).collect();
    assert_eq!(text.matches("\"kept\"").count(), MAX_KEPT_RECORDS + 1);
    assert!(!text.contains("\"lost\"") && text.contains("\"dropped\":2"));
    assert_eq!(scene.verify().findings, [""; 0]);
}

#[test]
fn a_record_that_is_too_long_is_counted_and_keeps_no_other_from_being_written() {
    let scene = Scene::new();
    let mut log = scene.open();
    log.defer(&record().because("x".repeat(MAX_RECORD_BYTES))).unwrap_err();
    assert_eq!(log.append(&record()).unwrap(), 2);
    assert!(scene.text(1).contains("\"dropped\":1"));
}

#[test]
fn a_number_is_that_of_the_record_also_when_a_checkpoint_is_due() {
    let scene = Scene::new();
    let mut log = scene.open();
    for _ in 0..CHECKPOINT_RECORDS * 3 {
        let seq = log.append(&record().because("mine")).unwrap();
        let text = scene.text(1);
        let last = text.lines().last().unwrap();
        assert!(last.contains(&format!("\"seq\":{seq},")) && last.contains("mine"));
    }
}

#[test]
fn each_record_is_durable_when_that_is_asked_for() {
    let mut scene = Scene::small();
    scene.options.sync_always = true;
    let scene = scene.written(30);
    assert_eq!(scene.verify().findings, [""; 0]);
}

#[test]
fn a_torn_tail_is_cut_and_told() {
    let scene = Scene::new().written(1);
    std::fs::write(scene.file(1), scene.text(1) + "{\"e\":{\"seq\":3,").unwrap();
    scene.assert_broken("line 3: the last line is torn");
    let mut log = scene.open();
    assert_eq!(log.append(&record()).unwrap(), 4);
    drop(log);
    let report = scene.verify();
    assert_eq!((report.torn, report.findings.len()), (1, 0));
}

#[test]
fn a_spoiled_last_line_stops_work_instead_of_starting_a_new_chain() {
    let scene = Scene::new().written(1);
    std::fs::write(scene.file(1), scene.text(1) + "junk\n").unwrap();
    let uid = rustix::process::geteuid().as_raw();
    let failure = AuditLog::open(&scene.state(), uid, &scene.options).err().unwrap();
    assert!(failure.message.contains("spoiled"), "{}", failure.message);
}

#[test]
fn changed_removed_and_moved_records_are_named() {
    let scene = Scene::new().written(10);
    let text = scene.text(1);
    let restore = || std::fs::write(scene.file(1), &text).unwrap();
    scene.edit(1, |lines| lines[4] = lines[4].replace("abcdefgh", "abcdefgx"));
    scene.assert_broken("audit-000001.jsonl line 5: record 5 was changed");
    restore();
    scene.edit(1, |lines| drop(lines.remove(4)));
    scene.assert_broken("line 5: record 5 should follow, but this is record 6");
    restore();
    scene.edit(1, |lines| lines.swap(4, 5));
    scene.assert_broken("line 5: record 5 should follow, but this is record 6");
    restore();
    let mut bytes = text.clone().into_bytes();
    let place = text.find("abcdefgh").unwrap();
    bytes[place] = 0xff;
    std::fs::write(scene.file(1), bytes).unwrap();
    scene.assert_broken("audit-000001.jsonl line 1: the line is not UTF-8");
    scene.edit_with_a_long_line(&text);
    scene.assert_broken("audit-000001.jsonl line 11: the line is longer than");
    let other = Scene::new().written(10);
    let spliced = other.text(1).split_inclusive('\n').nth(4).unwrap().to_owned();
    scene.edit(1, |lines| lines[4] = spliced);
    scene.assert_broken("line 5: record 5 does not follow the record before it");
}

#[test]
fn a_log_that_was_chained_anew_is_not_signed() {
    let scene = Scene::new().written(10);
    scene.edit(1, |lines| rechain(lines, |entry| entry.replace("abcdefgh", "abcdefgx")));
    scene.assert_broken("line 11: the checkpoint after record 10 signs another record");
    // Without its checkpoints there are too many records nobody signed.
    let scene = Scene::new().written(150);
    scene.edit(1, |lines| {
        let change = |entry: &str| entry.replace("\"checkpoint\"", "\"outcome\"");
        rechain(lines, change);
    });
    scene.assert_broken("line 102: records 1 to 102 were never signed");
}

#[test]
fn an_appended_record_is_noticed_before_and_after_a_restart() {
    let scene = Scene::new().written(3);
    scene.edit(1, |lines| {
        let last = Line::parse(lines.last().unwrap()).unwrap().h.to_owned();
        let entry = r#"{"seq":5,"event":"call","decision":"allow"}"#;
        lines.push(chain::line(entry, &last, &chain::link(&last, entry)));
    });
    scene.assert_broken("nobody vouches for records 5 to 5");
    drop(scene.open());
    scene.assert_found("nobody vouches for records 5 to 5, as record 6 says");
}

#[test]
fn a_cut_tail_is_a_gap_whatever_is_written_afterwards() {
    let scene = Scene::new().written(10);
    scene.edit(1, |lines| lines.truncate(8));
    scene.assert_broken("records 9 to 11 had been written and are missing");
    let mut log = scene.open();
    assert_eq!(log.append(&record()).unwrap(), 13, "a gap record, and no number twice");
    drop(log);
    scene.assert_found("records 9 to 11 are missing, as record 12 says");
}

#[test]
fn a_tail_that_is_cut_while_a_controller_runs_is_noticed_by_it() {
    let scene = Scene::new();
    let mut log = scene.open();
    (0..10).for_each(|_| assert!(log.append(&record()).is_ok()));
    scene.edit(1, |lines| lines.truncate(8));
    log.append(&record()).unwrap();
    drop(log);
    scene.assert_found("records 9 to 10 are missing, as record 11 says");
}

#[test]
fn what_is_cut_at_the_border_of_files_is_noticed() {
    let cut_last = |scene: &Scene| std::fs::remove_file(scene.file(*scene.files().last().unwrap())).unwrap();
    let scene = Scene::small().written(30);
    cut_last(&scene);
    scene.assert_broken("had been written and are missing");
    drop(scene.open());
    scene.assert_found("are missing, as record ");

    let scene = Scene::small().written(30);
    std::fs::remove_file(scene.file(2)).unwrap();
    scene.assert_broken("audit-000003.jsonl line 1: audit-000002.jsonl is missing");

    let scene = Scene::small().written(30);
    scene.edit(1, |lines| drop(lines.pop()));
    scene.assert_broken("audit-000002.jsonl line 1: audit-000001.jsonl ended at record");

    let scene = Scene::small().written(30);
    std::fs::remove_file(scene.file(1)).unwrap();
    scene.assert_found("are not here: audit-000001.jsonl is missing");
}

#[test]
fn three_restarts_and_a_crash_in_the_middle_of_a_rotation_keep_the_chain() {
    let scene = Scene::small().written(30).written(30).written(30);
    let next = scene.files().last().unwrap() + 1;
    // Killed after the new file was made and before anything was in it.
    std::fs::write(scene.file(next), "").unwrap();
    let scene = scene.written(3);
    assert_eq!(scene.verify().findings, [""; 0]);
    assert!(scene.text(next).contains("logRotated"));
}

#[test]
fn a_head_that_is_gone_or_nonsense_is_told() {
    for content in [None, Some("nonsense")] {
        let scene = Scene::new().written(3);
        let path = scene.state().join(anchor::NAME);
        match content {
            None => std::fs::remove_file(&path).unwrap(),
            Some(text) => std::fs::write(&path, text).unwrap(),
        }
        scene.assert_found("audit.head is missing");
        drop(scene.open());
        scene.assert_found("audit.head was missing when record 5 was written");
    }
}

#[test]
fn a_head_noted_elsewhere_must_be_there() {
    let scene = Scene::new().written(3);
    let noted = scene.verify().head.hash;
    let scene = scene.written(3);
    let expect = |head: &str| {
        let head = Some(head.to_owned());
        verify::verify(&scene.state(), &Expected { key: None, head }).map_err(|error| error.to_string())
    };
    assert_eq!(expect(&noted).unwrap().findings, [""; 0]);
    // A copy may lack what is kept beside the log; who knows its end needs no more.
    std::fs::remove_file(scene.state().join(anchor::NAME)).unwrap();
    assert!(expect(&noted).unwrap().findings[0].contains("audit.head is missing"));
    assert_eq!(expect(&scene.verify().head.hash).unwrap().findings, [""; 0]);
    assert!(expect(GENESIS).unwrap_err().contains("the log was cut or written anew"));
}

#[test]
fn a_clock_that_jumps_leaves_a_note_and_no_disorder() {
    thread_local!(static NOW: std::cell::Cell<(i64, i64)> = const { std::cell::Cell::new((0, 0)) });
    fn now() -> Moment {
        let (wall, uptime_ms) = NOW.get();
        Moment { wall: Timestamp::from_millisecond(wall).unwrap(), uptime_ms }
    }
    let scene = Scene::new();
    let mut log = scene.open();
    NOW.set((4_999_500, 500));
    log.use_clock(now);
    for moment in [(5_000_000, 1_000), (5_001_000, 2_000), (2_000_000, 3_000), (2_001_000, 4_000)] {
        NOW.set(moment);
        log.append(&record()).unwrap();
    }
    drop(log);
    let text = scene.text(1);
    assert_eq!(text.matches("\"clockJumped\"").count(), 1);
    assert!(text.contains("the clock was set back by 3002.000 s"), "{text}");
    assert_eq!(scene.verify().findings, [""; 0]);
}
