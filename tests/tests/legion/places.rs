//! Turns scenarios into tests: one for each place where commands can run.
//!
//! Invariant: every scenario runs at an original server too. It passes there, or it is the scenario that is wrong.

/// Makes each scenario a test at every place: `<place>::<scenario>`.
macro_rules! at_every_place {
    ($($scenario:ident),* $(,)?) => {
        at_place!(original_stdio OriginalStdio $($scenario)*);
        at_place!(original_url OriginalUrl $($scenario)*);
        at_place!(legion_connect LegionConnect $($scenario)*);
        at_place!(legion_url LegionUrl $($scenario)*);
    };
}

/// The same for scenarios that need a network connection between the client and the server.
macro_rules! at_every_url {
    ($($scenario:ident),* $(,)?) => {
        at_place!(original_url OriginalUrl $($scenario)*);
        at_place!(legion_url LegionUrl $($scenario)*);
    };
}

macro_rules! at_place {
    ($module:ident $place:ident $($scenario:ident)*) => {
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
