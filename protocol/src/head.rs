//! The head of a frame: what kind it is, its id and its method, read in one pass over the text (SPEC 2).
//!
//! Invariant: both tiers read frames through [`Head::parse`]. It accepts an object only, refuses duplicate members of
//! the envelope, and refuses a frame that could be read as two kinds.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::frame::Params;
use crate::jsonrpc::RequestId;
use crate::object::{self, Text};
use crate::scan;

/// A frame, borrowed from its text.
#[derive(Debug)]
pub enum Head<'a> {
    /// `{"id", "method", "params"?}`
    Request {
        /// Echoed in the answer.
        id: RequestId,
        /// The wire name, perhaps unknown.
        method: Cow<'a, str>,
        /// Not yet decoded; `None` when absent.
        params: Option<Params<'a>>,
    },
    /// `{"method", "params"?}`
    Notification {
        /// The wire name, perhaps unknown.
        method: Cow<'a, str>,
        /// Not yet decoded; `None` when absent.
        params: Option<&'a RawValue>,
    },
    /// `{"id", "result"}`
    Response {
        /// Of the request it answers.
        id: RequestId,
        /// Not yet decoded.
        result: &'a RawValue,
    },
    /// `{"error", "id"}`
    Error {
        /// Of the request it answers.
        id: RequestId,
        /// Not yet decoded.
        error: &'a RawValue,
    },
}

impl<'a> Head<'a> {
    /// Reads the head of one frame.
    ///
    /// # Errors
    /// One line that says why the text is no frame; the caller answers as SPEC 2.3 says.
    pub fn parse(text: &'a str) -> Result<Self, String> {
        scan::check(text)?;
        Self::of_checked(text)
    }

    /// Reads the head of a text that [`scan::check`] has passed.
    pub(crate) fn of_checked(text: &'a str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }
}

/// The integer id of a result frame that starts as this crate writes it, without reading the rest: a relay that only
/// matches answers to requests need not scan megabytes. `None` sends the caller to [`Head::parse`].
pub fn result_id(text: &str) -> Option<RequestId> {
    let rest = text.strip_prefix("{\"id\":")?;
    let (digits, rest) = rest.split_at(rest.find(',')?);
    rest.starts_with(",\"result\":").then(|| digits.parse().ok().map(RequestId::Integer)).flatten()
}

/// The integer id and the method of a request that starts as the real client writes it, without reading the rest: for one
/// who only counts requests. `None` sends the caller to [`Head::parse`].
pub fn request_start(text: &str) -> Option<(RequestId, &str)> {
    let rest = text.strip_prefix("{\"id\":")?;
    let (digits, rest) = rest.split_at(rest.find(',')?);
    let rest = rest.strip_prefix(",\"method\":\"")?;
    let method = &rest[..rest.find('"')?];
    Some((RequestId::Integer(digits.parse().ok()?), method))
}

#[derive(Default)]
struct Members<'a> {
    id: Option<RequestId>,
    method: Option<Cow<'a, str>>,
    params: Option<&'a RawValue>,
    result: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
}

impl<'a> Members<'a> {
    fn into_head<E: de::Error>(self) -> Result<Head<'a>, E> {
        let Self { id, method, params, result, error } = self;
        match (id, method, result, error) {
            (Some(id), Some(method), None, None) => {
                Ok(Head::Request { id, method, params: params.map(Params::from) })
            }
            (None, Some(method), None, None) => Ok(Head::Notification { method, params }),
            (Some(id), None, Some(result), None) => Ok(Head::Response { id, result }),
            (Some(id), None, None, Some(error)) => Ok(Head::Error { id, error }),
            _ => Err(E::custom("data did not match any kind of JSON-RPC message")),
        }
    }
}

/// A member of the envelope. Unknown ones are skipped (SPEC 2.2).
enum Member {
    Id,
    Method,
    Params,
    Result,
    Error,
    Trace,
    Other,
}

impl<'de> Deserialize<'de> for Member {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MemberVisitor;
        impl Visitor<'_> for MemberVisitor {
            type Value = Member;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a member name")
            }
            fn visit_str<E: de::Error>(self, name: &str) -> Result<Member, E> {
                Ok(match name {
                    "id" => Member::Id,
                    "method" => Member::Method,
                    "params" => Member::Params,
                    "result" => Member::Result,
                    "error" => Member::Error,
                    "trace" => Member::Trace,
                    _ => Member::Other,
                })
            }
        }
        deserializer.deserialize_identifier(MemberVisitor)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Head<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(HeadVisitor)
    }
}

struct HeadVisitor;

impl<'de> Visitor<'de> for HeadVisitor {
    type Value = Head<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON-RPC message object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Head<'de>, A::Error> {
        let mut members = Members::default();
        while let Some(member) = access.next_key()? {
            match member {
                Member::Id => set(&mut members.id, access.next_value()?, "id")?,
                Member::Method => set(&mut members.method, access.next_value::<Text<'de>>()?.0, "method")?,
                Member::Params => set(&mut members.params, access.next_value()?, "params")?,
                Member::Result => set(&mut members.result, access.next_value()?, "result")?,
                Member::Error => set(&mut members.error, access.next_value()?, "error")?,
                Member::Trace => {
                    access.next_value::<Trace>()?;
                }
                Member::Other => {
                    access.next_value::<IgnoredAny>()?;
                }
            }
        }
        members.into_head()
    }
}

fn set<T, E: de::Error>(slot: &mut Option<T>, value: T, name: &'static str) -> Result<(), E> {
    if slot.replace(value).is_some() { Err(E::duplicate_field(name)) } else { Ok(()) }
}

/// The client's tracing context; checked and not used (SPEC 2).
#[derive(Deserialize)]
struct Trace(
    #[serde(deserialize_with = "object::optional")]
    #[allow(dead_code, reason = "only its shape matters")]
    Option<TraceContext>,
);

#[derive(Deserialize)]
#[allow(dead_code, reason = "only its shape matters")]
struct TraceContext {
    #[serde(default)]
    traceparent: Option<String>,
    #[serde(default)]
    tracestate: Option<String>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::jsonrpc::request_text;

    #[test]
    fn the_four_kinds_are_told_apart() {
        assert!(matches!(
            Head::parse(r#"{"id":1,"method":"process/read","params":{}}"#).unwrap(),
            Head::Request {
                id: RequestId::Integer(1),
                method: Cow::Borrowed("process/read"),
                params: Some(_)
            }
        ));
        assert!(matches!(
            Head::parse(r#"{"method":"initialized"}"#).unwrap(),
            Head::Notification { params: None, .. }
        ));
        for trace in ["null", "{}", r#"{"traceparent":"00-a-b-01","tracestate":null,"more":1}"#] {
            assert!(Head::parse(&format!(r#"{{"id":1,"method":"x","trace":{trace}}}"#)).is_ok());
        }
        assert!(matches!(Head::parse(r#"{"id":"x","result":null}"#).unwrap(), Head::Response { .. }));
        assert!(matches!(Head::parse(r#"{"error":{},"id":1,"jsonrpc":"2.0"}"#).unwrap(), Head::Error { .. }));
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        for text in [
            "",
            "1",
            "[]",
            r#"[{"id":1,"method":"x"}]"#,
            "{}",
            r#"{"id":1}"#,
            r#"{"id":1.5,"method":"x"}"#,
            r#"{"id":null,"method":"x"}"#,
            r#"{"id":1,"id":2,"method":"x"}"#,
            r#"{"id":1,"method":"x","method":"y"}"#,
            r#"{"id":1,"method":"x","params":{},"params":{}}"#,
            r#"{"id":1,"\u006dethod":"x","method":"y"}"#,
            r#"{"id":1,"result":1,"error":{}}"#,
            r#"{"id":1,"method":"x","result":1}"#,
            r#"{"id":1,"method":2}"#,
            r#"{"id":1,"method":"x"}{"id":2,"method":"x"}"#,
            r#"{"id":1,"method":"x""#,
            r#"{"id":1,"method":"x","params":{"a":1,"a":2}}"#,
            r#"{"id":1,"method":"x","trace":5}"#,
            r#"{"id":1,"method":"x","trace":{"traceparent":5}}"#,
        ] {
            assert!(Head::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_start_of_a_request_names_it() {
        let text = request_text(&RequestId::from(42), "fs/remove", &());
        assert_eq!(request_start(&text), Some((RequestId::from(42), "fs/remove")));
        assert_eq!(request_start(r#"{"method":"fs/remove","id":42}"#), None);
    }

    #[test]
    fn result_ids_are_seen_without_a_full_parse() {
        let text = crate::jsonrpc::response_text(&RequestId::from(42), &"x");
        assert_eq!(result_id(&text), Some(RequestId::from(42)));
        for text in
            [r#"{"id":"a","result":1}"#, r#"{"error":{},"id":1}"#, r#"{"id":1,"method":"x"}"#, "{\"id\":1"]
        {
            assert_eq!(result_id(text), None, "{text}");
        }
    }

    #[test]
    fn deep_nesting_neither_overflows_nor_hangs() {
        let deep = "[".repeat(100_000);
        assert!(Head::parse(&format!(r#"{{"id":1,"method":"x","params":{deep}"#)).is_err());
        let closed = format!("{deep}{}", "]".repeat(100_000));
        assert!(Head::parse(&format!(r#"{{"id":1,"method":"x","params":{closed}}}"#)).is_err());
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "\\PC{0,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::hash_map("[a-z\"\\\\]{0,6}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        /// The one-pass head and a full parse see the same frame.
        #[test]
        fn head_agrees_with_a_full_parse(id in any::<i64>(), method in "\\PC{0,20}", params in any_json()) {
            let text = json!({"id": id, "method": method, "params": params}).to_string();
            match Head::parse(&text).unwrap() {
                Head::Request { id: got, method: name, params: raw } => {
                    prop_assert_eq!(got, RequestId::Integer(id));
                    prop_assert_eq!(name.as_ref(), method.as_str());
                    let raw = raw.map(|raw| serde_json::from_str::<Value>(raw.get()).unwrap());
                    prop_assert_eq!(raw, Some(params));
                }
                other => prop_assert!(false, "{other:?}"),
            }
        }

        /// The kind follows from the members that are there, in whatever order, among whatever else.
        #[test]
        fn the_members_decide_on_the_kind(
            id in prop::option::of(any::<i64>()), method in prop::option::of("[a-z/]{0,8}"),
            contents in (prop::option::of(any_json()), prop::option::of(any_json()), prop::option::of(any_json())),
            more in prop::option::of(any_json()), rotation in 0usize..6
        ) {
            let (params, result, error) = contents;
            let members = [
                ("id", id.map(Value::from)), ("method", method.clone().map(Value::from)), ("params", params.clone()),
                ("result", result.clone()), ("error", error.clone()), ("more", more),
            ];
            let mut members: Vec<String> =
                members.into_iter().filter_map(|(name, value)| Some(format!("\"{name}\" : {}", value?))).collect();
            let count = members.len().max(1);
            members.rotate_left(rotation % count);
            let text = format!("{{{}}}", members.join(", "));
            let json = |raw: &RawValue| serde_json::from_str::<Value>(raw.get()).unwrap();
            let json_of = |params: Params<'_>| serde_json::from_str::<Value>(params.get()).unwrap();
            let seen = Head::parse(&text);
            match (id, method, result, error) {
                (Some(id), Some(method), None, None) => {
                    let Ok(Head::Request { id: got, method: name, params: raw }) = seen else { panic!("{text}: {seen:?}") };
                    prop_assert_eq!((got, name.as_ref(), raw.map(json_of)), (id.into(), method.as_str(), params));
                }
                (None, Some(method), None, None) => {
                    let Ok(Head::Notification { method: name, params: raw }) = seen else { panic!("{text}: {seen:?}") };
                    prop_assert_eq!((name.as_ref(), raw.map(json)), (method.as_str(), params));
                }
                (Some(id), None, Some(result), None) => {
                    let Ok(Head::Response { id: got, result: raw }) = seen else { panic!("{text}: {seen:?}") };
                    prop_assert_eq!((got, json(raw)), (id.into(), result));
                }
                (Some(id), None, None, Some(error)) => {
                    let Ok(Head::Error { id: got, error: raw }) = seen else { panic!("{text}: {seen:?}") };
                    prop_assert_eq!((got, json(raw)), (id.into(), error));
                }
                _ => prop_assert!(seen.is_err(), "{}: {:?}", text, seen),
            }
        }

        /// The relay's short cut sees what the full parse sees, in whatever a frame is turned into.
        #[test]
        fn the_short_cut_agrees_with_the_full_parse(
            id in any::<i64>(), result in any_json(),
            edits in prop::collection::vec((any::<prop::sample::Index>(), "[-+0-9a{}\",:]?"), 0..3)
        ) {
            let mut text = crate::jsonrpc::response_text(&RequestId::from(id), &result);
            prop_assert_eq!(result_id(&text), Some(RequestId::from(id)));
            for (place, insert) in edits {
                let places: Vec<_> = text.char_indices().map(|(at, c)| at..at + c.len_utf8()).collect();
                text.replace_range(places[place.index(places.len())].clone(), &insert);
            }
            if let (Some(short), Ok(head)) = (result_id(&text), Head::parse(&text)) {
                let agrees = matches!(&head, Head::Response { id, .. } if *id == short);
                prop_assert!(agrees, "{}: {:?} and {:?}", text, short, head);
            }
        }

        /// No text at all makes the parser panic, and what it accepts is an object for the full parser, too.
        #[test]
        fn any_text_is_refused_or_is_an_object(text in "\\PC{0,80}") {
            if Head::parse(&text).is_ok() {
                prop_assert!(serde_json::from_str::<Value>(&text).unwrap().is_object());
            }
        }
    }
}
