//! Commands that Howdah itself answers or must know for a client of a sharded database.

use crate::Begin;
use crate::name::setting;
use crate::token::{Token, Tokens};

/// A setting by which a client says which shard it means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShardSetting {
    /// `howdah.shard`: a shard's name.
    Shard,
    /// `howdah.key`: `distribution:value`.
    Key,
}

impl ShardSetting {
    /// The setting with this name, which is in lower case.
    pub fn named(name: &[u8]) -> Option<ShardSetting> {
        match name {
            b"howdah.shard" => Some(ShardSetting::Shard),
            b"howdah.key" => Some(ShardSetting::Key),
            _ => None,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            ShardSetting::Shard => "howdah.shard",
            ShardSetting::Key => "howdah.key",
        }
    }
}

/// A text that is one command, as far as shards are concerned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ShardedText {
    /// `BEGIN`, in any of its forms: the tag of PostgreSQL's answer.
    Begin(&'static str),
    /// `COMMIT` or `END`, without `AND CHAIN`.
    Commit,
    /// `ROLLBACK` or `ABORT`, without `AND CHAIN`, and not to a savepoint.
    Rollback,
    /// `SET [LOCAL] howdah.shard = 'prod_1'`
    Set {
        /// The setting.
        setting: ShardSetting,
        /// The value; `None` for `DEFAULT`.
        value: Option<Box<[u8]>>,
        /// For the transaction only.
        local: bool,
    },
    /// `RESET howdah.shard`
    Reset(ShardSetting),
    /// `SHOW howdah.shard`
    Show(ShardSetting),
    /// `RESET ALL` or `DISCARD ALL`.
    ResetAll,
    /// Another command about the session, the transaction or its cursors, which reads and writes no
    /// rows of tables: `SAVEPOINT`, `SET`, `SHOW`, `FETCH`.
    Session,
    /// A text without any command.
    Nothing,
    /// SQL's PREPARE or EXECUTE.
    Prepares,
    /// A command of another kind, or several.
    Other,
}

impl ShardedText {
    /// True for the commands that Howdah answers itself for a client without a server, where it can.
    pub fn is_own(&self) -> bool {
        matches!(
            self,
            ShardedText::Begin(_)
                | ShardedText::Commit
                | ShardedText::Rollback
                | ShardedText::Set { .. }
                | ShardedText::Reset(_)
                | ShardedText::Show(_)
        )
    }

    /// Reads a text.
    pub fn read(text: &[u8]) -> ShardedText {
        if let Some(Token::Word(first)) = Tokens::new(text).next() {
            return read_from(text, &first.to_ascii_lowercase());
        }
        let mut tokens = Tokens::new(text);
        if tokens.all(is_end) && !tokens.is_cut() {
            ShardedText::Nothing
        } else {
            ShardedText::Other
        }
    }
}

/// True if the first command of a text ends a transaction, or may: `COMMIT AND CHAIN`, `ROLLBACK TO a`,
/// `END; SELECT 1`.
pub fn ends_first(text: &[u8]) -> bool {
    const WORDS: [&[u8]; 5] = [b"abort", b"commit", b"end", b"prepare", b"rollback"];
    match Tokens::new(text).find(|token| !is_end(*token)) {
        Some(Token::Word(first)) => WORDS.iter().any(|word| word.eq_ignore_ascii_case(first)),
        _ => false,
    }
}

/// True if one of the commands of a text is `RESET ALL` or `DISCARD ALL`, as far as its words say.
pub fn resets_all(text: &[u8]) -> bool {
    let mut tokens = Tokens::new(text);
    let mut begins = true;
    while let Some(token) = tokens.next() {
        let resets = |word: &[u8]| {
            word.eq_ignore_ascii_case(b"reset") || word.eq_ignore_ascii_case(b"discard")
        };
        if begins
            && let Token::Word(word) = token
            && resets(word)
            && is_all_next(tokens)
        {
            return true;
        }
        begins = is_end(token);
    }
    false
}

/// Whether a command about the session may run on one shard, and then once more on another:
/// `Some(true)` if it must be repeated there, `Some(false)` if its answer is all. `None` if it may not.
pub fn repeats(text: &[u8]) -> Option<bool> {
    let mut tokens = Tokens::new(text);
    if tokens.word(b"show") {
        return Some(false);
    }
    if tokens.word(b"set") {
        if tokens.word(b"transaction") {
            // Not SNAPSHOT: snapshots are of one server.
            let sets = !tokens.word(b"snapshot");
            return sets.then_some(true);
        }
        let name = tokens.word(b"local").then(|| setting(&mut tokens))??;
        let is_plain = tokens.word(b"to") || tokens.sign(b'=');
        return (is_plain && !changes_names_or_spelling(&name)).then_some(true);
    }
    let is_part = tokens.word(b"savepoint") || tokens.word(b"release");
    let goes_back = tokens.word(b"rollback") && {
        let _ = tokens.word(b"work") || tokens.word(b"transaction");
        tokens.word(b"to")
    };
    (is_part || goes_back).then_some(true)
}

/// True for settings on which it depends what names in later texts mean, or how values are written.
/// PostgreSQL reports some of them to the client.
fn changes_names_or_spelling(setting: &[u8]) -> bool {
    const NAMES: [&[u8]; 9] = [
        b"application_name",
        b"client_encoding",
        b"datestyle",
        b"intervalstyle",
        b"role",
        b"search_path",
        b"session_authorization",
        b"standard_conforming_strings",
        b"timezone",
    ];
    NAMES.contains(&setting)
}

/// True if a command may raise the isolation of its transaction above READ COMMITTED.
pub fn names_isolation(text: &[u8]) -> bool {
    Tokens::new(text).any(|token| match token {
        Token::Word(word) | Token::Quoted(word) => {
            word.eq_ignore_ascii_case(b"isolation")
                || word.eq_ignore_ascii_case(b"transaction_isolation")
        }
        _ => false,
    })
}

fn read_from(text: &[u8], first: &[u8]) -> ShardedText {
    let mut tokens = Tokens::new(text);
    tokens.next();
    let read = match first {
        b"begin" | b"start" if Begin::read(text).is_some() => {
            let tag = if first == b"begin" {
                "BEGIN"
            } else {
                "START TRANSACTION"
            };
            return ShardedText::Begin(tag);
        }
        b"commit" | b"end" => ends_transaction(tokens).then_some(ShardedText::Commit),
        b"rollback" | b"abort" => ends_transaction(tokens).then_some(ShardedText::Rollback),
        b"set" => set(tokens),
        b"reset" => {
            let all = tokens;
            match shard_setting(&mut tokens) {
                Some(setting) if ends(tokens) => Some(ShardedText::Reset(setting)),
                _ => is_all(all).then_some(ShardedText::ResetAll),
            }
        }
        b"show" => match shard_setting(&mut tokens) {
            Some(setting) if ends(tokens) => Some(ShardedText::Show(setting)),
            _ => None,
        },
        b"discard" => is_all(tokens).then_some(ShardedText::ResetAll),
        b"prepare" if tokens.word(b"transaction") => return ShardedText::Other,
        b"prepare" | b"execute" => return ShardedText::Prepares,
        _ => None,
    };
    match read {
        Some(read) => read,
        None if is_of_session(first) && is_single(text) => ShardedText::Session,
        None => ShardedText::Other,
    }
}

/// `SET [SESSION | LOCAL] howdah.shard { TO | = } { 'value' | DEFAULT }`
fn set(mut tokens: Tokens<'_>) -> Option<ShardedText> {
    let local = tokens.word(b"local");
    if !local {
        tokens.word(b"session");
    }
    let setting = shard_setting(&mut tokens)?;
    (tokens.word(b"to") || tokens.sign(b'=')).then_some(())?;
    let value = if tokens.word(b"default") {
        None
    } else {
        match tokens.constant() {
            Some(value) => Some(value?.into_owned().into()),
            None => Some(word(&mut tokens)?),
        }
    };
    ends(tokens).then_some(ShardedText::Set {
        setting,
        value,
        local,
    })
}

/// A value without quotes: `prod_1`.
fn word(tokens: &mut Tokens<'_>) -> Option<Box<[u8]>> {
    match tokens.next()? {
        Token::Word(word) => Some(word.to_ascii_lowercase().into()),
        Token::Quoted(word) => Some(word.into()),
        _ => None,
    }
}

fn shard_setting(tokens: &mut Tokens<'_>) -> Option<ShardSetting> {
    ShardSetting::named(&setting(tokens)?)
}

/// `[WORK | TRANSACTION] [AND NO CHAIN]`
fn ends_transaction(mut tokens: Tokens<'_>) -> bool {
    let _ = tokens.word(b"work") || tokens.word(b"transaction");
    if tokens.word(b"and") && !(tokens.word(b"no") && tokens.word(b"chain")) {
        return false;
    }
    ends(tokens)
}

fn is_all(mut tokens: Tokens<'_>) -> bool {
    tokens.word(b"all") && ends(tokens)
}

fn is_all_next(mut tokens: Tokens<'_>) -> bool {
    tokens.word(b"all")
}

fn is_end(token: Token<'_>) -> bool {
    token == Token::Sign(b';')
}

fn ends(mut tokens: Tokens<'_>) -> bool {
    tokens.all(is_end) && !tokens.is_cut()
}

/// True if a text has one command at most, for certain.
fn is_single(text: &[u8]) -> bool {
    let mut tokens = Tokens::new(text);
    let mut behind = false;
    for token in tokens.by_ref() {
        if behind && !is_end(token) {
            return false;
        }
        behind |= is_end(token);
    }
    !tokens.is_cut() && !tokens.is_unsure()
}

fn is_of_session(first: &[u8]) -> bool {
    const WORDS: [&[u8]; 17] = [
        b"abort",
        b"begin",
        b"close",
        b"commit",
        b"deallocate",
        b"discard",
        b"end",
        b"fetch",
        b"move",
        b"release",
        b"reset",
        b"rollback",
        b"savepoint",
        b"set",
        b"show",
        b"start",
        b"unlisten",
    ];
    WORDS.contains(&first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_that_run_again() {
        for (text, expected) in [
            ("show all", Some(false)),
            ("savepoint a", Some(true)),
            ("release savepoint a", Some(true)),
            ("rollback work to savepoint a", Some(true)),
            ("set local statement_timeout = '1s'", Some(true)),
            ("set local app.tenant to '17'", Some(true)),
            ("set local time zone 'UTC'", None),
            (
                "set transaction isolation level repeatable read",
                Some(true),
            ),
            ("set transaction snapshot '1'", None),
            ("set local search_path = x", None),
            ("set statement_timeout = '1s'", None),
            ("rollback", None),
            ("fetch 1 from c", None),
        ] {
            assert_eq!(repeats(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn resets_among_other_commands() {
        assert!(resets_all(b"select 1; RESET ALL;"));
        assert!(resets_all(b"discard all"));
        assert!(!resets_all(b"select reset, all; reset a"));
    }

    #[test]
    fn ends_of_transactions() {
        for (text, expected) in [
            ("; commit and chain", true),
            ("End; select 1", true),
            ("rollback to a", true),
            ("select 1; commit", false),
            ("", false),
        ] {
            assert_eq!(ends_first(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn texts() {
        use ShardSetting::{Key, Shard};
        use ShardedText::*;
        let set = |setting, value: Option<&str>, local| Set {
            setting,
            value: value.map(|value| value.as_bytes().into()),
            local,
        };
        for (text, expected) in [
            ("begin", Begin("BEGIN")),
            ("START TRANSACTION READ ONLY;", Begin("START TRANSACTION")),
            ("begin; select 1", Other),
            ("begin nonsense", Session),
            ("commit", Commit),
            ("END transaction;", Commit),
            ("commit and no chain", Commit),
            ("commit and chain", Session),
            ("commit prepared 'x'", Session),
            ("rollback", Rollback),
            ("abort work", Rollback),
            ("rollback to a", Session),
            ("rollback; select 1", Other),
            (
                "set howdah.shard = 'prod_1'",
                set(Shard, Some("prod_1"), false),
            ),
            (
                "SET session Howdah.Shard to prod_1;",
                set(Shard, Some("prod_1"), false),
            ),
            (
                "set local howdah.key to 'tenant:''7'",
                set(Key, Some("tenant:'7"), true),
            ),
            ("set howdah.key = default", set(Key, None, false)),
            ("set howdah.shard = 'a', 'b'", Session),
            ("set howdah.shard = 'a'; select 1", Other),
            ("set work_mem = '1MB'", Session),
            ("reset howdah.shard", Reset(Shard)),
            ("reset all", ResetAll),
            ("discard all;", ResetAll),
            ("discard plans", Session),
            ("reset work_mem", Session),
            ("show howdah.key", Show(Key)),
            ("show all", Session),
            ("/* a */ savepoint a -- b", Session),
            ("fetch 1 from c", Session),
            ("set a to ';'; delete from t", Other),
            ("prepare p as select 1", Prepares),
            ("execute p", Prepares),
            ("prepare transaction 'x'", Other),
            ("", Nothing),
            (" ; -- x", Nothing),
            ("select 1", Other),
            ("(select 1)", Other),
        ] {
            assert_eq!(ShardedText::read(text.as_bytes()), expected, "{text}");
        }
    }
}
