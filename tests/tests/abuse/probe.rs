//! One attempt, and what must become of it in each kind of sandbox.
//!
//! Invariant: an attempt is data. Where the view makes the outcome another, the reason is written beside it; that root
//! has started Legion makes no difference.

/// Words for `abuse-probe`, and the expected outcomes: error names, or what is seen; `A|B` accepts either.
///
/// Placeholders in braces are those of [`crate::scene::Scene::fill_in`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Probe {
    pub(crate) attempt: &'static str,
    expected: &'static str,
    in_host_ro: Option<Different>,
    unconfined: Option<&'static str>,
}

/// Another outcome, and why.
#[derive(Debug, Clone, Copy)]
struct Different {
    expected: &'static str,
    because: &'static str,
}

/// An attempt with this outcome in every sandbox, unless it says more.
pub(crate) const fn probe(attempt: &'static str, expected: &'static str) -> Probe {
    Probe { attempt, expected, in_host_ro: None, unconfined: None }
}

impl Probe {
    /// Where the whole host is shown read-only the outcome is another.
    pub(crate) const fn host_ro(self, expected: &'static str, because: &'static str) -> Self {
        Self { in_host_ro: Some(Different { expected, because }), ..self }
    }

    /// What the same user gets without a sandbox: shows that it is the sandbox that makes the difference.
    pub(crate) const fn unconfined(self, expected: &'static str) -> Self {
        Self { unconfined: Some(expected), ..self }
    }

    /// The expected outcome, and the reason when it is that of the view `host-ro` alone.
    pub(crate) fn expected(&self, host_ro: bool) -> (&'static str, Option<&'static str>) {
        let different = self.in_host_ro.filter(|_| host_ro);
        different.map_or((self.expected, None), |different| (different.expected, Some(different.because)))
    }

    /// See [`Self::unconfined`].
    pub(crate) fn expected_unconfined(&self) -> Option<&'static str> {
        self.unconfined
    }

    /// Whether the view `host-ro` gives another outcome.
    pub(crate) fn differs(&self) -> bool {
        self.in_host_ro.is_some()
    }
}
