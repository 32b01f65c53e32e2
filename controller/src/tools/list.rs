//! What the tools are called, what they do in words for a model, and what they take.
//!
//! Names and parameters are those that models know from OpenCode.

use std::sync::LazyLock;

use serde_json::{Value, json};

/// A tool as it is offered to a model.
pub struct Tool {
    /// By which it is called.
    pub name: &'static str,
    /// A few words for a user.
    pub title: &'static str,
    /// For the model.
    pub description: &'static str,
    /// JSON Schema of the arguments: an object.
    pub schema: Value,
    /// It changes nothing.
    pub read_only: bool,
    /// A second call with the same arguments changes nothing more.
    pub idempotent: bool,
    /// It may reach more than the project.
    pub open_world: bool,
}

/// All tools.
pub(super) fn tools() -> &'static [Tool] {
    static TOOLS: LazyLock<Vec<Tool>> =
        LazyLock::new(|| vec![bash(), read(), write(), edit(), apply_patch(), glob(), grep()]);
    &TOOLS
}

fn object(required: &[&str], properties: &Value) -> Value {
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

const BASH: &str = "\
Runs a command with bash in the project's sandbox and gives its output, stdout and stderr together, then `[exit code N]`.
Each command starts in the project's directory, or in `workdir`; give `workdir` instead of using `cd`. Nothing is kept \
from one command to the next but files. There is no terminal and no input, so use options that ask nothing.
A command is killed, with all it started, after `timeout` milliseconds (default 120000); ask for more for long builds and \
tests. To leave something running, start it with `&` and send its output to a file.
Long output is given with its middle left out; send it to a file and look through it with grep or read when all of it \
matters.
Use the other tools, not shell commands, to read, search, write and edit files.";

fn bash() -> Tool {
    Tool {
        name: "bash",
        title: "Run a command",
        description: BASH,
        schema: object(
            &["command"],
            &json!({
                "command": { "type": "string", "description": "The command" },
                "timeout": { "type": "integer", "minimum": 1, "description": "Milliseconds it may take; default 120000" },
                "workdir": { "type": "string", "description": "Directory to run in; default is the project's directory" },
                "description": { "type": "string", "description": "What the command does, in 5 to 10 words" }
            }),
        ),
        read_only: false,
        idempotent: false,
        open_world: true,
    }
}

const READ: &str = "\
Gives the content of a file, each line as `NUMBER: TEXT`; the number and the first space after the colon are not part of \
the file. Of a directory it gives the names, one a line, those of directories with a slash at the end. An image (PNG, JPEG, \
GIF, WebP) is shown as it is.
It begins at line `offset` and gives at most `limit` lines (default 2000); what is left out is said at the end, with the \
offset to go on with. Lines of more than 2000 characters are cut. To find a place in a large file, use grep first.";

fn read() -> Tool {
    Tool {
        name: "read",
        title: "Read a file",
        description: READ,
        schema: object(
            &["filePath"],
            &json!({
                "filePath": { "type": "string", "description": "Path of the file or directory" },
                "offset": { "type": "integer", "minimum": 1, "description": "First line, counted from 1" },
                "limit": { "type": "integer", "minimum": 1, "description": "Number of lines; default 2000" }
            }),
        ),
        read_only: true,
        idempotent: true,
        open_world: false,
    }
}

const WRITE: &str = "\
Writes a file: creates it, with the directories it lies in, or replaces all of its content. To change a part of a file, \
use edit instead; read a file before replacing it.";

fn write() -> Tool {
    Tool {
        name: "write",
        title: "Write a file",
        description: WRITE,
        schema: object(
            &["filePath", "content"],
            &json!({
                "filePath": { "type": "string", "description": "Path of the file" },
                "content": { "type": "string", "description": "All of the new content" }
            }),
        ),
        read_only: false,
        idempotent: true,
        open_world: false,
    }
}

const EDIT: &str = "\
Replaces text in a file. `oldString` must be in the file exactly as given, white space and indentation included, without \
the line numbers that read shows; line ends of the file (LF or CRLF) are kept and need no care.
`oldString` must be in the file once: give some lines around the place to make it so, or set `replaceAll` to replace every \
occurrence, for example to rename something. When it is not found, or found several times, nothing is changed.
An empty `oldString` creates a new file with `newString` as its content.";

fn edit() -> Tool {
    Tool {
        name: "edit",
        title: "Edit a file",
        description: EDIT,
        schema: object(
            &["filePath", "oldString", "newString"],
            &json!({
                "filePath": { "type": "string", "description": "Path of the file" },
                "oldString": { "type": "string", "description": "The text to replace" },
                "newString": { "type": "string", "description": "What to put in its place" },
                "replaceAll": { "type": "boolean", "description": "Replace every occurrence; default false" }
            }),
        ),
        read_only: false,
        idempotent: false,
        open_world: false,
    }
}

const APPLY_PATCH: &str = "\
Creates, changes, moves and deletes files with one patch. Either all of it is done or, when a part does not fit, nothing.
The patch has this form:
*** Begin Patch
*** Add File: PATH
+each line of the new file
*** Update File: PATH
*** Move to: NEW PATH (only to move the file)
@@ a line before the place, such as the head of a function (may be left out)
 a line that stays
-a line to remove
+a line to add
*** Delete File: PATH
*** End Patch
Every change needs some lines that stay (3 above and below, as a rule) to be found by; several changes of one file are \
separated by `@@`. `*** End of File` after a change says that it is at the end. There are no line numbers.";

fn apply_patch() -> Tool {
    Tool {
        name: "apply_patch",
        title: "Apply a patch",
        description: APPLY_PATCH,
        schema: object(
            &["patchText"],
            &json!({ "patchText": { "type": "string", "description": "The whole patch, from *** Begin Patch to *** End Patch" } }),
        ),
        read_only: false,
        idempotent: false,
        open_world: false,
    }
}

const GLOB: &str = "\
Finds files by their path: `**/*.rs`, `src/**/test_*.py`, `*.{js,ts}`. A pattern without a slash is matched with names in \
every directory, one with a slash with the path from `path`. Gives the paths, the last changed first, 100 at most. What \
git ignores is left out (unless `path` itself is ignored), and so is .git.";

fn glob() -> Tool {
    Tool {
        name: "glob",
        title: "Find files",
        description: GLOB,
        schema: object(
            &["pattern"],
            &json!({
                "pattern": { "type": "string", "description": "The pattern" },
                "path": { "type": "string", "description": "Directory to look in; default is the project's directory" }
            }),
        ),
        read_only: true,
        idempotent: true,
        open_world: false,
    }
}

const GREP: &str = "\
Searches the content of files for a regular expression (Perl's syntax), line by line. Gives paths, line numbers and lines, \
the last changed file first, 100 lines at most. `include` limits it to files that match a pattern as in glob, such as \
`*.ts` or `src/**/*.{c,h}`. What git ignores is left out (unless `path` itself is ignored), and so are .git and binary \
files.";

fn grep() -> Tool {
    Tool {
        name: "grep",
        title: "Search in files",
        description: GREP,
        schema: object(
            &["pattern"],
            &json!({
                "pattern": { "type": "string", "description": "The regular expression" },
                "path": { "type": "string", "description": "Directory or file to search; default is the project's directory" },
                "include": { "type": "string", "description": "Only files that match this" }
            }),
        ),
        read_only: true,
        idempotent: true,
        open_world: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_requires_only_what_it_has() {
        for tool in tools() {
            let properties = tool.schema["properties"].as_object().unwrap();
            for name in tool.schema["required"].as_array().unwrap() {
                assert!(properties.contains_key(name.as_str().unwrap()), "{}: {name}", tool.name);
            }
            assert!(properties.values().all(|property| property["description"].is_string()), "{}", tool.name);
        }
    }
}
