//! Two clocks beside each other: what people read, and what only goes forward. Pure but for [`Moment::now`].

use jiff::Timestamp;

use crate::limits::CLOCK_TOLERANCE;

/// One moment on both clocks.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// The clock people read; it may be set.
    pub wall: Timestamp,
    /// Milliseconds since the machine started, sleep included.
    pub uptime_ms: i64,
}

impl Moment {
    /// This moment.
    pub fn now() -> Self {
        let uptime = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Self {
            wall: Timestamp::now(),
            uptime_ms: uptime.tv_sec.saturating_mul(1000) + uptime.tv_nsec / 1_000_000,
        }
    }

    /// Whether the clock people read stands before a time that has been; one line.
    pub fn behind(&self, past: Timestamp) -> Option<String> {
        let behind = past.as_millisecond() - self.wall.as_millisecond();
        let text = || {
            format!(
                "the clock stands {}.{:03} s before the last record: it was set back",
                behind / 1000,
                behind % 1000
            )
        };
        (behind > tolerance()).then(text)
    }

    /// What the clock people read did meanwhile that time did not; one line, when it is worth one.
    pub fn jump_since(&self, before: &Self) -> Option<String> {
        let passed = self.uptime_ms - before.uptime_ms;
        let shown = self.wall.as_millisecond() - before.wall.as_millisecond();
        let jump = shown - passed;
        (jump.abs() > tolerance()).then(|| {
            let way = if jump < 0 { "back" } else { "forward" };
            format!("the clock was set {way} by {}.{:03} s", jump.abs() / 1000, jump.abs() % 1000)
        })
    }
}

fn tolerance() -> i64 {
    i64::try_from(CLOCK_TOLERANCE.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_time_does_not_explain_is_a_jump() {
        let at = |wall_ms: i64, uptime_ms: i64| Moment {
            wall: Timestamp::from_millisecond(wall_ms).unwrap(),
            uptime_ms,
        };
        let before = at(1_000_000, 5_000);
        assert_eq!(at(1_060_000, 65_000).jump_since(&before), None);
        assert_eq!(at(1_060_900, 65_000).jump_since(&before), None);
        assert_eq!(at(0, 6_000).jump_since(&before).as_deref(), Some("the clock was set back by 1001.000 s"));
        assert_eq!(before.behind(at(1_001_000, 0).wall), None);
        let text = "the clock stands 1.001 s before the last record: it was set back";
        assert_eq!(before.behind(at(1_001_001, 0).wall).as_deref(), Some(text));
        assert!(at(9_000_000, 6_000).jump_since(&before).unwrap().contains("forward by 7999.000 s"));
    }
}
