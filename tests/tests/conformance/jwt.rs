//! HS256 tokens for the signed-bearer cases (SPEC 1.3).
//!
//! Invariant: times are relative to the moment of signing, so a case means the same on every day.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use serde_json::{Value, json};

/// Signs `{"secret": text, "alg": text?, "claims": {…}}`; `exp` and `nbf` are given in seconds from now.
pub(crate) fn sign(spec: &Value) -> Result<String, String> {
    let secret = spec["secret"].as_str().ok_or("$jwt: no secret")?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_err(|e| e.to_string())?.as_secs();
    let now = i64::try_from(now).map_err(|e| e.to_string())?;
    let mut claims = spec["claims"].as_object().ok_or("$jwt: no claims")?.clone();
    for name in ["exp", "nbf"] {
        if let Some(offset) = claims.get(name).and_then(Value::as_i64) {
            claims.insert(name.into(), json!(now + offset));
        }
    }
    let header = json!({"alg": spec["alg"].as_str().unwrap_or("HS256"), "typ": "JWT"});
    let part = |value: &str| URL_SAFE_NO_PAD.encode(value);
    let signed = format!("{}.{}", part(&header.to_string()), part(&Value::Object(claims).to_string()));
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), signed.as_bytes());
    Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(tag.as_ref())))
}
