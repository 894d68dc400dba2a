//! The only classifier of SQL texts: how running a text may change its session.
//!
//! Each text is read once, token by token. Howdah may expect too many effects, but never too few.
//! Some texts can be read in two ways (because of `standard_conforming_strings`, or an encoding
//! with characters that may end in a backslash). Then the effects of both count. An effect too
//! many costs only a question to PostgreSQL. No text shows the hidden effects of functions (a
//! trigger that calls `set_config`).
//!
//! Nearly all texts have no effect. [`effects`] usually finds this out in one pass over the few
//! places where an effect could stand.

mod bound;
mod channels;
mod effects;
pub mod first;
mod glance;
pub mod kinds;
pub mod name;
mod pieces;
pub(crate) mod token;

#[cfg(test)]
mod tests;

use crate::effect::name::{OF_TRANSACTIONS, is_naming, name_of, setting};
use crate::effect::token::{LexRules, Pairs, Token, Tokens};
use crate::limits;
use glance::Signs;

pub use channels::ListenCommands;
pub use effects::{Effects, Mention, Names};
pub use first::{First, first};
pub use kinds::Kinds;
pub use pieces::Pieces;

/// The possible effects of running a text, which may have several commands.
pub fn effects(text: &[u8]) -> Effects {
    read_effects(text).unwrap_or_default()
}

/// Like [`effects`], but `None` for a text that a first look shows to have no effect, as most
/// texts.
pub fn read_effects(text: &[u8]) -> Option<Effects> {
    let text = text.strip_suffix(b"\0").unwrap_or(text);
    let signs = Signs::of(text);
    let text = glance::front(text, signs);
    match glance::tells(text, signs) {
        Some(Kinds::NOTHING) => None,
        Some(kinds) => Some(Effects {
            kinds,
            ..Effects::default()
        }),
        None => Some(read_by_token(text)),
    }
}

#[inline(never)] // Rare: the first look is enough for most texts.
fn read_by_token(text: &[u8]) -> Effects {
    let mut found = Effects::default();
    let mut drops_at_end = true;
    for reading in readings(text) {
        let (more, drops) = read(text, reading, false, 0);
        drops_at_end &= drops;
        found.extend(more);
    }
    if memchr::memchr(b'\\', text).is_some() {
        // Backslashes allow several readings of the values.
        found.doubts_names();
    }
    found.channels = channels::channels(text, found.kinds);
    found.told(drops_at_end)
}

/// All ways to read a text.
fn readings(text: &[u8]) -> impl Iterator<Item = LexRules> {
    let escapes = memchr::memchr(b'\\', text).is_some();
    let pairs =
        escapes && memchr::memchr_iter(b'\\', text).any(|at| at > 0 && text[at - 1] >= 0x80);
    let all = [Pairs::None, Pairs::All, Pairs::Sjis];
    let (pairs, escapes) = (if pairs { 3 } else { 1 }, if escapes { 2 } else { 1 });
    let pairs = all.into_iter().take(pairs);
    pairs.flat_map(move |pairs| {
        [false, true]
            .into_iter()
            .take(escapes)
            .map(move |escapes| LexRules { escapes, pairs })
    })
}

/// The effects in one reading, and whether `ON COMMIT DROP` follows each temporary object.
/// `loose`: a command may begin at any word, as in the body of a PL/pgSQL block.
fn read(text: &[u8], reading: LexRules, loose: bool, depth: u32) -> (Effects, bool) {
    let mut reader = Reader {
        tokens: Tokens::new(text, reading),
        found: Effects::default(),
        depth,
        at: At::start(loose),
    };
    reader.commands((b"", b""), 0);
    reader.at.ends_command(&mut reader.found);
    (reader.found, reader.at.lasting <= 0)
}

struct Reader<'a> {
    tokens: Tokens<'a>,
    found: Effects,
    depth: u32,
    at: At,
}

/// The position of a reader in a text.
#[derive(Clone, Copy, Debug)]
struct At {
    /// A command begins at the next token.
    begins: bool,
    /// A command may begin at any word.
    loose: bool,
    /// In a DO: its strings are commands.
    body: bool,
    /// In a DECLARE, before the cursor's query.
    declares: bool,
    /// In a PREPARE: the kinds found before it.
    prepares: Option<Kinds>,
    /// After an UPDATE.
    updates: bool,
    /// After a dot.
    dotted: bool,
    /// After a name, or the dot behind it.
    named: bool,
    /// Temporary objects created, minus those dropped at the end of the transaction.
    lasting: i32,
}

impl At {
    fn start(loose: bool) -> At {
        At {
            begins: true,
            loose,
            body: false,
            declares: false,
            prepares: None,
            updates: false,
            dotted: false,
            named: false,
            lasting: 0,
        }
    }

    /// A command ends. If it is SQL's PREPARE and its statement has effects, adds STAYS: no later
    /// text shows what an EXECUTE does.
    fn ends_command(&mut self, found: &mut Effects) {
        self.begins = true;
        self.declares = false;
        let Some(before) = self.prepares.take() else {
            return;
        };
        let acts = Kinds::PINNING.and(Kinds::SETS).and(Kinds::SETS_ANY);
        if found.kinds.any(acts) {
            found.kinds.add(Kinds::STAYS);
        }
        found.kinds.add(before);
    }
}

impl<'a> Reader<'a> {
    /// Reads commands until `left` bytes remain, which are only looked ahead at. `words` are the
    /// previous word and the first word of the command; the same pair at the end is returned.
    fn commands(&mut self, words: (&'a [u8], &'a [u8]), left: usize) -> (&'a [u8], &'a [u8]) {
        let (mut last, mut first) = words;
        while self.tokens.rest().len() > left {
            let before = self.tokens.rest();
            let Some(token) = self.tokens.next() else {
                break;
            };
            match token {
                Token::Sign(b';') => {
                    self.at.ends_command(&mut self.found);
                    (last, first) = (b"", b"");
                    continue;
                }
                Token::Word(word) => {
                    if self.at.begins {
                        first = word;
                        self.at.body = word.eq_ignore_ascii_case(b"do");
                    }
                    if self.at.begins || self.at.loose {
                        self.command(word);
                    }
                    self.at.updates |= word.eq_ignore_ascii_case(b"update");
                    if self.at.declares {
                        self.declared(word, last);
                    }
                    self.within(word, last, first);
                    last = word;
                }
                Token::Quoted(name) => {
                    self.within(name, last, first);
                    last = b"";
                }
                Token::Unicode => self.any_name(last, first),
                Token::Text {
                    inside, escapes, ..
                } => {
                    if self.at.body && last.eq_ignore_ascii_case(b"language") {
                        self.speaks(inside);
                    } else if self.at.body || self.at.loose {
                        self.body_of(inside, escapes);
                    } else if first.eq_ignore_ascii_case(b"set") && has_temporary(inside) {
                        // `SET LOCAL search_path = 'pg_temp'`: later CREATE commands make
                        // temporary objects.
                        self.makes_temporary();
                    }
                    last = b"";
                }
                Token::Sign(b'.') => {}
                Token::Sign(_) => last = b"",
            }
            // The tokens take the dot of `$1.currval` as part of a number.
            let read = &before[..before.len() - self.tokens.rest().len()];
            self.at.dotted = read.ends_with(b".");
            if token != Token::Sign(b'.') {
                self.at.named = matches!(token, Token::Word(_) | Token::Quoted(_));
            }
            self.at.begins = false;
        }
        (last, first)
    }

    /// An identifier `U&"..."`, which may mean any name. It has no effect where only a column or a
    /// table can stand.
    fn any_name(&mut self, last: &[u8], first: &[u8]) {
        let mut ahead = self.tokens;
        if ahead.word(b"uescape") {
            ahead.next();
        }
        let reads: [&[u8]; 5] = [b"select", b"insert", b"delete", b"values", b"update"];
        let reads = reads.iter().any(|name| first.eq_ignore_ascii_case(name));
        if self.at.loose
            || !reads
            || last.eq_ignore_ascii_case(b"update")
            || ahead.sign(b'(')
            || self.at.dotted
        {
            self.found.kinds.add(Kinds::DOUBT);
        }
    }

    /// Reads a string that is run as commands.
    fn body_of(&mut self, inside: &[u8], escapes: bool) {
        if self.depth >= limits::DO_DEPTH {
            self.found.kinds.add(Kinds::DOUBT);
            return;
        }
        if escapes {
            let sure = !self.tokens.reading().escapes;
            return match unescaped(inside, sure) {
                Some(value) => self.body_of(&value, false),
                None => self.found.kinds.add(Kinds::DOUBT),
            };
        }
        let (inner, drops_at_end) = read(inside, self.tokens.reading(), true, self.depth + 1);
        self.at.lasting += i32::from(!drops_at_end);
        self.found.extend(inner);
    }

    /// The effects of a command that begins with this word.
    fn command(&mut self, word: &[u8]) {
        let is = |keyword: &[u8]| word.eq_ignore_ascii_case(keyword);
        let kinds = match word.first().map_or(0, u8::to_ascii_lowercase) {
            b'a' if is(b"abort") => Kinds::ENDS,
            b'a' if is(b"alter") => Kinds::SCHEMA,
            b'b' if is(b"begin") => Kinds::BEGINS,
            b'c' if is(b"commit") => Kinds::ENDS,
            b'c' if is(b"close") => Kinds::CLOSES,
            b'c' if is(b"create") => Kinds::SCHEMA,
            b'd' if is(b"deallocate") => Kinds::DEALLOCATES,
            b'd' if is(b"declare") => {
                self.at.declares = true;
                Kinds::NOTHING
            }
            b'd' if is(b"discard") => self.discard(),
            b'd' if is(b"drop") => Kinds::SCHEMA.and(Kinds::DROPS),
            b'e' if is(b"end") => Kinds::ENDS,
            b'l' if is(b"listen") => Kinds::LISTENS,
            b'l' if is(b"load") => self.load(),
            b'n' if is(b"notify") => Kinds::NOTIFIES,
            b'p' if is(b"prepare") => self.prepare(),
            b'r' if is(b"rollback") || is(b"release") => Kinds::ENDS,
            b'r' if is(b"reset") => self.reset(),
            b's' if is(b"savepoint") => Kinds::ENDS,
            b's' if is(b"set") => self.set(),
            b's' if is(b"start") => Kinds::BEGINS,
            b'u' if is(b"unlisten") => Kinds::UNLISTENS,
            _ => Kinds::NOTHING,
        };
        self.found.kinds.add(kinds);
    }

    fn discard(&mut self) -> Kinds {
        let mut ahead = self.tokens;
        if ahead.word(b"all") {
            self.found.mention(Mention::AllBack);
            return Kinds::DISCARDS_ALL;
        }
        Kinds::DROPS
    }

    /// LOAD. In a PL/pgSQL body, `load` is a command only before a string, a `%` of `format`, or
    /// the end of the text.
    fn load(&self) -> Kinds {
        let mut ahead = self.tokens;
        match ahead.next() {
            None | Some(Token::Text { .. } | Token::Sign(b'%')) => Kinds::STAYS,
            Some(_) if self.at.loose => Kinds::NOTHING,
            Some(_) => Kinds::STAYS,
        }
    }

    /// SQL's PREPARE.
    fn prepare(&mut self) -> Kinds {
        let mut ahead = self.tokens;
        if ahead.word(b"transaction") {
            return Kinds::ENDS;
        }
        if self.at.prepares.is_none() {
            let before = std::mem::take(&mut self.found.kinds);
            self.at.prepares = Some(before.and(Kinds::PREPARES));
        }
        Kinds::NOTHING
    }

    fn reset(&mut self) -> Kinds {
        let mut ahead = self.tokens;
        if ahead.word(b"all") {
            self.found.mention(Mention::AllBack);
            self.found.looks_elsewhere(b"search_path", None);
            return Kinds::NOTHING;
        }
        let authorization = ahead.word(b"session") && ahead.word(b"authorization");
        let mut named = self.tokens;
        let name = match authorization {
            true => Some(b"session_authorization"[..].into()),
            false => setting(&mut named),
        };
        let Some(name) = name else {
            return Kinds::SETS_ANY;
        };
        if is_naming(&name) {
            self.found.looks_elsewhere(&name, None);
        }
        self.found.mention(Mention::Back(name));
        Kinds::NOTHING
    }

    fn set(&mut self) -> Kinds {
        let mut ahead = self.tokens;
        // `UPDATE t SET (a, b) = ...`
        if self.at.loose && ahead.sign_is_next(b'(') {
            return Kinds::NOTHING;
        }
        if keyword(&mut ahead, b"local") {
            self.set_local(ahead);
            return Kinds::NOTHING;
        }
        let mut session = keyword(&mut ahead, b"session");
        let mut behind = ahead;
        if keyword(&mut behind, b"session") {
            // `SET SESSION SESSION AUTHORIZATION u`
            (session, ahead) = (true, behind);
        }
        if session && keyword(&mut ahead, b"characteristics") {
            for name in [
                "default_transaction_isolation",
                "default_transaction_read_only",
                "default_transaction_deferrable",
            ] {
                self.found.mention(Mention::Set(name.as_bytes().into()));
            }
            return Kinds::NOTHING;
        }
        if keyword(&mut ahead, b"transaction") || keyword(&mut ahead, b"constraints") {
            return Kinds::NOTHING;
        }
        let mut name: Box<[u8]> = if session && keyword(&mut ahead, b"authorization") {
            b"session_authorization"[..].into()
        } else if keyword(&mut ahead, b"names") {
            b"client_encoding"[..].into()
        } else if keyword(&mut ahead, b"schema") {
            b"search_path"[..].into()
        } else if keyword(&mut ahead, b"xml") {
            b"xmloption"[..].into()
        } else {
            let Some(name) = setting(&mut ahead) else {
                return Kinds::SETS_ANY;
            };
            let zone = &*name == b"timezone";
            if !zone || !(ahead.word(b"default") || ahead.word(b"local")) {
                let _ = ahead.word(b"to") || ahead.sign(b'=');
            } else {
                self.found.mention(Mention::Back(name));
                return Kinds::NOTHING;
            }
            name
        };
        if OF_TRANSACTIONS.contains(&&*name) {
            return Kinds::NOTHING;
        }
        if &*name == b"seed" {
            return Kinds::STAYS;
        }
        if &*name == b"authorization" {
            name = b"session_authorization"[..].into();
        }
        self.looks_elsewhere(&name, ahead);
        let back = ahead.word(b"default");
        self.found.mention(match back {
            true => Mention::Back(name),
            false => Mention::Set(name),
        });
        Kinds::NOTHING
    }

    /// `SET LOCAL name = value`; `ahead` begins at the name.
    fn set_local(&mut self, mut ahead: Tokens<'a>) {
        let session = keyword(&mut ahead, b"session") && keyword(&mut ahead, b"authorization");
        let name = match session {
            true => Some(b"session_authorization"[..].into()),
            false if keyword(&mut ahead, b"schema") => Some(b"search_path"[..].into()),
            false => setting(&mut ahead),
        };
        if let Some(name) = name {
            let _ = ahead.word(b"to") || ahead.sign(b'=');
            self.looks_elsewhere(&name, ahead);
        }
    }

    /// After a SET of this name, PostgreSQL may look names up elsewhere. `value` begins at the new
    /// value.
    fn looks_elsewhere(&mut self, name: &[u8], mut value: Tokens<'a>) {
        if !is_naming(name) {
            return;
        }
        let mut ahead = value;
        let told = !self.at.loose && !ahead.word(b"default");
        let from = value.rest();
        let mut end = from;
        while !matches!(value.next(), None | Some(Token::Sign(b';'))) {
            end = value.rest();
        }
        let words = from[..from.len() - end.len()].trim_ascii();
        self.found.looks_elsewhere(name, told.then_some(words));
    }

    /// A word inside a command; `last` is the word before, `first` the first word of the command.
    fn within(&mut self, word: &[u8], last: &[u8], first: &[u8]) {
        if last.eq_ignore_ascii_case(b"commit") && word.eq_ignore_ascii_case(b"drop") {
            self.at.lasting -= 1;
        }
        if self.at.body && last.eq_ignore_ascii_case(b"language") {
            self.speaks(word);
        }
        if !glance::may_be_named(word) {
            return;
        }
        let is = |name: &[u8]| word.eq_ignore_ascii_case(name);
        let begins = |name: &[u8]| {
            word.get(..name.len())
                .is_some_and(|front| front.eq_ignore_ascii_case(name))
        };
        let after = |names: &[&[u8]]| names.iter().any(|name| last.eq_ignore_ascii_case(name));
        let temporary = is(b"temp") || is(b"temporary");
        // `INSERT INTO temp` means a table named `temp`.
        let inserts = !self.at.loose && first.eq_ignore_ascii_case(b"insert");
        let kinds = if inserts && last.eq_ignore_ascii_case(b"into") {
            Kinds::NOTHING
        } else if temporary
            && after(&[
                b"into", b"local", b"global", b"create", b"replace", b"analyze",
            ])
        {
            Kinds::TEMPORARY
        } else if begins(b"pg_temp") {
            let makes: [&[u8]; 4] = [b"create", b"alter", b"set", b"do"];
            let makes = makes.iter().any(|name| first.eq_ignore_ascii_case(name));
            match makes || self.at.loose || last.eq_ignore_ascii_case(b"into") {
                true => Kinds::TEMPORARY,
                false => Kinds::NOTHING,
            }
        } else if is(b"pg_settings")
            && self.at.updates
            && (after(&[b"update", b"only"]) || self.is_updated(last))
        {
            Kinds::SETS_ANY
        } else if !self.tokens.sign_is_next(b'(') {
            match self.at.dotted {
                true => attribute(word, self.at.named),
                false => Kinds::NOTHING,
            }
        } else if glance::runs_a_string(word) {
            self.at.body = true;
            Kinds::NOTHING
        } else if is(b"set_config") {
            self.set_config();
            Kinds::NOTHING
        } else if begins(b"pg_advisory_lock") || begins(b"pg_try_advisory_lock") {
            Kinds::LOCKS
        } else if begins(b"pg_advisory_unlock") {
            Kinds::UNLOCKS
        } else if is(b"currval") || is(b"lastval") {
            Kinds::SEQUENCES
        } else if is(b"pg_notify") {
            Kinds::NOTIFIES
        } else if is(b"pg_listening_channels") {
            Kinds::ASKS_CHANNELS
        } else if is(b"set_limit") {
            let name = b"pg_trgm.similarity_threshold"[..].into();
            self.found.mention(Mention::Set(name));
            Kinds::NOTHING
        } else if begins(b"pg_c") && is_slot(word) {
            match makes_temporary_slot(self.tokens) {
                true => Kinds::STAYS,
                false => Kinds::NOTHING,
            }
        } else if is(b"setseed")
            || begins(b"set_user")
            || is(b"set_session_auth")
            || begins(b"dblink_connect")
            || is(b"pg_replication_origin_session_setup")
            || is(b"pg_backup_start")
            || is(b"pg_start_backup")
        {
            Kinds::STAYS
        } else {
            Kinds::NOTHING
        };
        self.at.lasting += i32::from(kinds.any(Kinds::TEMPORARY));
        self.found.kinds.add(kinds);
    }

    /// The language of a DO. Howdah reads only the strings of PL/pgSQL.
    fn speaks(&mut self, language: &[u8]) {
        if !language.eq_ignore_ascii_case(b"plpgsql") {
            self.found.kinds.add(Kinds::DOUBT);
        }
    }

    /// A word of a DECLARE, which may have `WITH HOLD` before its query.
    fn declared(&mut self, word: &[u8], last: &[u8]) {
        if word.eq_ignore_ascii_case(b"for") {
            self.at.declares = false;
        } else if word.eq_ignore_ascii_case(b"hold") && last.eq_ignore_ascii_case(b"with") {
            self.found.kinds.add(Kinds::HOLDS);
        }
    }

    /// `UPDATE pg_catalog.pg_settings`. The reader does not look back at the schema, so any
    /// qualified name with a SET behind it counts.
    fn is_updated(&self, last: &[u8]) -> bool {
        let schema = last.is_empty() || last.eq_ignore_ascii_case(b"pg_catalog");
        let mut ahead = self.tokens;
        let sets = |ahead: &mut Tokens<'_>| {
            (0..4).any(
                |_| matches!(ahead.next(), Some(Token::Word(w)) if w.eq_ignore_ascii_case(b"set")),
            )
        };
        schema && (self.at.loose || sets(&mut ahead))
    }

    fn makes_temporary(&mut self) {
        self.at.lasting += 1;
        self.found.kinds.add(Kinds::TEMPORARY);
    }

    /// `set_config(name, value, is_local)`.
    fn set_config(&mut self) {
        if sets_temporary(self.tokens) {
            self.makes_temporary();
        }
        let of_text =
            !self.at.loose && !self.at.body && self.at.prepares.is_none() && self.depth == 0;
        if let Some(call) = bound::Call::read(self.tokens).filter(|_| of_text) {
            return self.found.calls(call);
        }
        let named = bound::named(self.tokens);
        if named.as_deref().is_none_or(is_naming) {
            self.found
                .looks_elsewhere(named.as_deref().unwrap_or_default(), None);
        }
        match set_config_name(self.tokens) {
            SetConfig::Local => {}
            SetConfig::Of(name) => self.found.sets(name),
            SetConfig::Any => self.found.kinds.add(Kinds::SETS_ANY),
        }
    }
}

/// The effects of a function that is called like an attribute of its argument:
/// `(5::bigint).pg_advisory_lock`, `$1.currval`. After a name, the word is likely a column:
/// `t.currval`.
fn attribute(word: &[u8], named: bool) -> Kinds {
    let is = |name: &[u8]| word.eq_ignore_ascii_case(name);
    let begins = |name: &[u8]| {
        word.get(..name.len())
            .is_some_and(|front| front.eq_ignore_ascii_case(name))
    };
    if begins(b"pg_advisory_lock") || begins(b"pg_try_advisory_lock") {
        Kinds::LOCKS
    } else if begins(b"pg_advisory_unlock") {
        Kinds::UNLOCKS
    } else if is(b"currval") && !named {
        Kinds::SEQUENCES
    } else if glance::runs_a_string(word) {
        Kinds::DOUBT
    } else if is(b"set_limit") && !named {
        Kinds::SETS_ANY
    } else if is(b"setseed")
        || is(b"set_user")
        || is(b"set_user_u")
        || is(b"set_session_auth")
        || begins(b"dblink_connect")
        || is(b"pg_replication_origin_session_setup")
        || is(b"pg_backup_start")
        || is(b"pg_start_backup")
    {
        Kinds::STAYS
    } else {
        Kinds::NOTHING
    }
}

/// Passes over a keyword, except as the first part of a custom name: `SET local.tenant = 1`.
fn keyword(tokens: &mut Tokens<'_>, keyword: &[u8]) -> bool {
    let mut ahead = *tokens;
    let is = ahead.word(keyword) && !ahead.sign_is_next(b'.');
    if is {
        *tokens = ahead;
    }
    is
}

/// Whether a search path may contain `pg_temp`.
fn has_temporary(value: &[u8]) -> bool {
    let name = b"pg_temp";
    let mut parts = value.windows(name.len());
    parts.any(|part| part.eq_ignore_ascii_case(name))
}

/// Whether an argument of a call may be a search path with `pg_temp`.
fn sets_temporary(tokens: Tokens<'_>) -> bool {
    let mut depth = 0u32;
    for token in tokens {
        match token {
            Token::Sign(b'(') => depth += 1,
            Token::Sign(b')') if depth <= 1 => return false,
            Token::Sign(b')') => depth -= 1,
            Token::Sign(b';') => return false,
            // The inner call is read on its own, so each call is read once.
            Token::Word(word) if word.eq_ignore_ascii_case(b"set_config") => return false,
            Token::Text { inside, .. } if has_temporary(inside) => return true,
            _ => {}
        }
    }
    false
}

/// The byte that an escape stands for in a string that is run; a blank stands for all white space.
/// `None` for the first of several digits. `sure`: the backslash certainly escapes.
fn escaped(byte: u8, sure: bool) -> Option<u8> {
    match byte {
        b'b' | b'f' | b'n' | b'r' | b't' => Some(b' '),
        b'0'..=b'7' | b'x' | b'u' | b'U' if sure => None,
        byte => Some(byte),
    }
}

/// The value of a string with escapes; `sure` as in [`escaped`].
fn unescaped(inside: &[u8], sure: bool) -> Option<Vec<u8>> {
    let mut value = Vec::with_capacity(inside.len());
    let mut bytes = inside.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => value.push(escaped(*bytes.next()?, sure)?),
            byte => value.push(*byte),
        }
    }
    Some(value)
}

enum SetConfig {
    /// Nothing beyond the end of the transaction.
    Local,
    /// This setting.
    Of(Box<[u8]>),
    /// Perhaps any setting.
    Any,
}

fn set_config_name(mut tokens: Tokens<'_>) -> SetConfig {
    if !tokens.sign(b'(') {
        return SetConfig::Any;
    }
    let first = tokens.next();
    let mut of = match first {
        Some(Token::Text {
            inside,
            plain: true,
            ..
        }) => name_of(inside),
        _ => None,
    };
    // Only a cast of the constant may stand before the comma.
    if tokens.sign(b':') {
        let cast = tokens.sign(b':');
        let word = tokens.word(b"text") || tokens.word(b"varchar");
        of = of.filter(|_| cast && word);
    }
    let mut ahead = tokens;
    if ahead.next() != Some(Token::Sign(b',')) {
        of = None;
    }
    let mut commas = 0;
    let mut depth = 0u32;
    // The number of tokens in the current argument, and the last one.
    let (mut count, mut only) = (usize::from(first.is_some()), first);
    let mut closed = false;
    for token in tokens {
        match token {
            Token::Sign(b'(' | b'[') => depth += 1,
            Token::Sign(b')' | b']') if depth > 0 => depth -= 1,
            Token::Sign(b')') => {
                closed = true;
                break;
            }
            Token::Sign(b',') if depth == 0 => {
                commas += 1;
                (count, only) = (0, None);
                continue;
            }
            Token::Sign(b';') => return SetConfig::Any,
            // The inner call is read on its own, so each call is read once.
            Token::Word(word) if word.eq_ignore_ascii_case(b"set_config") => return SetConfig::Any,
            _ => {}
        }
        count += 1;
        only = Some(token);
    }
    let local = closed
        && commas == 2
        && count == 1
        && match only {
            Some(Token::Word(word)) => word.eq_ignore_ascii_case(b"true"),
            Some(Token::Text {
                inside,
                plain: true,
                ..
            }) => inside.eq_ignore_ascii_case(b"true") || inside.eq_ignore_ascii_case(b"t"),
            _ => false,
        };
    match (local, of) {
        (true, _) => SetConfig::Local,
        (false, Some(name)) => SetConfig::Of(name),
        (false, None) => SetConfig::Any,
    }
}

/// `pg_create_logical_replication_slot` and the like.
fn is_slot(word: &[u8]) -> bool {
    [
        &b"pg_create_logical_replication_slot"[..],
        b"pg_create_physical_replication_slot",
        b"pg_copy_logical_replication_slot",
        b"pg_copy_physical_replication_slot",
    ]
    .iter()
    .any(|name| word.eq_ignore_ascii_case(name))
}

/// Whether the third argument makes the slot temporary, or may do so.
fn makes_temporary_slot(tokens: Tokens<'_>) -> bool {
    let (mut depth, mut commas) = (0u32, 0);
    for token in tokens.take(limits::SLOT_TOKENS) {
        match token {
            Token::Sign(b'(') => depth += 1,
            Token::Sign(b')') if depth <= 1 => return false,
            Token::Sign(b')') => depth -= 1,
            Token::Sign(b',') if depth == 1 => commas += 1,
            Token::Word(word) if word.eq_ignore_ascii_case(b"temporary") => return true,
            Token::Word(word) if commas == 2 && word.eq_ignore_ascii_case(b"false") => {
                return false;
            }
            _ if commas == 2 => return true,
            _ => {}
        }
    }
    true
}
