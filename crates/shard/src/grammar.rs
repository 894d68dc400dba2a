//! PostgreSQL's grammar.

use pg_query::protobuf::ParseResult;

use crate::refusal::Refusal;
use crate::scan::Shape;

/// libpg_query turns the standard error of the whole process elsewhere while it reads a text. Two
/// at once would leave it there.
#[expect(
    clippy::disallowed_types,
    reason = "guards what belongs to the process"
)]
static READING: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// The tree of a shape.
pub(crate) fn parse(shape: &Shape) -> Result<ParseResult, Refusal> {
    // The process reads one text at a time: no work for what is refused anyway.
    if depth(shape.text()) > MOST_DEPTH {
        return Err(too_deep());
    }
    let guard = READING.lock();
    let parsed = pg_query::parse(shape.text(), 0);
    drop(guard);
    parsed
        .map(|parsed| parsed.protobuf)
        .map_err(|error| refusal(&error))
}

/// The deepest parentheses.
const MOST_DEPTH: usize = 100;

/// How deep the parentheses of a shape are, which has no strings.
fn depth(text: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

fn too_deep() -> Refusal {
    Refusal::too_complex("the statement is nested too deeply").detail(
        "Statements in a sharded database may have some 15 levels of subqueries, or 45 of operators.",
    )
}

fn refusal(error: &pg_query::Error) -> Refusal {
    match error {
        pg_query::Error::Decode(_) => too_deep(),
        pg_query::Error::Parse(message) => {
            let deep = ["stack depth limit", "nested too deeply", "memory exhausted"];
            if deep.iter().any(|deep| message.contains(deep)) {
                too_deep()
            } else if message.contains("open pipe") {
                Refusal::new(
                    "53000",
                    "the grammar needs a file descriptor, and there is none",
                )
            } else {
                Refusal::syntax(message.clone())
            }
        }
        other => Refusal::unproved(format!("the statement can't be read: {other}")),
    }
}
