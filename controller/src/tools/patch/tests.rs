//! Patches as models write them.

use proptest::prelude::*;

use super::*;

fn patch(body: &str) -> String {
    format!("*** Begin Patch\n{body}\n*** End Patch\n")
}

/// Applies the changes of one `*** Update File: f`.
fn changed(content: &str, body: &str) -> Result<String, String> {
    let operations = parse(&patch(&format!("*** Update File: f\n{body}")))?;
    let [Operation::Update { changes, .. }] = &operations[..] else { panic!("{operations:?}") };
    apply(content.as_bytes(), changes).map(|bytes| String::from_utf8(bytes).unwrap())
}

#[test]
fn every_operation_is_read() {
    let text = patch(
        "*** Add File: a b.txt\n+one\n+\n+two\n*** Delete File: d\n*** Update File: u\n*** Move to: v/w\n@@ fn f\n x\n-y\n+z\n@@\n+end\n*** End of File",
    );
    let operations = parse(&text).unwrap();
    assert_eq!(operations[0], Operation::Add { path: "a b.txt".into(), content: "one\n\ntwo\n".into() });
    assert_eq!(operations[1], Operation::Delete { path: "d".into() });
    let Operation::Update { path, move_to, changes } = &operations[2] else { panic!("{operations:?}") };
    assert_eq!((path.as_str(), move_to.as_deref(), changes.len()), ("u", Some("v/w"), 2));
    assert_eq!(changes[0].anchors, ["fn f"]);
    assert!(changes[1].at_end && !changes[0].at_end);
}

#[test]
fn what_surrounds_a_patch_is_skipped() {
    let text = format!("apply_patch <<'EOF'\n{}EOF", patch("*** Delete File: d"));
    assert_eq!(parse(&text).unwrap(), [Operation::Delete { path: "d".into() }]);
    let text = patch("*** Add File: a\n+x").replace('\n', "\r\n");
    assert_eq!(parse(&text).unwrap(), [Operation::Add { path: "a".into(), content: "x\n".into() }]);
}

#[test]
fn what_is_wrong_is_said() {
    for (text, what) in [
        ("", "begins with"),
        ("*** Begin Patch\n*** Delete File: d", "ends with"),
        (&patch(""), "changes nothing"),
        (&patch("*** Add File: a\nx"), "line 3: each line of a new file"),
        (&patch("*** Update File: a"), "line 2: no change"),
        (&patch("*** Update File: a\n x\nyz"), "line 4: a line of a change"),
        (&patch("*** Rename File: a"), "line 2: `*** Rename File: a`"),
        (&patch("*** Delete File: a\n-x"), "line 3"),
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.contains(what), "{text:?}: {error}");
    }
}

#[test]
fn changes_are_made_in_order() {
    assert_eq!(changed("a\nb\nc\nd\n", " a\n-b\n+B\n@@\n c\n+x\n d").unwrap(), "a\nB\nc\nx\nd\n");
    // The second change is looked for behind the first.
    assert_eq!(changed("x\ny\nx\ny\n", "-x\n+1\n@@\n-x\n+2").unwrap(), "1\ny\n2\ny\n");
}

#[test]
fn anchors_choose_among_equal_places() {
    let content = "class A\n  def f\n    pass\nclass B\n  def f\n    pass\n";
    let body = "@@ class B\n@@   def f\n-    pass\n+    return";
    assert_eq!(changed(content, body).unwrap(), "class A\n  def f\n    pass\nclass B\n  def f\n    return\n");
    assert!(changed(content, "@@ class C\n-    pass").unwrap_err().contains("`class C`"));
}

#[test]
fn only_new_lines_go_behind_the_anchor_or_to_the_end() {
    assert_eq!(changed("a\nb\n", "+c").unwrap(), "a\nb\nc\n");
    assert_eq!(changed("a\nb\n", "@@ a\n+c").unwrap(), "a\nc\nb\n");
    assert_eq!(changed("", "+c").unwrap(), "c\n");
}

#[test]
fn line_ends_are_kept() {
    assert_eq!(changed("a\r\nb\r\nc\r\n", " a\n-b\n+B\n+B2").unwrap(), "a\r\nB\r\nB2\r\nc\r\n");
    assert_eq!(changed("a\nb", "-b\n+c\n+d").unwrap(), "a\nc\nd");
    assert_eq!(changed("a\nb", " b\n+c").unwrap(), "a\nb\nc");
    assert_eq!(changed("a\nb", "-b").unwrap(), "a");
    assert_eq!(changed("a\n", "-a").unwrap(), "");
}

#[test]
fn white_space_may_differ_when_nothing_else_fits() {
    assert_eq!(changed("a  \n\tb\n", " a\n-b\n+\tc").unwrap(), "a  \n\tc\n");
    assert_eq!(changed(" x\nx\n", "-x\n+y").unwrap(), " x\ny\n");
    // A blank line that belongs to the patch, not to the file.
    assert_eq!(changed("a\nb\n", " a\n-b\n+c\n").unwrap(), "a\nc\n");
}

#[test]
fn the_end_of_the_file_is_preferred_when_it_is_named() {
    assert_eq!(changed("x\ny\nx\n", "-x\n+z\n*** End of File").unwrap(), "x\ny\nz\n");
}

#[test]
fn lines_that_are_not_there_are_shown() {
    let error = changed("a\nb\n", " a\n-c\n+d").unwrap_err();
    assert_eq!(error, "change 1: the lines `a`, `c` are not there one after the other");
}

#[test]
fn bytes_of_other_lines_are_kept() {
    let operations = parse(&patch("*** Update File: f\n-b\n+c")).unwrap();
    let [Operation::Update { changes, .. }] = &operations[..] else { panic!("{operations:?}") };
    assert_eq!(apply(b"caf\xe9\r\nb\n\xff", changes).unwrap(), b"caf\xe9\r\nc\n\xff");
}

proptest! {
    #[test]
    fn nothing_panics(text in "[ab+@* \n-]{0,80}", content in prop::collection::vec(any::<u8>(), 0..60)) {
        let body = format!("*** Update File: f\n{text}");
        if let Ok(operations) = parse(&patch(&body)) {
            for operation in &operations {
                if let Operation::Update { changes, .. } = operation {
                    let _ = apply(&content, changes);
                }
            }
        }
    }
}
