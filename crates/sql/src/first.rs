//! The first command of a text, read token by token: its effect on statement names, on settings,
//! and on the meaning of later texts.

use super::name::identifier;
use super::token::{Token, Tokens};

/// The statement names that the client loses by running a statement.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Forgets {
    /// Nothing.
    #[default]
    Nothing,
    /// `DEALLOCATE name`.
    Name(Box<[u8]>),
    /// `DEALLOCATE ALL` or `DISCARD ALL`.
    All,
}

/// The settings that a statement resets to their values at login.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Resets {
    /// None.
    #[default]
    Nothing,
    /// `RESET name`, `SET name TO DEFAULT`.
    One {
        /// The name of the setting, in lower case.
        name: Box<[u8]>,
        /// `SET LOCAL`: until the end of the transaction.
        local: bool,
    },
    /// `RESET ALL`.
    All,
    /// `DISCARD ALL`, which must be the only command.
    Discard,
}

/// How a statement changes the meaning of texts that are parsed after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Alters {
    /// Not at all, as far as its first words show.
    #[default]
    Nothing,
    /// Settings may have changed.
    Settings,
    /// PostgreSQL looks names up elsewhere.
    Path,
    /// The schema may have changed.
    Schema,
    /// A new object may hide another object of the same name.
    Creates,
    /// A temporary object is created or changed.
    Temporary,
    /// A transaction or a part of it ends, which may undo changes.
    Ends,
}

/// The effect of a SET, RESET or similar command on settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SettingChange {
    /// Sets this setting; the name is in lower case.
    To(Box<[u8]>),
    /// Resets this setting.
    Back(Box<[u8]>),
    /// Resets all settings.
    AllBack,
}

/// The table, view or sequence of a CREATE, ALTER or DROP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Object {
    /// Its name, written without a schema; in lower case unless quoted.
    pub name: Box<[u8]>,
    /// The command drops the object.
    pub dropped: bool,
    /// The command contains `ON COMMIT DROP`.
    pub transient: bool,
}

/// The effects of the first command of a text. Effects of functions and of further commands are not
/// included.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct First {
    /// The statements of the client that the command deallocates, if it is the only command.
    pub forgets: Forgets,
    /// The settings that the command resets, if it is the only command.
    pub resets: Resets,
    /// The setting that the command sets or resets.
    pub setting: Option<SettingChange>,
    /// How the command changes the meaning of later texts.
    pub alters: Alters,
    /// The object that the command creates, changes or drops.
    pub object: Option<Object>,
    /// `EXECUTE name`.
    pub executes: Option<Box<[u8]>>,
    /// PostgreSQL plans the command, and refuses it if its columns have changed since the Parse.
    /// Utility commands (FETCH, EXECUTE, SHOW) are not planned, and return any columns.
    pub planned: bool,
    /// The whole text is a BEGIN.
    pub only_begins: bool,
}

/// A first look at a text. Returns false for nearly all texts whose first command can be ignored
/// here, and for commands that are only planned or end a transaction.
#[inline]
pub fn may_matter(text: &[u8]) -> bool {
    let Some(&[a, b, c]) = text.first_chunk::<3>() else {
        return true;
    };
    match [a | 0x20, b | 0x20, c | 0x20] {
        [b'b', b'e', b'g'] | [b's', b't', b'a'] => true,
        [b'd', b'e', b'a'] | [b'd', b'i', b's'] | [b'e', b'x', b'e'] => true,
        [b's', b'e', b't'] | [b'r', b'e', b's'] => true,
        [b'c', b'r', b'e'] | [b'a', b'l', b't'] | [b'd', b'r', b'o'] => true,
        // Blanks or a comment.
        _ => matches!(a, b'-' | b'/' | b'\t'..=b'\r' | b' '),
    }
}

/// Reads the first command of a text.
pub fn first(text: &[u8]) -> First {
    let mut tokens = Tokens::new(text);
    let Some(Token::Word(word)) = tokens.next() else {
        return First::default();
    };
    let is = |keyword: &[u8]| word.eq_ignore_ascii_case(keyword);
    match word.first().map_or(0, u8::to_ascii_lowercase) {
        b's' if is(b"set") => set(tokens),
        b'r' if is(b"reset") => reset(tokens),
        b'd' if is(b"discard") => discard(tokens),
        b'd' if is(b"deallocate") => First {
            forgets: deallocate(tokens),
            ..First::default()
        },
        b'e' if is(b"execute") => First {
            executes: identifier(&mut tokens),
            ..First::default()
        },
        b'b' if is(b"begin") => begin(tokens),
        b's' if is(b"start") => begin(tokens),
        b'c' if is(b"create") => create(tokens),
        b'a' if is(b"alter") => change(tokens, false),
        b'd' if is(b"drop") => change(tokens, true),
        _ if ENDS.iter().any(|keyword| is(keyword)) => altering(Alters::Ends),
        _ => First {
            planned: PLANNED.iter().any(|keyword| is(keyword)),
            ..First::default()
        },
    }
}

const ENDS: [&[u8]; 5] = [b"commit", b"end", b"rollback", b"abort", b"prepare"];

const PLANNED: [&[u8]; 8] = [
    b"select", b"with", b"values", b"table", b"insert", b"update", b"delete", b"merge",
];

fn altering(alters: Alters) -> First {
    First {
        alters,
        ..First::default()
    }
}

/// True if only blanks, comments and semicolons follow.
fn ends(mut tokens: Tokens<'_>) -> bool {
    tokens.all(|token| token == Token::Sign(b';')) && !tokens.is_cut()
}

/// The name of a setting.
fn setting(tokens: &mut Tokens<'_>) -> Option<Box<[u8]>> {
    crate::name::setting(tokens).filter(|_| !tokens.is_cut())
}

/// `DEALLOCATE [PREPARE] name`
fn deallocate(mut tokens: Tokens<'_>) -> Forgets {
    let mut ahead = tokens;
    if ahead.word(b"prepare") {
        let after = ahead;
        // Without a name after it, `PREPARE` itself is the name.
        if matches!(ahead.next(), Some(Token::Word(_) | Token::Quoted(_))) {
            tokens = after;
        }
    }
    if tokens.word(b"all") {
        return Forgets::All;
    }
    match identifier(&mut tokens) {
        Some(name) if ends(tokens) => Forgets::Name(name),
        _ => Forgets::Nothing,
    }
}

fn discard(mut tokens: Tokens<'_>) -> First {
    let all = tokens.word(b"all");
    let alone = all && ends(tokens);
    First {
        forgets: if all { Forgets::All } else { Forgets::Nothing },
        resets: if alone {
            Resets::Discard
        } else {
            Resets::Nothing
        },
        setting: alone.then_some(SettingChange::AllBack),
        ..altering(Alters::Settings)
    }
}

/// BEGIN or START, with its options.
fn begin(mut tokens: Tokens<'_>) -> First {
    let mut over = false;
    let only_begins = tokens.all(|token| {
        over |= token == Token::Sign(b';');
        over == (token == Token::Sign(b';')) && (over || matches!(token, Token::Word(_)))
    });
    First {
        only_begins,
        ..First::default()
    }
}

fn reset(mut tokens: Tokens<'_>) -> First {
    let resets = match setting(&mut tokens) {
        Some(name) if &*name == b"all" => Resets::All,
        Some(name) => Resets::One { name, local: false },
        None => Resets::Nothing,
    };
    taking_back(resets, tokens).unwrap_or(altering(Alters::Settings))
}

/// A command that resets settings, if it is the only command.
fn taking_back(resets: Resets, after: Tokens<'_>) -> Option<First> {
    let setting = match &resets {
        Resets::One { name, .. } => SettingChange::Back(name.clone()),
        Resets::All | Resets::Discard => SettingChange::AllBack,
        Resets::Nothing => return None,
    };
    ends(after).then(|| First {
        resets,
        setting: Some(setting),
        ..altering(Alters::Settings)
    })
}

/// `SET [LOCAL | SESSION] name TO ...`
fn set(mut tokens: Tokens<'_>) -> First {
    let local = tokens.word(b"local");
    if !local {
        tokens.word(b"session");
    }
    let sets = |name| First {
        setting: Some(SettingChange::To(name)),
        ..altering(Alters::Settings)
    };
    if tokens.word(b"schema") {
        return sets(b"search_path"[..].into());
    }
    let (name, back) = if tokens.word(b"names") {
        let name: Box<[u8]> = b"client_encoding"[..].into();
        (name, ends(tokens) || tokens.word(b"default"))
    } else {
        let mut ahead = tokens;
        let zone = ahead.word(b"time");
        let Some(name) = setting(&mut tokens) else {
            return altering(Alters::Settings);
        };
        let back = if zone && &*name == b"timezone" {
            tokens.word(b"default") || tokens.word(b"local")
        } else {
            (tokens.word(b"to") || tokens.sign(b'=')) && tokens.word(b"default")
        };
        (name, back)
    };
    let resets = Resets::One {
        name: name.clone(),
        local,
    };
    let taken_back = back.then(|| taking_back(resets, tokens)).flatten();
    taken_back.unwrap_or_else(|| sets(name))
}

fn create(mut tokens: Tokens<'_>) -> First {
    if tokens.word(b"or") {
        tokens.word(b"replace");
    }
    let _ = tokens.word(b"local") || tokens.word(b"global");
    let temporary = tokens.word(b"temp") || tokens.word(b"temporary");
    First {
        object: object(tokens, false),
        ..altering(if temporary {
            Alters::Temporary
        } else {
            Alters::Creates
        })
    }
}

fn change(tokens: Tokens<'_>, drops: bool) -> First {
    First {
        object: object(tokens, drops),
        ..altering(Alters::Schema)
    }
}

/// The command's table, view or sequence, if exactly one is named, without a schema.
fn object(mut tokens: Tokens<'_>, dropped: bool) -> Option<Object> {
    const KINDS: [&[u8]; 3] = [b"table", b"view", b"sequence"];
    const SKIPPED: [&[u8]; 4] = [b"if", b"not", b"exists", b"only"];
    if !KINDS.iter().any(|word| tokens.word(word)) {
        return None;
    }
    while SKIPPED.iter().any(|word| tokens.word(word)) {}
    let name = identifier(&mut tokens)?;
    if tokens.sign_is_next(b'.') || tokens.sign_is_next(b',') {
        return None;
    }
    let mut transient = false;
    while let Some(token) = tokens.next() {
        let commit = matches!(token, Token::Word(word) if word.eq_ignore_ascii_case(b"commit"));
        transient |= commit && tokens.word(b"drop");
    }
    Some(Object {
        name,
        dropped,
        transient,
    })
}

/// A command that resets settings, in a text of several commands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Among {
    /// The settings that the command resets.
    pub resets: Resets,
    /// The offset of the command's end in the text.
    pub end: usize,
    /// The number of commands up to and including this one.
    pub commands: u8,
}

/// The commands that reset settings, in a text of several commands. Drivers send such texts before
/// they reuse a session: `CLOSE ALL; UNLISTEN *; RESET ALL`. Returns `None` unless the commands
/// can be separated with certainty: only a few kinds, without quotes, comments or nested commands.
pub fn resets_among(text: &[u8]) -> Option<Vec<Among>> {
    const KINDS: [&[u8]; 11] = [
        b"select",
        b"show",
        b"set",
        b"reset",
        b"close",
        b"listen",
        b"unlisten",
        b"deallocate",
        b"discard",
        b"rollback",
        b"abort",
    ];
    let trimmed = text.trim_ascii_end();
    let several = trimmed
        .strip_suffix(b";")
        .unwrap_or(trimmed)
        .contains(&b';');
    if !several || text.iter().any(|b| b"'\"$\\-/".contains(b)) {
        return None;
    }
    let mut found = Vec::new();
    let (mut end, mut commands) = (0, 0u8);
    for command in text.split(|b| *b == b';') {
        end += command.len();
        let mut tokens = Tokens::new(command);
        if !ends(tokens) {
            let Some(Token::Word(word)) = tokens.next() else {
                return None;
            };
            let open = command.iter().filter(|b| **b == b'(').count();
            let closed = command.iter().filter(|b| **b == b')').count();
            if open != closed || !KINDS.iter().any(|kind| word.eq_ignore_ascii_case(kind)) {
                return None;
            }
            commands = commands.checked_add(1)?;
            match first(command).resets {
                Resets::Nothing => {}
                // PostgreSQL refuses DISCARD ALL together with other commands.
                Resets::Discard => return None,
                resets => found.push(Among {
                    resets,
                    end,
                    commands,
                }),
            }
        }
        end += 1;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> Forgets {
        Forgets::Name(name.as_bytes().into())
    }

    #[test]
    fn texts_that_forget() {
        for (text, expected) in [
            ("select 1", Forgets::Nothing),
            ("", Forgets::Nothing),
            ("deallocate", Forgets::Nothing),
            ("DEALLOCATE all", Forgets::All),
            (
                " /* a /* b */ */ -- c\n deallocate prepare ALL ;",
                Forgets::All,
            ),
            ("discard all", Forgets::All),
            ("discard plans", Forgets::Nothing),
            ("DEALLOCATE Foo", name("foo")),
            ("DEALLOCATE PREPARE \"Fo\"\"o\";;", name("Fo\"o")),
            ("DEALLOCATE prepare", name("prepare")),
            ("DEALLOCATE prepare;", name("prepare")),
            ("DEALLOCATE a; select 1", Forgets::Nothing),
            ("DEALLOCATE 1", Forgets::Nothing),
            ("DEALLOCATE \"open", Forgets::Nothing),
            ("/* never closed", Forgets::Nothing),
        ] {
            assert_eq!(first(text.as_bytes()).forgets, expected, "{text}");
        }
    }

    #[test]
    fn texts_that_execute() {
        for (text, expected) in [
            ("execute a", Some("a")),
            ("/* x */ EXECUTE Foo (1, 'x');", Some("foo")),
            ("execute \"Foo\"", Some("Foo")),
            ("execute", None),
            ("explain execute a", None),
        ] {
            let found = first(text.as_bytes()).executes;
            let name = found.map(|name| String::from_utf8_lossy(&name).into_owned());
            assert_eq!(name.as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn the_first_look_passes_over_nothing_that_matters() {
        for text in [
            "begin",
            "START transaction",
            "execute a(1)",
            "deallocate a",
            "Discard all",
            "set a to b",
            "RESET a",
            "create table t ()",
            "alter table t add a int",
            "drop table t",
            " begin",
            "/**/ begin",
            "-- a\nbegin",
            "\tbegin",
        ] {
            assert!(may_matter(text.as_bytes()), "{text}");
            assert_ne!(first(text.as_bytes()), First::default(), "{text}");
        }
        for text in [
            "select 1",
            "insert into t values (1)",
            "commit",
            "with a as (select 1) select",
        ] {
            assert!(!may_matter(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn texts_that_alter() {
        for (text, expected) in [
            ("", Alters::Nothing),
            ("select 1", Alters::Nothing),
            ("SET a = b", Alters::Settings),
            ("reset a", Alters::Settings),
            ("rollback to a", Alters::Ends),
            (" /* a */ Alter table t add a int", Alters::Schema),
            ("drop table t", Alters::Schema),
            ("create table t ()", Alters::Creates),
            ("create unlogged table temp ()", Alters::Creates),
            ("create or replace view v as select 1", Alters::Creates),
            ("CREATE temp table t ()", Alters::Temporary),
            ("create local temporary table t ()", Alters::Temporary),
            (
                "create or replace temp view v as select 1",
                Alters::Temporary,
            ),
        ] {
            assert_eq!(first(text.as_bytes()).alters, expected, "{text}");
        }
    }

    #[test]
    fn what_texts_are_about() {
        for (text, expected) in [
            (
                "create temp table if not exists Foo as select 1",
                Some("foo"),
            ),
            ("drop table \"Foo\";", Some("Foo")),
            ("alter table only a add b int", Some("a")),
            ("drop table a, b", None),
            ("drop table public.a", None),
            ("drop type a", None),
            ("drop", None),
        ] {
            let object = first(text.as_bytes()).object;
            let name = object.map(|object| String::from_utf8_lossy(&object.name).into_owned());
            assert_eq!(name.as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn texts_that_only_begin() {
        for (text, expected) in [
            ("BEGIN", true),
            ("begin transaction isolation level read committed", true),
            (" /* a */ start transaction -- b", true),
            ("begin; select 1", false),
            ("begin;", true),
            ("beginning", false),
            ("commit", false),
            ("", false),
        ] {
            assert_eq!(first(text.as_bytes()).only_begins, expected, "{text}");
        }
    }

    #[test]
    fn texts_that_set() {
        let to = |name: &str| Some(SettingChange::To(name.as_bytes().into()));
        let back = |name: &str| Some(SettingChange::Back(name.as_bytes().into()));
        for (text, expected) in [
            ("select 1", None),
            ("SET timezone = 'x'", to("timezone")),
            ("set local time zone 'x'", to("timezone")),
            ("set session \"Foo\" to 1", to("foo")),
            ("set schema 'x'", to("search_path")),
            ("set names 'utf8'", to("client_encoding")),
            ("set timezone to default", back("timezone")),
            ("reset datestyle", back("datestyle")),
            ("reset all", Some(SettingChange::AllBack)),
            ("discard all", Some(SettingChange::AllBack)),
            ("discard plans", None),
        ] {
            assert_eq!(first(text.as_bytes()).setting, expected, "{text}");
        }
    }

    #[test]
    fn some_of_several_reset() {
        let among = |text: &str| {
            let found = resets_among(text.as_bytes())?.pop()?;
            Some((text[..found.end].to_string(), found.commands, found.resets))
        };
        let all = |front: &str, commands| Some((front.to_string(), commands, Resets::All));
        for (text, expected) in [
            (
                "SELECT pg_advisory_unlock_all();\nCLOSE ALL;\nUNLISTEN *;\nRESET ALL;",
                all(
                    "SELECT pg_advisory_unlock_all();\nCLOSE ALL;\nUNLISTEN *;\nRESET ALL",
                    4,
                ),
            ),
            (
                "SET SESSION AUTHORIZATION DEFAULT;RESET ALL;CLOSE ALL;DISCARD TEMP",
                all("SET SESSION AUTHORIZATION DEFAULT;RESET ALL", 2),
            ),
            ("; ;reset all ;;", all("; ;reset all ", 1)),
            (
                "reset datestyle; reset all",
                all("reset datestyle; reset all", 2),
            ),
            ("reset all; discard all", None),
            ("reset all; select 'x'", None),
            ("reset all; -- more", None),
            (
                "reset all; create rule r as on insert to t do (select 1; select 2)",
                None,
            ),
            ("select (1; reset all; select 2)", None),
            ("insert into t values (1); reset all", None),
            ("select 1; select 2", None),
        ] {
            assert_eq!(among(text), expected, "{text}");
        }
    }

    #[test]
    fn texts_that_reset() {
        let one = |name: &str, local| Resets::One {
            name: name.as_bytes().into(),
            local,
        };
        for (text, expected) in [
            ("select 1", Resets::Nothing),
            ("reset", Resets::Nothing),
            ("RESET DateStyle", one("datestyle", false)),
            (" /* a */ reset \"Foo\"; -- b", one("foo", false)),
            ("reset time zone", one("timezone", false)),
            ("reset all;", Resets::All),
            ("reset all; select 1", Resets::Nothing),
            ("reset session authorization", Resets::Nothing),
            ("discard all", Resets::Discard),
            ("discard plans", Resets::Nothing),
            ("set a to default", one("a", false)),
            ("set session a=default", one("a", false)),
            ("SET LOCAL a = DEFAULT ;", one("a", true)),
            ("set a to 'default'", Resets::Nothing),
            ("set a to default, b", Resets::Nothing),
            ("set time zone default", one("timezone", false)),
            ("set local time zone local", one("timezone", true)),
            ("set time zone 'cet'", Resets::Nothing),
            ("set names", one("client_encoding", false)),
            ("set names default", one("client_encoding", false)),
            ("set names 'utf8'", Resets::Nothing),
            (
                "set session characteristics as transaction read only",
                Resets::Nothing,
            ),
        ] {
            assert_eq!(first(text.as_bytes()).resets, expected, "{text}");
        }
    }
}
