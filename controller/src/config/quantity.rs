//! Sizes and durations as people write them: `4GiB`, `512MiB`, `8h`, `1h30m`; `0` is no limit where one may be absent.

use std::time::Duration;

use crate::failure::{Failure, Outcome};
use crate::limits::MAX_TTL;

/// Parses a duration of at least a second and at most [`MAX_TTL`].
pub fn duration(text: &str, key: &str) -> Outcome<Duration> {
    let parsed =
        text.parse::<jiff::SignedDuration>().ok().and_then(|duration| Duration::try_from(duration).ok());
    match parsed {
        Some(duration) if duration >= Duration::from_secs(1) && duration <= MAX_TTL => Ok(duration),
        _ => Err(Failure::config(format_args!(
            "`{text}` in {key} is no duration between 1s and 30 days: write 8h, 30m or 1h30m"
        ))),
    }
}

/// Parses a number of bytes.
pub fn bytes(text: &str, key: &str) -> Outcome<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "" | "B" => Some(0),
        "KiB" => Some(10),
        "MiB" => Some(20),
        "GiB" => Some(30),
        "TiB" => Some(40),
        _ => None,
    };
    let number = digits.trim().parse::<u64>().ok();
    let bytes = number.zip(factor).and_then(|(number, factor)| number.checked_mul(1 << factor));
    bytes.ok_or_else(|| Failure::config(format_args!("`{text}` in {key} is no size: write 512MiB or 4GiB")))
}

/// `None` for `0`.
pub fn optional<T>(text: &str, key: &str, parse: fn(&str, &str) -> Outcome<T>) -> Outcome<Option<T>> {
    if text == "0" { Ok(None) } else { parse(text, key).map(Some) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_durations_are_read_as_written() {
        assert_eq!(bytes("4GiB", "k").unwrap(), 4 << 30);
        assert_eq!(bytes("512 MiB", "k").unwrap(), 512 << 20);
        assert_eq!(bytes("7", "k").unwrap(), 7);
        assert_eq!(optional("0", "k", bytes).unwrap(), None);
        assert_eq!(optional("1h30m", "k", duration).unwrap(), Some(Duration::from_mins(90)));
        for bad in ["", "GiB", "4GB", "-1", "1.5GiB", "99999999999TiB", "4 G"] {
            assert!(bytes(bad, "k").unwrap_err().message.contains("no size"), "{bad}");
        }
        for bad in ["", "0s", "31d", "soon", "-1h"] {
            assert!(duration(bad, "k").unwrap_err().message.contains("no duration"), "{bad}");
        }
    }
}
