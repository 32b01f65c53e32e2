//! Several controllers and one log: what one of them leaves half done must not stop or mislead the others.

use super::*;

use super::anchor::Anchored;

/// Too long for what is left of a file when [`rotate_after`] returns.
fn long() -> Record {
    record().because("long".repeat(250))
}

/// Lets `one` begin the second file right after `two` has written to the first; the head kept outside before that.
fn rotate_after(scene: &Scene, one: &mut AuditLog, two: &mut AuditLog) -> Anchored {
    loop {
        two.append(&record()).unwrap();
        assert_eq!(scene.files(), [1]);
        let head = serde_json::from_slice(&std::fs::read(scene.state().join(anchor::NAME)).unwrap()).unwrap();
        one.append(&long()).unwrap();
        if scene.files() == [1, 2] {
            return head;
        }
    }
}

#[test]
fn a_rotation_another_controller_did_not_finish_is_finished_by_a_running_one() {
    for (left, torn) in [("", 0), ("{\"e\":{\"seq\":", 1)] {
        let scene = Scene::small();
        let mut log = scene.open();
        log.append(&record()).unwrap();
        std::fs::write(scene.file(2), left).unwrap();
        (0..30).for_each(|_| assert!(log.append(&record()).is_ok()));
        drop(log);
        let report = scene.verify();
        assert_eq!((report.torn, report.findings.len()), (torn, 0), "{left}");
    }
}

#[test]
fn wherever_a_rotation_is_cut_off_another_controller_goes_on_in_the_newest_file() {
    // How much is in the new file, and whether the head kept outside tells of it.
    for (written, told) in [("nothing", false), ("nothing", true), ("half", true), ("all", true)] {
        let scene = Scene::small();
        let (mut one, mut two) = (scene.open(), scene.open());
        let before = rotate_after(&scene, &mut one, &mut two);
        let text = scene.text(2);
        let left = match written {
            "all" => text.as_str(),
            "half" => &text[..50],
            _ => "",
        };
        std::fs::write(scene.file(2), left).unwrap();
        let head = if told { Anchored { file: 2, size: 0, ..before } } else { before };
        std::fs::write(scene.state().join(anchor::NAME), serde_json::to_string(&head).unwrap()).unwrap();
        // This one would fit into the first file.
        two.append(&record()).unwrap();
        drop((two, scene.open()));
        let report = scene.verify();
        let doubts = usize::from(written == "all");
        assert_eq!(
            (report.findings.len(), report.torn),
            (doubts, u64::from(written == "half")),
            "{report:?}"
        );
        assert!(written != "all" || report.findings[0].contains("nobody vouches for records"));
    }
}

#[test]
fn all_know_of_a_new_file_before_anything_is_in_it() {
    use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
    let scene = Scene::small();
    let (mut one, mut two) = (scene.open(), scene.open());
    let watch = inotify::init(CreateFlags::NONBLOCK).unwrap();
    for dir in [scene.state(), scene.state().join(DIRECTORY)] {
        inotify::add_watch(&watch, dir, WatchFlags::MODIFY | WatchFlags::CREATE).unwrap();
    }
    rotate_after(&scene, &mut one, &mut two);
    let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
    let mut reader = Reader::new(&watch, &mut buffer);
    let mut names = Vec::new();
    while let Ok(event) = reader.next() {
        names.push(event.file_name().unwrap().to_str().unwrap().to_owned());
    }
    let next = files::name(2);
    let made = names.iter().position(|name| *name == next).unwrap();
    assert_eq!(names[made..], [&next, anchor::NAME, &next, anchor::NAME], "{names:?}");
}

#[test]
fn half_a_line_in_a_file_without_any_other_leaves_its_rotation_first() {
    let scene = Scene::small().written(30);
    let next = scene.files().last().unwrap() + 1;
    std::fs::write(scene.file(next), "{\"e\":{\"seq\":").unwrap();
    let scene = scene.written(1);
    let report = scene.verify();
    assert_eq!((report.torn, report.findings.len()), (1, 0));
}

#[test]
fn a_controller_that_could_not_take_the_chain_up_tries_again_before_it_writes() {
    let scene = Scene::small();
    let (mut one, mut two) = (scene.open(), scene.open());
    rotate_after(&scene, &mut one, &mut two);
    // It cannot be opened, for a while.
    std::fs::create_dir(scene.file(9)).unwrap();
    two.append(&record()).unwrap_err();
    std::fs::remove_dir(scene.file(9)).unwrap();
    two.append(&record()).unwrap();
    drop((one, two));
    assert_eq!(scene.verify().findings, [""; 0]);
}

#[test]
fn a_gap_two_controllers_found_is_told_once() {
    let scene = Scene::new().written(10);
    scene.edit(1, |lines| lines.truncate(8));
    let (mut one, mut two) = (scene.open(), scene.open());
    one.append(&record()).unwrap();
    two.append(&record()).unwrap();
    drop((one, two));
    scene.assert_found("records 9 to 11 are missing, as record 12 says");
}

#[test]
fn a_file_begins_by_naming_the_one_before_also_when_a_checkpoint_is_due() {
    // Among so many sizes some file is full just when a hundred records are.
    for file_bytes in (5_000..30_000).step_by(290) {
        let mut scene = Scene::new();
        scene.options.file_bytes = file_bytes;
        let scene = scene.written(230);
        assert_eq!(scene.verify().findings, [""; 0], "{file_bytes}");
    }
}
