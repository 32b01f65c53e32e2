//! SPEC section 11 with the real client: each scenario at every place.
//!
//! Invariant: a scenario passes at the original server, or it is the scenario that is wrong.

/// Makes each scenario a test at every place: `<place>::<scenario>`.
macro_rules! at_every_place {
    ($($scenario:ident),* $(,)?) => {
        at_every_place!(@ original_stdio OriginalStdio $($scenario)*);
        at_every_place!(@ original_url OriginalUrl $($scenario)*);
    };
    (@ $module:ident $place:ident $($scenario:ident)*) => {
        mod $module {
            $(
                #[tokio::test]
                async fn $scenario() {
                    super::$scenario(crate::stage::Stage::at(crate::stage::Place::$place).await).await;
                }
            )*
        }
    };
}

mod commands;
mod discovery;
mod interaction;
mod isolation;
mod patches;
