//! What Codex finds in the workspace by itself: instructions, skills, images (SPEC 11.2, 11.5).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use legion_tests::codex::Codex;
use legion_tests::mock_model::Script;
use legion_tests::model_items::{say, view_image};

use crate::stage::Stage;

at_every_place!(
    the_environment_is_described,
    instructions_are_found,
    instructions_of_all_levels_are_found,
    skills_are_found,
    an_image_is_shown,
    a_missing_image_is_reported,
);

/// A PNG of 3 × 2 pixels.
const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAMAAAACCAIAAAASFvFNAAAAEElEQVR4nGP4z8AAQQxwFgBB0gX7h/C5SAAAAABJRU5ErkJggg==";

fn nothing_but_talk() -> Script {
    Script::new().item(say("done"))
}

async fn the_environment_is_described(stage: Stage) {
    let played = stage.play(nothing_but_talk()).await;
    let request = played.first_request().text();
    assert!(request.contains("<shell>bash</shell>"), "{request}");
    assert!(request.contains(&format!("<cwd>{}</cwd>", stage.scratch.workspace().display())), "{request}");
    stage.finish(&played).await;
}

async fn instructions_are_found(stage: Stage) {
    stage.scratch.write("workspace/AGENTS.md", "Always speak of the zebra.\n");
    let played = stage.play(nothing_but_talk()).await;
    assert!(played.first_request().text().contains("Always speak of the zebra."));
    stage.finish(&played).await;
}

async fn instructions_of_all_levels_are_found(stage: Stage) {
    stage.scratch.make_directory("workspace/.git");
    stage.scratch.write("workspace/AGENTS.md", "Speak of the zebra.\n");
    stage.scratch.write("workspace/part/AGENTS.md", "Speak of the lion.\n");
    stage.scratch.write("workspace/part/AGENTS.override.md", "Speak of the tiger.\n");
    let codex = Codex::new(&stage.scratch).directory(&stage.scratch.workspace().join("part"));
    let played = stage.play_with(codex, nothing_but_talk()).await;
    let request = played.first_request().text();
    assert!(request.contains("Speak of the zebra."), "the root's instructions are missing");
    assert!(request.contains("Speak of the tiger."), "the directory's own instructions are missing");
    assert!(!request.contains("Speak of the lion."), "the override does not replace them");
    stage.finish(&played).await;
}

async fn skills_are_found(stage: Stage) {
    let skill = "---\nname: juggling\ndescription: How to juggle with lemons.\n---\nThrow them.\n";
    stage.scratch.write("workspace/.agents/skills/juggling/SKILL.md", skill);
    let played = stage.play(nothing_but_talk()).await;
    let request = played.first_request().text();
    assert!(request.contains("juggling: How to juggle with lemons."), "{request}");
    stage.finish(&played).await;
}

async fn an_image_is_shown(stage: Stage) {
    let png = STANDARD.decode(PNG).unwrap();
    let path = stage.scratch.write("workspace/pictures/dot.png", &png);
    let played = stage.play(Script::new().item(view_image("c1", &path)).item(say("done"))).await;
    let output = played.last_request().output("c1");
    let url = output[0]["image_url"].as_str().unwrap_or_else(|| panic!("no image in {output}"));
    let shown = STANDARD.decode(url.strip_prefix("data:image/png;base64,").unwrap()).unwrap();
    // The client may encode it anew; signature, width and height stay.
    assert_eq!(shown[..8], png[..8]);
    assert_eq!(shown[16..24], png[16..24]);
    stage.finish(&played).await;
}

async fn a_missing_image_is_reported(stage: Stage) {
    let path = stage.scratch.workspace().join("no.png");
    let played = stage.play(Script::new().item(view_image("c1", &path)).item(say("done"))).await;
    assert!(played.output("c1").contains("unable to locate image"), "{}", played.output("c1"));
    stage.finish(&played).await;
}
