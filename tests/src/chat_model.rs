//! What a model says in the Chat Completions API, and what it is asked: the shapes that OpenCode 1.18 speaks with a
//! provider of `@ai-sdk/openai-compatible`.
//!
//! Invariant: shapes only; the server and the script are those of [`crate::mock_model`].

use std::fmt::Write as _;

use serde_json::{Value, json};

/// Plain text; ends the turn when nothing else is asked.
pub fn say(text: &str) -> Value {
    json!({ "content": text })
}

/// A call of one of the client's tools.
pub fn call(call_id: &str, name: &str, arguments: &Value) -> Value {
    json!({ "id": call_id, "type": "function", "function": { "name": name, "arguments": arguments.to_string() } })
}

/// The names of the tools that a request offers, sorted.
pub fn offered(body: &Value) -> Vec<String> {
    let tools = body["tools"].as_array().map(Vec::as_slice).unwrap_or_default();
    let names = tools.iter().filter_map(|tool| tool["function"]["name"].as_str());
    let mut names: Vec<_> = names.map(str::to_owned).collect();
    names.sort();
    names
}

/// What the model gets for one of its calls.
pub(crate) fn output<'a>(body: &'a Value, call_id: &str) -> Option<&'a Value> {
    let messages = body["messages"].as_array()?;
    messages.iter().find(|message| message["tool_call_id"] == call_id).map(|message| &message["content"])
}

/// OpenCode asks for a title of the conversation beside it, whenever it likes: that is no step of a script.
pub fn asks_for_title(body: &Value) -> bool {
    body.get("messages").is_some()
        && offered(body).is_empty()
        && body["messages"].to_string().contains("title")
}

/// One answer: the chunks of a streamed completion.
pub(crate) fn event_stream(number: usize, items: &[Value]) -> String {
    let chunk = |delta: Value, finish: Option<&str>| {
        let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish });
        json!({ "id": format!("chatcmpl-{number}"), "object": "chat.completion.chunk", "created": 0, "model": "m",
            "choices": [choice] })
    };
    let mut chunks = vec![chunk(json!({ "role": "assistant" }), None)];
    let mut calls = 0;
    for item in items {
        if item.get("function").is_none() {
            chunks.push(chunk(item.clone(), None));
            continue;
        }
        let mut call = item.clone();
        call["index"] = json!(calls);
        calls += 1;
        chunks.push(chunk(json!({ "tool_calls": [call] }), None));
    }
    let mut last = chunk(json!({}), Some(if calls == 0 { "stop" } else { "tool_calls" }));
    last["usage"] = json!({ "prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2 });
    chunks.push(last);
    let mut stream = String::new();
    for chunk in chunks {
        let _ = write!(stream, "data: {chunk}\n\n"); // writing into a String cannot fail
    }
    stream + "data: [DONE]\n\n"
}
