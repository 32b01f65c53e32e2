//! Several controllers and one log: what one of them leaves half done must not stop or mislead the others.

use super::*;

/// Too long for what is left of a file when [`rotate_after`] returns.
fn long() -> Record {
    record().because("long".repeat(250))
}

/// Lets `one` begin the second file right after `two` has written to the first; the head kept outside before that.
fn rotate_after(scene: &Scene, one: &mut AuditLog, two: &mut AuditLog) -> Vec<u8> {
    loop {
        two.append(&record()).unwrap();
        assert_eq!(scene.files(), [1]);
        let head = std::fs::read(scene.state().join(anchor::NAME)).unwrap();
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
fn records_of_a_rotation_that_was_not_told_are_taken_up_by_a_running_controller() {
    let scene = Scene::small();
    let (mut one, mut two) = (scene.open(), scene.open());
    let head = scene.state().join(anchor::NAME);
    let before = rotate_after(&scene, &mut one, &mut two);
    // Killed after the first records of the new file and before the head was written.
    std::fs::write(&head, before).unwrap();
    two.append(&long()).unwrap();
    drop((two, one));
    scene.assert_found("nobody vouches for records");
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
