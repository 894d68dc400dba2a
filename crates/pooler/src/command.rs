//! Commands that change what a session has: what DEALLOCATE and DISCARD make clients forget, and
//! which settings RESET and the like take back. Found in texts that are one statement.

/// What running a statement makes clients forget.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Forgets {
    /// Nothing.
    Nothing,
    /// `DEALLOCATE name`.
    Name(Box<[u8]>),
    /// `DEALLOCATE ALL` or `DISCARD ALL`.
    All,
}

/// Which settings running a statement takes back to what they were at login.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Resets {
    /// None.
    Nothing,
    /// `RESET name`, `SET name TO DEFAULT`.
    One {
        /// Which; in lower case if it was not quoted.
        name: Box<[u8]>,
        /// `SET LOCAL`: until the end of the transaction.
        local: bool,
    },
    /// `RESET ALL`.
    All,
    /// `DISCARD ALL`, which must stand alone.
    Discard,
}

/// What a text, if it is one statement, makes clients forget.
pub fn forgets(text: &[u8]) -> Forgets {
    let mut words = Words { rest: text };
    let all = |word: &Option<Word<'_>>| matches!(word, Some(Word::Bare(w)) if w.eq_ignore_ascii_case(b"all"));
    let Some(Word::Bare(first)) = words.next() else {
        return Forgets::Nothing;
    };
    if first.eq_ignore_ascii_case(b"discard") {
        return if all(&words.next()) {
            Forgets::All
        } else {
            Forgets::Nothing
        };
    }
    if !first.eq_ignore_ascii_case(b"deallocate") {
        return Forgets::Nothing;
    }
    let mut word = words.next();
    if matches!(word, Some(Word::Bare(w)) if w.eq_ignore_ascii_case(b"prepare"))
        && let Some(after) = words.clone().next()
        && !matches!(after, Word::Other)
    {
        word = Some(after);
        words.next();
    }
    if all(&word) {
        return Forgets::All;
    }
    let name: Box<[u8]> = match word {
        Some(Word::Bare(name)) => name.to_ascii_lowercase().into(),
        Some(Word::Quoted(name)) => name.into(),
        _ => return Forgets::Nothing,
    };
    if words.ends() {
        Forgets::Name(name)
    } else {
        Forgets::Nothing
    }
}

/// What running a statement does to what texts mean that are parsed behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Alters {
    /// Nothing, by its first words.
    Nothing,
    /// Settings may be others.
    Settings,
    /// Names are looked for elsewhere.
    Path,
    /// The schema may be another.
    Schema,
    /// It creates something new, which may stand in the place of something else.
    Creates,
    /// It makes or changes something that is there for this session alone.
    Temporary,
    /// It ends a transaction, or a part of it, and what that has changed.
    Ends,
}

/// What a text does to the meaning of others. Functions may do it, too, unseen.
pub fn alters(text: &[u8]) -> Alters {
    let mut words = Words { rest: text };
    let Some(Word::Bare(first)) = words.next() else {
        return Alters::Nothing;
    };
    let is = |word: &&[u8]| first.eq_ignore_ascii_case(word);
    const SETTINGS: [&[u8]; 3] = [b"set", b"reset", b"discard"];
    const SCHEMA: [&[u8]; 2] = [b"alter", b"drop"];
    const ENDS: [&[u8]; 5] = [b"commit", b"end", b"rollback", b"abort", b"prepare"];
    if SETTINGS.iter().any(is) {
        return Alters::Settings;
    }
    if ENDS.iter().any(is) {
        return Alters::Ends;
    }
    if SCHEMA.iter().any(is) {
        return Alters::Schema;
    }
    if !is(&&b"create"[..]) {
        return Alters::Nothing;
    }
    if words.is_next(b"or") {
        words.is_next(b"replace");
    }
    let _ = words.is_next(b"local") || words.is_next(b"global");
    match words.is_next(b"temp") || words.is_next(b"temporary") {
        true => Alters::Temporary,
        false => Alters::Creates,
    }
}

/// Which table, view or sequence a CREATE, ALTER or DROP is about, if that is one, without a schema's
/// name; in lower case if it was not quoted.
pub fn object(text: &[u8]) -> Option<Box<[u8]>> {
    const BEFORE: [&[u8]; 6] = [
        b"or",
        b"replace",
        b"local",
        b"global",
        b"temp",
        b"temporary",
    ];
    const KINDS: [&[u8]; 3] = [b"table", b"view", b"sequence"];
    const BEHIND: [&[u8]; 4] = [b"if", b"not", b"exists", b"only"];
    let mut words = Words { rest: text };
    words.next()?;
    while BEFORE.iter().any(|word| words.is_next(word)) {}
    if !KINDS.iter().any(|word| words.is_next(word)) {
        return None;
    }
    while BEHIND.iter().any(|word| words.is_next(word)) {}
    let name = match words.next()? {
        Word::Bare(name) => name.to_ascii_lowercase().into(),
        Word::Quoted(name) => name.into(),
        Word::Other => return None,
    };
    words.skip();
    let alone = !matches!(words.rest.first(), Some(b'.' | b','));
    alone.then_some(name)
}

/// Whether a text begins with a DROP.
pub fn drops(text: &[u8]) -> bool {
    (Words { rest: text }).is_next(b"drop")
}

/// Whether a text is nothing but a BEGIN, which changes nothing.
pub fn only_begins(text: &[u8]) -> bool {
    let mut words = Words { rest: text };
    if !words.is_next(b"begin") && !words.is_next(b"start") {
        return false;
    }
    while !words.clone().ends() {
        if !matches!(words.next(), Some(Word::Bare(_))) {
            return false;
        }
    }
    true
}

/// Whether PostgreSQL plans a text. Such a one it refuses once its rows are others than when it was
/// parsed; utility commands (FETCH, EXECUTE, SHOW) give whatever rows there are.
pub fn is_planned(text: &[u8]) -> bool {
    const PLANNED: [&[u8]; 8] = [
        b"select", b"with", b"values", b"table", b"insert", b"update", b"delete", b"merge",
    ];
    match (Words { rest: text }).next() {
        Some(Word::Bare(first)) => PLANNED.iter().any(|word| first.eq_ignore_ascii_case(word)),
        _ => false,
    }
}

/// The first words of an SQL text, comments skipped.
#[derive(Clone)]
struct Words<'a> {
    rest: &'a [u8],
}

enum Word<'a> {
    /// An identifier or keyword.
    Bare(&'a [u8]),
    /// A quoted identifier, unquoted.
    Quoted(Vec<u8>),
    /// Anything else.
    Other,
}

impl<'a> Words<'a> {
    /// Skips blanks and comments.
    fn skip(&mut self) {
        loop {
            match self.rest {
                [b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c, rest @ ..] => self.rest = rest,
                [b'-', b'-', rest @ ..] => {
                    let end = rest.iter().position(|b| matches!(b, b'\n' | b'\r'));
                    self.rest = &rest[end.unwrap_or(rest.len())..];
                }
                [b'/', b'*', rest @ ..] => self.rest = after_comment(rest),
                _ => return,
            }
        }
    }

    fn next(&mut self) -> Option<Word<'a>> {
        self.skip();
        let rest = self.rest;
        let first = *rest.first()?;
        if first == b'"' {
            return self.quoted();
        }
        let bare = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'$') || *b >= 0x80;
        let end = rest.iter().position(|b| !bare(b)).unwrap_or(rest.len());
        if end == 0 || first.is_ascii_digit() || first == b'$' {
            return Some(Word::Other);
        }
        self.rest = &rest[end..];
        Some(Word::Bare(&rest[..end]))
    }

    fn quoted(&mut self) -> Option<Word<'a>> {
        let mut name = Vec::new();
        let mut at = 1;
        loop {
            match (self.rest.get(at)?, self.rest.get(at + 1)) {
                (b'"', Some(b'"')) => {
                    name.push(b'"');
                    at += 2;
                }
                (b'"', _) => {
                    self.rest = &self.rest[at + 1..];
                    return Some(Word::Quoted(name));
                }
                (&byte, _) => {
                    name.push(byte);
                    at += 1;
                }
            }
        }
    }

    /// Passes over a keyword, if that is next.
    fn is_next(&mut self, keyword: &[u8]) -> bool {
        let mut ahead = self.clone();
        let is = matches!(ahead.next(), Some(Word::Bare(w)) if w.eq_ignore_ascii_case(keyword));
        if is {
            *self = ahead;
        }
        is
    }

    /// Passes over an equals sign, if that is next.
    fn equals(&mut self) -> bool {
        self.skip();
        let rest = self.rest.strip_prefix(b"=");
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// A setting's name; `TIME ZONE` is one.
    fn setting(&mut self) -> Option<Box<[u8]>> {
        match self.next()? {
            Word::Bare(w) if w.eq_ignore_ascii_case(b"time") && self.is_next(b"zone") => {
                Some(b"timezone"[..].into())
            }
            Word::Bare(name) => Some(name.to_ascii_lowercase().into()),
            Word::Quoted(name) => Some(name.into()),
            Word::Other => None,
        }
    }

    /// Nothing follows but blanks, comments and semicolons.
    fn ends(&mut self) -> bool {
        loop {
            self.skip();
            match self.rest {
                [] => return true,
                [b';', rest @ ..] => self.rest = rest,
                _ => return false,
            }
        }
    }
}

/// What follows a comment, comments inside it skipped; the argument begins behind its `/*`.
fn after_comment(mut rest: &[u8]) -> &[u8] {
    let mut depth = 1;
    while depth > 0 {
        match rest {
            [] => break,
            [b'/', b'*', after @ ..] => {
                depth += 1;
                rest = after;
            }
            [b'*', b'/', after @ ..] => {
                depth -= 1;
                rest = after;
            }
            [_, after @ ..] => rest = after,
        }
    }
    rest
}

/// Which settings a text, if it is one statement, takes back.
pub fn resets(text: &[u8]) -> Resets {
    let mut words = Words { rest: text };
    let resets = match words.next() {
        Some(Word::Bare(word)) if word.eq_ignore_ascii_case(b"discard") => {
            words.is_next(b"all").then_some(Resets::Discard)
        }
        Some(Word::Bare(word)) if word.eq_ignore_ascii_case(b"reset") => {
            words.setting().map(|name| match &*name {
                b"all" => Resets::All,
                _ => Resets::One { name, local: false },
            })
        }
        Some(Word::Bare(word)) if word.eq_ignore_ascii_case(b"set") => set_to_default(&mut words),
        _ => None,
    };
    resets.filter(|_| words.ends()).unwrap_or(Resets::Nothing)
}

/// What a SET, RESET or the like does to settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Setting {
    /// Sets one; its name in lower case if it was not quoted.
    To(Box<[u8]>),
    /// Takes one back to what it was, whatever that is.
    Back(Box<[u8]>),
    /// Takes all back.
    AllBack,
}

/// Which setting a text sets or takes back, if it begins with a command that does.
pub fn setting(text: &[u8]) -> Option<Setting> {
    match resets(text) {
        Resets::One { name, .. } => return Some(Setting::Back(name)),
        Resets::All | Resets::Discard => return Some(Setting::AllBack),
        Resets::Nothing => {}
    }
    let mut words = Words { rest: text };
    if !words.is_next(b"set") {
        return None;
    }
    let _ = words.is_next(b"local") || words.is_next(b"session");
    match words.is_next(b"names") {
        true => Some(Setting::To(b"client_encoding"[..].into())),
        false => words.setting().map(Setting::To),
    }
}

/// A command among several that takes settings back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Among {
    /// Which it takes back.
    pub resets: Resets,
    /// Where in the text it ends.
    pub end: usize,
    /// How many commands there are up to and with it.
    pub commands: u8,
}

/// The commands in a text of several that take settings back. Only texts are understood whose
/// commands can be told apart for sure: of a few kinds, without quotes, comments or nested commands.
/// Such ones drivers send before they lend a session to somebody else.
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
        let mut words = Words { rest: command };
        if !words.clone().ends() {
            let Some(Word::Bare(first)) = words.next() else {
                return None;
            };
            let open = command.iter().filter(|b| **b == b'(').count();
            let closed = command.iter().filter(|b| **b == b')').count();
            if open != closed || !KINDS.iter().any(|kind| first.eq_ignore_ascii_case(kind)) {
                return None;
            }
            commands = commands.checked_add(1)?;
            match resets(command) {
                Resets::Nothing => {}
                // PostgreSQL refuses it in company.
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

/// What follows SET, if it sets a setting to its default.
fn set_to_default(words: &mut Words<'_>) -> Option<Resets> {
    let local = words.is_next(b"local");
    if !local {
        words.is_next(b"session");
    }
    if words.is_next(b"names") {
        let name = b"client_encoding"[..].into();
        let bare = words.clone().ends() || words.is_next(b"default");
        return bare.then_some(Resets::One { name, local });
    }
    let zone = words.clone().is_next(b"time");
    let name = words.setting()?;
    if zone && &*name == b"timezone" {
        let default = words.is_next(b"default") || words.is_next(b"local");
        return default.then_some(Resets::One { name, local });
    }
    let to = words.is_next(b"to") || words.equals();
    let default = to && words.is_next(b"default");
    default.then_some(Resets::One { name, local })
}

/// True for a CommandComplete's tag of a command that may change what a text means that was parsed
/// before. New indexes do not.
pub fn changes_schema(tag: &[u8]) -> bool {
    match tag.split_first_chunk::<5>() {
        Some((b"ALTER", _)) => true,
        Some((b"DROP ", _)) => true,
        Some((b"CREAT", rest)) => rest != b"E INDEX",
        _ => false,
    }
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
            assert_eq!(forgets(text.as_bytes()), expected, "{text}");
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
            assert_eq!(alters(text.as_bytes()), expected, "{text}");
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
            let expected = expected.map(|name| name.as_bytes().into());
            assert_eq!(object(text.as_bytes()), expected, "{text}");
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
            assert_eq!(only_begins(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn texts_that_set() {
        let to = |name: &str| Some(Setting::To(name.as_bytes().into()));
        let back = |name: &str| Some(Setting::Back(name.as_bytes().into()));
        for (text, expected) in [
            ("select 1", None),
            ("SET timezone = 'x'", to("timezone")),
            ("set local time zone 'x'", to("timezone")),
            ("set session \"Foo\" to 1", to("Foo")),
            ("set names 'utf8'", to("client_encoding")),
            ("set timezone to default", back("timezone")),
            ("reset datestyle", back("datestyle")),
            ("reset all", Some(Setting::AllBack)),
            ("discard all", Some(Setting::AllBack)),
            ("discard plans", None),
        ] {
            assert_eq!(setting(text.as_bytes()), expected, "{text}");
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
            (" /* a */ reset \"Foo\"; -- b", one("Foo", false)),
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
            assert_eq!(resets(text.as_bytes()), expected, "{text}");
        }
    }
}
