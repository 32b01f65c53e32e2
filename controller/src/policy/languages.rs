//! Interpreters, and programs that run something only when an option says so: their options.
//!
//! Invariant: an option is in a table only if what it takes is known.

/// An interpreter: the names it has, and its options. Letters of options that take a word, that hold code or the name of a module,
/// and that have their argument attached; the same as words.
pub(super) struct Interpreter {
    pub(super) names: &'static [&'static str],
    pub(super) code: &'static str,
    pub(super) module: &'static str,
    pub(super) with: &'static str,
    pub(super) attached: &'static str,
    pub(super) long_code: &'static [&'static str],
    pub(super) long_with: &'static [&'static str],
    /// Words that are followed by code.
    pub(super) words: &'static [&'static str],
    /// Words after which it runs no code of its own accord.
    pub(super) done: &'static [&'static str],
    /// It does what its input says even when it has operands.
    pub(super) reads_input: bool,
}

const PLAIN: Interpreter = Interpreter {
    names: &[],
    code: "",
    module: "",
    with: "",
    attached: "",
    long_code: &[],
    long_with: &[],
    words: &[],
    done: &[],
    reads_input: false,
};

/// By the names they have.
pub(super) const INTERPRETERS: &[Interpreter] = &[
    Interpreter {
        names: &["python", "pypy", "ipython", "jython", "micropython"],
        code: "c",
        module: "m",
        with: "WXQ",
        long_with: &["check-hash-based-pycs"],
        done: &["-V", "-VV", "-h"],
        ..PLAIN
    },
    Interpreter {
        names: &["perl", "raku", "rakudo"],
        code: "eE",
        with: "I",
        attached: "MmiFxCDdl0",
        done: &["-v", "-V", "-h"],
        ..PLAIN
    },
    Interpreter {
        names: &["ruby", "jruby", "crystal"],
        code: "e",
        with: "rICEF",
        attached: "KWTi0x",
        done: &["-v", "-h"],
        words: &["eval"],
        ..PLAIN
    },
    Interpreter {
        names: &["node", "nodejs"],
        code: "ep",
        with: "rC",
        long_code: &["eval", "print"],
        long_with: &[
            "require",
            "import",
            "loader",
            "experimental-loader",
            "input-type",
            "conditions",
            "title",
        ],
        done: &["-v", "-h", "--run", "--watch"],
        ..PLAIN
    },
    Interpreter {
        names: &["deno", "bun"],
        code: "ep",
        long_code: &["eval", "print"],
        words: &["eval", "-e"],
        done: &["-v", "-V", "-h"],
        ..PLAIN
    },
    Interpreter {
        names: &["php"],
        code: "rBRE",
        with: "dczfS",
        long_code: &["run", "process-begin", "process-code", "process-end"],
        done: &["-v", "-m", "-i", "-S", "-f", "-h"],
        ..PLAIN
    },
    Interpreter {
        names: &[
            "lua",
            "luajit",
            "julia",
            "elixir",
            "erl",
            "scala",
            "groovy",
            "racket",
            "clojure",
            "bb",
            "janet",
            "swift",
            "osascript",
            "guile",
            "ocaml",
        ],
        code: "eEc",
        with: "lLrSi",
        long_code: &["eval", "expr", "main"],
        words: &["-eval"],
        done: &["-v", "-h"],
        ..PLAIN
    },
    Interpreter { names: &["Rscript", "R"], code: "e", with: "f", done: &["CMD"], ..PLAIN },
    Interpreter {
        names: &["psql", "mysql", "mariadb"],
        code: "ce",
        with: "hpUdvLoPRTuDS",
        long_code: &["command", "execute"],
        done: &["-f", "-l", "--list"],
        reads_input: true,
        ..PLAIN
    },
];

/// Programs that run something only with these options: letters, and names.
pub(super) const CODE_OPTIONS: &[(&str, &str, &[&str])] = &[
    (
        "tar",
        "IF",
        &[
            "checkpoint-action",
            "to-command",
            "use-compress-program",
            "info-script",
            "new-volume-script",
            "rsh-command",
            "rmt-command",
        ],
    ),
    ("bsdtar", "", &["use-compress-program"]),
    ("cpio", "", &["rsh-command"]),
    ("rsync", "e", &["rsh", "rsync-path"]),
    ("scp", "SoDJ", &[]),
    ("sort", "", &["compress-program"]),
    ("split", "", &["filter"]),
    ("rg", "", &["pre", "hostname-bin"]),
    ("fd", "xX", &["exec", "exec-batch"]),
    ("fdfind", "xX", &["exec", "exec-batch"]),
    ("ag", "", &["pager"]),
    ("ack", "", &["pager"]),
    ("bat", "", &["pager"]),
    ("man", "PH", &["pager", "html"]),
    ("nc", "ec", &["exec", "sh-exec"]),
    ("ncat", "ec", &["exec", "sh-exec", "lua-exec"]),
    ("zip", "T", &["unzip-command"]),
    ("cargo", "", &["config"]),
    ("ssh-keygen", "DwP", &[]),
    ("wget", "", &["use-askpass"]),
];
