//! The reader of texts that the first look does not clear: it reads each command token by token.

use super::bound::Call;
use super::effects::{Effects, Mention};
use super::kinds::Kinds;
use super::name::{OF_TRANSACTIONS, identifier, is_naming, is_ours, setting};
use super::prepared::{self, StatementCommand};
use super::token::{Form, Token, Tokens};
use super::words;
use crate::limits;

/// Reads the effects of a text.
pub(super) fn read(text: &[u8]) -> Effects {
    let mut reader = Reader {
        tokens: Tokens::new(text),
        found: Effects::default(),
        left: limits::TEXT_OUTSIDE_STRINGS,
        lasting: 0,
        copies: false,
    };
    while let Some(token) = reader.next() {
        match token {
            Token::Sign(b';') => {}
            Token::Word(word) => reader.command(word),
            // `(SELECT ...)`, or no SQL at all.
            token => reader.pass(token, Command::Other),
        }
    }
    if reader.tokens.is_unsure() || reader.left == 0 {
        reader.doubts();
    }
    if reader.copies && !reader.found.statements.is_empty() {
        reader.adds(Kinds::COPIES);
    }
    reader.found.told(reader.lasting <= 0)
}

struct Reader<'a> {
    tokens: Tokens<'a>,
    found: Effects,
    /// How many bytes outside of strings may still be read.
    left: usize,
    /// Temporary objects created, minus those dropped at the end of the transaction.
    lasting: i32,
    /// A COPY came.
    copies: bool,
}

/// Commands in which words have a meaning that they have in no other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Command {
    /// CREATE: `TEMP`, `pg_temp`, `AS EXECUTE name`.
    Create,
    /// DECLARE, before the cursor's query: `WITH HOLD`.
    Declare,
    /// CALL: the procedure may run strings.
    Call,
    Other,
}

/// Where INSERT and MERGE are commands, so that INTO behind them makes no table. Elsewhere they are
/// names: `SELECT 1 AS insert INTO t`.
#[derive(Default)]
struct Inserts {
    /// The token before is INSERT or MERGE, as a command.
    here: bool,
    /// A command may begin at the next token: behind `(`, or behind the `)` of a WITH.
    may_begin: bool,
    depth: u32,
    /// A SELECT came outside of parentheses.
    selects: bool,
    begun: bool,
}

impl Inserts {
    fn before_into(&self) -> bool {
        self.here
    }

    fn pass(&mut self, token: Token<'_>) {
        let is = |names: &[&[u8]]| matches!(token, Token::Word(word) if names.iter().any(|name| word.eq_ignore_ascii_case(name)));
        let begins = self.may_begin || !std::mem::replace(&mut self.begun, true);
        self.here = begins && is(&[b"insert", b"merge"]);
        self.selects |= self.depth == 0 && is(&[b"select", b"values", b"table"]);
        match token {
            Token::Sign(b'(') => self.depth += 1,
            Token::Sign(b')') => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        self.may_begin = match token {
            Token::Sign(b'(') => true,
            Token::Sign(b')') => !self.selects,
            _ => false,
        };
    }
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Option<Token<'a>> {
        if self.left == 0 {
            return None;
        }
        let before = self.tokens.rest().len();
        let token = self.tokens.next()?;
        let inside = match token {
            Token::Text { inside, .. } => inside.len(),
            _ => 0,
        };
        let outside = before - self.tokens.rest().len() - inside;
        self.left = self.left.saturating_sub(outside);
        Some(token)
    }

    fn adds(&mut self, kinds: Kinds) {
        self.found.kinds.add(kinds);
    }

    fn doubts(&mut self) {
        self.adds(Kinds::DOUBT);
    }

    fn makes_temporary(&mut self) {
        self.lasting += 1;
        self.adds(Kinds::TEMPORARY);
    }

    /// Reads a command that begins with this word, up to its semicolon.
    fn command(&mut self, word: &'a [u8]) {
        let is = |keyword: &[u8]| word.eq_ignore_ascii_case(keyword);
        let mut command = Command::Other;
        match word.first().map_or(0, u8::to_ascii_lowercase) {
            b'a' if is(b"abort") => self.adds(Kinds::ENDS),
            b'a' if is(b"alter") => self.adds(Kinds::SCHEMA),
            b'b' if is(b"begin") => self.adds(Kinds::BEGINS),
            b'c' if is(b"call") => command = Command::Call,
            b'c' if is(b"commit") => self.adds(Kinds::ENDS),
            b'c' if is(b"copy") => self.copies = true,
            b'c' if is(b"close") => self.adds(Kinds::CLOSES),
            b'c' if is(b"create") => {
                self.adds(Kinds::SCHEMA);
                if !makes_what_no_path_holds(self.tokens) {
                    self.adds(Kinds::CREATES);
                }
                command = Command::Create;
            }
            b'd' if is(b"deallocate") => self.deallocate(),
            b'd' if is(b"declare") => command = Command::Declare,
            b'd' if is(b"discard") => self.discard(),
            b'd' if is(b"do") => return self.block(),
            b'd' if is(b"drop") => self.adds(Kinds::SCHEMA.and(Kinds::DROPS)),
            b'e' if is(b"end") => self.adds(Kinds::ENDS),
            b'e' if is(b"execute") => self.execute(),
            b'e' if is(b"explain") => return self.explain(),
            b'i' if is(b"import") => self.adds(Kinds::SCHEMA.and(Kinds::CREATES)),
            b'l' if is(b"listen") => self.adds(Kinds::LISTENS),
            b'l' if is(b"load") => self.adds(Kinds::STAYS),
            b'n' if is(b"notify") => self.adds(Kinds::NOTIFIES),
            b'p' if is(b"prepare") => self.prepare(),
            b'r' if is(b"rollback") || is(b"release") => self.adds(Kinds::ENDS),
            b'r' if is(b"reset") => self.reset(),
            b's' if is(b"savepoint") => self.adds(Kinds::ENDS),
            b's' if is(b"set") => self.set(),
            b's' if is(b"start") => self.adds(Kinds::BEGINS),
            b'u' if is(b"unlisten") => self.adds(Kinds::UNLISTENS),
            _ => {}
        }
        self.pass(Token::Word(word), command);
    }

    /// Reads the rest of a command, and notes what the words in it may do. `first` is the token
    /// that was read last.
    fn pass(&mut self, first: Token<'a>, mut command: Command) {
        let mut last: &[u8] = b"";
        // The token before is a dot; before the dot stands a name.
        let (mut dotted, mut named) = (false, false);
        let mut inserts = Inserts::default();
        let mut next = Some(first);
        let mut before = self.tokens.rest();
        while let Some(token) = next {
            if command == Command::Call && self.tokens.goes_on() {
                // A string over two lines: neither part has the whole word.
                self.doubts();
            }
            match token {
                Token::Sign(b';') => return,
                Token::Word(word)
                    if word.eq_ignore_ascii_case(b"into") && inserts.before_into() => {}
                Token::Word(word) | Token::Quoted(word) => {
                    match command {
                        Command::Create => self.created(word, last),
                        Command::Declare
                            if token == Token::Word(word) && word.eq_ignore_ascii_case(b"for") =>
                        {
                            command = Command::Other;
                        }
                        Command::Declare
                            if word.eq_ignore_ascii_case(b"hold")
                                && last.eq_ignore_ascii_case(b"with") =>
                        {
                            self.adds(Kinds::HOLDS);
                        }
                        _ => {}
                    }
                    self.word(word, dotted.then_some(named));
                    last = word;
                }
                Token::Unicode => {
                    self.doubts();
                    last = b"";
                }
                Token::Text { inside, form } => {
                    if command == Command::Call && (form != Form::Plain || words::has_acts(inside))
                    {
                        self.doubts();
                    }
                    last = b"";
                }
                Token::Sign(b'.') => {}
                Token::Sign(_) => last = b"",
            }
            inserts.pass(token);
            // The tokens take the dot of `$1.currval` as part of a number.
            let read = &before[..before.len() - self.tokens.rest().len()];
            dotted = read.ends_with(b".") || token == Token::Sign(b'.');
            if token != Token::Sign(b'.') {
                named = matches!(token, Token::Word(_) | Token::Quoted(_));
            }
            before = self.tokens.rest();
            next = self.next();
        }
    }

    /// A word of a CREATE.
    fn created(&mut self, word: &'a [u8], last: &[u8]) {
        let is = |name: &[u8]| word.eq_ignore_ascii_case(name);
        let after = |names: &[&[u8]]| names.iter().any(|name| last.eq_ignore_ascii_case(name));
        let keyword = is(b"temp") || is(b"temporary");
        let before: [&[u8]; 4] = [b"create", b"replace", b"local", b"global"];
        let schema = word
            .get(..7)
            .is_some_and(|front| front.eq_ignore_ascii_case(b"pg_temp"));
        if keyword && after(&before) || schema {
            self.makes_temporary();
        } else if is(b"drop") && after(&[b"commit"]) {
            self.lasting -= 1;
        } else if is(b"execute") && after(&[b"as"]) {
            self.execute();
        }
    }

    /// A word inside a command. `dotted`: the word follows a dot, with a name before the dot or not.
    fn word(&mut self, word: &'a [u8], dotted: Option<bool>) {
        let is = |name: &[u8]| word.eq_ignore_ascii_case(name);
        if is(b"into") {
            return self.into();
        }
        if is(b"update") {
            return self.update();
        }
        let Some(function) = Function::named(word) else {
            // In some encodings, PostgreSQL may read a part of the word as another character.
            if !word.is_ascii() && words::has_calls(word) {
                self.doubts();
            }
            return;
        };
        if !self.tokens.sign_is_next(b'(') {
            // A column, or a call that looks like one: `(5::bigint).pg_advisory_lock`. Before a
            // column of this name stands a table.
            let column = function == Function::AsksSequence && dotted == Some(true);
            if dotted.is_some() && !column {
                self.doubts();
            }
            return;
        }
        self.calls(function);
    }

    /// A function is called.
    fn calls(&mut self, function: Function) {
        match function {
            Function::SetsConfig => {
                let call = Call::read(self.tokens);
                self.found.calls(call);
            }
            Function::SetsLimit => {
                let name = b"pg_trgm.similarity_threshold"[..].into();
                self.found.mention(Mention::Set(name));
            }
            Function::Locks => self.adds(Kinds::LOCKS),
            Function::Unlocks => self.adds(Kinds::UNLOCKS),
            Function::AsksSequence => self.adds(Kinds::SEQUENCES),
            Function::Notifies => self.adds(Kinds::NOTIFIES),
            Function::AsksChannels => self.adds(Kinds::ASKS_CHANNELS),
            Function::MakesSlot => {
                if makes_temporary_slot(self.tokens) {
                    self.adds(Kinds::STAYS);
                }
            }
            Function::Stays => self.adds(Kinds::STAYS),
            Function::RunsString => {
                if !runs_plain_strings(self.tokens) {
                    self.doubts();
                }
            }
        }
    }

    /// `SELECT ... INTO t`
    fn into(&mut self) {
        let mut ahead = self.tokens;
        let _ = ahead.word(b"local") || ahead.word(b"global");
        let temporary = match ahead.next() {
            Some(Token::Word(word) | Token::Quoted(word)) => {
                let is = |name: &[u8]| word.eq_ignore_ascii_case(name);
                let schema = word
                    .get(..7)
                    .is_some_and(|name| name.eq_ignore_ascii_case(b"pg_temp"));
                is(b"temp") || is(b"temporary") || schema
            }
            _ => false,
        };
        self.adds(Kinds::SCHEMA.and(Kinds::CREATES));
        if temporary {
            self.makes_temporary();
        }
    }

    /// `UPDATE [ONLY] t`: doubtful for `pg_settings`, which sets settings.
    fn update(&mut self) {
        let mut ahead = self.tokens;
        ahead.word(b"only");
        ahead.sign(b'(');
        loop {
            match ahead.next() {
                Some(Token::Word(name) | Token::Quoted(name))
                    if name.eq_ignore_ascii_case(b"pg_settings") =>
                {
                    return self.doubts();
                }
                Some(Token::Word(_) | Token::Quoted(_)) => {}
                _ => return,
            }
            if !ahead.sign(b'.') {
                return;
            }
        }
    }

    /// DO: plain if its body is one constant without any word that may act, in PL/pgSQL.
    fn block(&mut self) {
        let mut bodies = 0;
        while let Some(token) = self.next() {
            match token {
                Token::Sign(b';') => break,
                Token::Word(word) if word.eq_ignore_ascii_case(b"language") => {
                    let language = self.next();
                    let plain = matches!(
                        language,
                        Some(
                            Token::Word(name) | Token::Quoted(name)
                                | Token::Text { inside: name, .. }
                        ) if name.eq_ignore_ascii_case(b"plpgsql")
                    );
                    if !plain {
                        self.doubts();
                    }
                }
                Token::Text { inside, form } => {
                    bodies += 1;
                    if words::has_notify(inside) {
                        self.adds(Kinds::NOTIFIES);
                    }
                    if form != Form::Plain || words::has_acts(inside) {
                        self.doubts();
                    }
                }
                _ => {}
            }
        }
        if bodies != 1 {
            self.doubts();
        }
    }

    /// EXPLAIN: reads the command behind the options.
    fn explain(&mut self) {
        let mut depth = 0u32;
        while let Some(token) = self.next() {
            match token {
                Token::Sign(b';') => return,
                Token::Sign(b'(') => depth += 1,
                Token::Sign(b')') => depth = depth.saturating_sub(1),
                // `EXPLAIN (SELECT ...)` has the same form as options.
                Token::Word(word) if depth > 0 && !is_reading(word) => {}
                Token::Word(word)
                    if [&b"analyze"[..], b"analyse", b"verbose", b"explain"]
                        .iter()
                        .any(|option| word.eq_ignore_ascii_case(option)) => {}
                Token::Word(word) => return self.command(word),
                _ => {}
            }
        }
    }

    fn discard(&mut self) {
        let mut ahead = self.tokens;
        if ahead.word(b"all") {
            self.found.mention(Mention::AllBack);
            return self.adds(Kinds::DISCARDS_ALL);
        }
        self.adds(Kinds::DROPS);
    }

    /// SQL's PREPARE.
    fn prepare(&mut self) {
        let mut ahead = self.tokens;
        if ahead.word(b"transaction") {
            return self.adds(Kinds::ENDS);
        }
        self.adds(Kinds::PREPARES);
        // What the statement does, its EXECUTE does.
        match prepared::prepare(&mut self.tokens) {
            Some(command) => self.names_statement(command),
            None => {
                self.doubts();
                self.found.statements.push(StatementCommand::Prepare {
                    name: Box::default(),
                    definition: None,
                });
            }
        }
    }

    /// `EXECUTE name`
    fn execute(&mut self) {
        let mut ahead = self.tokens;
        match identifier(&mut ahead) {
            Some(name) => self.names_statement(StatementCommand::Execute(name)),
            None => self.doubts(),
        }
    }

    /// `DEALLOCATE [PREPARE] name`
    fn deallocate(&mut self) {
        self.adds(Kinds::DEALLOCATES);
        let mut ahead = self.tokens;
        let mut behind = ahead;
        if behind.word(b"prepare") && !matches!(behind.next(), None | Some(Token::Sign(b';'))) {
            ahead.word(b"prepare");
        }
        if ahead.word(b"all") {
            return;
        }
        match identifier(&mut ahead) {
            Some(name) => self.names_statement(StatementCommand::Deallocate(name)),
            None => {
                self.doubts();
                let unread = StatementCommand::Deallocate(Box::default());
                self.found.statements.push(unread);
            }
        }
    }

    fn names_statement(&mut self, command: StatementCommand) {
        if is_ours(command.name()) {
            // Perhaps another client's statement.
            self.doubts();
        }
        if self.found.statements.len() >= limits::STATEMENTS_NAMED {
            return self.doubts();
        }
        self.found.statements.push(command);
    }

    fn reset(&mut self) {
        let mut ahead = self.tokens;
        if ahead.word(b"all") {
            self.found.mention(Mention::AllBack);
            return self.found.looks_elsewhere(b"search_path", None);
        }
        let authorization = ahead.word(b"session") && ahead.word(b"authorization");
        let mut named = self.tokens;
        let name = if authorization {
            Some(b"session_authorization"[..].into())
        } else {
            setting(&mut named)
        };
        let Some(name) = name else {
            return self.doubts();
        };
        if is_naming(&name) {
            self.found.looks_elsewhere(&name, None);
        }
        self.found.mention(Mention::Back(name));
    }

    fn set(&mut self) {
        let mut ahead = self.tokens;
        if keyword(&mut ahead, b"local") {
            return self.set_local(ahead);
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
            return;
        }
        if keyword(&mut ahead, b"transaction") || keyword(&mut ahead, b"constraints") {
            return;
        }
        let name: Box<[u8]> = if session && keyword(&mut ahead, b"authorization") {
            b"session_authorization"[..].into()
        } else if keyword(&mut ahead, b"names") {
            b"client_encoding"[..].into()
        } else if keyword(&mut ahead, b"schema") {
            b"search_path"[..].into()
        } else if keyword(&mut ahead, b"xml") {
            b"xmloption"[..].into()
        } else {
            match setting(&mut ahead) {
                Some(name) => name,
                None => return self.doubts(),
            }
        };
        match &*name {
            b"timezone" if ahead.word(b"default") || ahead.word(b"local") => {
                return self.found.mention(Mention::Back(name));
            }
            b"seed" => return self.adds(Kinds::STAYS),
            name if OF_TRANSACTIONS.contains(&name) => return,
            _ => {}
        }
        let _ = ahead.word(b"to") || ahead.sign(b'=');
        self.looks_elsewhere(&name, ahead);
        let back = ahead.word(b"default");
        self.found.mention(if back {
            Mention::Back(name)
        } else {
            Mention::Set(name)
        });
    }

    /// `SET LOCAL name = value`; `ahead` begins at the name.
    fn set_local(&mut self, mut ahead: Tokens<'a>) {
        let session = keyword(&mut ahead, b"session") && keyword(&mut ahead, b"authorization");
        let name = match session {
            true => Some(b"session_authorization"[..].into()),
            false if keyword(&mut ahead, b"schema") => Some(b"search_path"[..].into()),
            false => setting(&mut ahead),
        };
        match name {
            // No end of a transaction takes a seed back.
            Some(name) if *name == *b"seed" => self.adds(Kinds::STAYS),
            Some(name) => {
                let _ = ahead.word(b"to") || ahead.sign(b'=');
                self.looks_elsewhere(&name, ahead);
            }
            None => self.found.looks_elsewhere(b"", None),
        }
    }

    /// After a SET of this name, PostgreSQL may look names up elsewhere. `value` begins at the new
    /// value.
    fn looks_elsewhere(&mut self, name: &[u8], mut value: Tokens<'a>) {
        if !is_naming(name) {
            return;
        }
        let mut ahead = value;
        let told = !ahead.word(b"default");
        let from = value.rest();
        let mut end = from;
        while !matches!(value.next(), None | Some(Token::Sign(b';'))) {
            end = value.rest();
        }
        let words = from[..from.len() - end.len()].trim_ascii();
        let told = told && memchr::memchr(b'\\', words).is_none();
        self.found.looks_elsewhere(name, told.then_some(words));
    }
}

/// Functions that act on their session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Function {
    /// `set_config`
    SetsConfig,
    /// `set_limit` of pg_trgm
    SetsLimit,
    Locks,
    Unlocks,
    /// `currval`, `lastval`
    AsksSequence,
    Notifies,
    AsksChannels,
    MakesSlot,
    /// Leaves what only the end of the session removes.
    Stays,
    /// Runs a string as SQL.
    RunsString,
}

impl Function {
    fn named(name: &[u8]) -> Option<Function> {
        let is = |function: &[u8]| name.eq_ignore_ascii_case(function);
        let begins = |front: &[u8]| {
            name.get(..front.len())
                .is_some_and(|name| name.eq_ignore_ascii_case(front))
        };
        let found = match name.first()? | 0x20 {
            b'c' if is(b"currval") => Function::AsksSequence,
            b'c' if begins(b"crosstab") || is(b"connectby") => Function::RunsString,
            b'd' if begins(b"dblink_connect") => Function::Stays,
            b'l' if is(b"lastval") => Function::AsksSequence,
            b'p' if begins(b"pg_advisory_lock") || begins(b"pg_try_advisory_lock") => {
                Function::Locks
            }
            b'p' if begins(b"pg_advisory_unlock") => Function::Unlocks,
            b'p' if is(b"pg_notify") => Function::Notifies,
            b'p' if is(b"pg_listening_channels") => Function::AsksChannels,
            b'p' if is_slot(name) => Function::MakesSlot,
            b'p' if is(b"pg_replication_origin_session_setup")
                || is(b"pg_backup_start")
                || is(b"pg_start_backup") =>
            {
                Function::Stays
            }
            b'q' if begins(b"query_to_xml") => Function::RunsString,
            b's' if is(b"set_config") => Function::SetsConfig,
            b's' if is(b"set_limit") => Function::SetsLimit,
            b's' if is(b"setseed") || is(b"set_user") || is(b"set_user_u") => Function::Stays,
            b's' if is(b"set_session_auth") => Function::Stays,
            b't' if is(b"ts_stat") || is(b"ts_rewrite") => Function::RunsString,
            b'x' if is(b"xpath_table") => Function::RunsString,
            _ => return None,
        };
        Some(found)
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

/// True for a CREATE of what the search path does not decide about. (The index of a temporary table
/// is temporary.)
fn makes_what_no_path_holds(mut tokens: Tokens<'_>) -> bool {
    [&b"index"[..], b"unique", b"role", b"user", b"database"]
        .iter()
        .any(|kind| tokens.word(kind))
}

/// True for the first word of a command that EXPLAIN may have in parentheses.
fn is_reading(word: &[u8]) -> bool {
    [&b"select"[..], b"with", b"values", b"table"]
        .iter()
        .any(|keyword| word.eq_ignore_ascii_case(keyword))
}

/// Whether the arguments of a function that runs strings are only constants, without a word that
/// may act. `tokens` begins at the parenthesis.
fn runs_plain_strings(mut tokens: Tokens<'_>) -> bool {
    tokens.sign(b'(');
    let mut begins = true;
    while let Some(token) = tokens.next() {
        if tokens.goes_on() {
            // A string over two lines: neither part has the whole word.
            return false;
        }
        match token {
            Token::Text { inside, form } => {
                if form != Form::Plain || words::has_acts(inside) {
                    return false;
                }
            }
            _ if begins => return false,
            Token::Sign(b')') => return true,
            Token::Sign(sign) if sign == b',' || sign.is_ascii_digit() => {}
            Token::Word(word)
                if word.eq_ignore_ascii_case(b"true") || word.eq_ignore_ascii_case(b"false") => {}
            _ => return false,
        }
        begins = false;
    }
    false
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
