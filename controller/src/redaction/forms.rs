//! The forms a value takes in output: as it is, in JSON, in a URL, in hexadecimal, in base64 at any place. Pure.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

use crate::audit::chain::hex;
use crate::limits::MIN_REDACTED_BYTES;

/// All forms of a value, each long enough to be looked for.
pub fn of(value: &str) -> Vec<Vec<u8>> {
    let mut forms = vec![value.to_owned(), value.replace('\n', "\r\n")];
    let json = serde_json::Value::from(value).to_string();
    let json = json[1..json.len() - 1].to_owned();
    forms.extend([json.replace('/', "\\/"), ascii_json(&json), json]);
    for upper in [true, false] {
        forms.extend([percent(value, "%20", upper), percent(value, "+", upper)]);
    }
    let digits = hex(value.as_bytes());
    forms.extend([digits.to_ascii_uppercase(), digits]);
    for place in 0..3 {
        forms.extend([base64(&STANDARD_NO_PAD, value, place), base64(&URL_SAFE_NO_PAD, value, place)]);
    }
    forms.sort();
    forms.dedup();
    forms.retain(|form| form.len() >= MIN_REDACTED_BYTES);
    forms.into_iter().map(String::into_bytes).collect()
}

/// JSON text as writers give it that escape all but ASCII.
fn ascii_json(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        if c.is_ascii() {
            text.push(c);
        } else {
            let mut units = [0; 2];
            text.extend(c.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")));
        }
    }
    text
}

fn percent(value: &str, space: &str, upper: bool) -> String {
    let mut text = String::with_capacity(value.len() * 3);
    for byte in value.bytes() {
        match byte {
            b' ' => text.push_str(space),
            b'-' | b'.' | b'_' | b'~' => text.push(char::from(byte)),
            _ if byte.is_ascii_alphanumeric() => text.push(char::from(byte)),
            _ => {
                let digits = hex(&[byte]);
                text.push('%');
                text.push_str(&if upper { digits.to_ascii_uppercase() } else { digits });
            }
        }
    }
    text
}

/// The characters that only the value determines, when it begins `place` bytes after a multiple of three.
fn base64(engine: &impl Engine, value: &str, place: usize) -> String {
    let bytes = [&[0, 0][..place], value.as_bytes()].concat();
    let text = engine.encode(&bytes);
    let begin = (place * 8).div_ceil(6);
    text[begin..bytes.len() * 8 / 6].to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Wherever in a longer text the value stands, its base64 holds one of the forms.
        #[test]
        fn base64_is_found_at_any_place(value in "[ -~]{6,40}", before in "[ -~]{0,9}", after in "[ -~]{0,9}") {
            let forms = of(&value);
            for engine in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
                let text = engine.encode(format!("{before}{value}{after}"));
                prop_assert!(forms.iter().any(|form| text.contains(std::str::from_utf8(form).unwrap())), "{text}");
            }
        }
    }

    #[test]
    fn escaped_forms_are_as_others_write_them() {
        let forms = of("a\"b/c é\n");
        for form in [
            "a\\\"b/c é\\n",
            "a\\\"b\\/c é\\n",
            "a\\\"b/c \\u00e9\\n",
            "a%22b%2Fc%20%C3%A9%0A",
            "a%22b%2fc+%c3%a9%0a",
            "6122622f6320c3a90a",
            "a\"b/c é\r\n",
        ] {
            assert!(forms.contains(&form.as_bytes().to_vec()), "{form}");
        }
        assert!(of("plain-value").iter().all(|form| form.len() >= MIN_REDACTED_BYTES));
    }
}
