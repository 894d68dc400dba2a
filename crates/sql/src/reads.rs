//! Texts that only read, and may run on a standby.
//!
//! A **read** is one SELECT, VALUES, TABLE or WITH without any word by which a command writes or
//! locks rows, without a name that tells of one host only (`pg_...`, a sequence's columns), and
//! without a call of a volatile function. PostgreSQL knows which functions are volatile; the text
//! only shows which names it calls. A text whose tokens are not certain is no read.
//!
//! No text shows what views, operators, casts and the functions that it calls do themselves.

use crate::called::{CalledName, VolatileNames};
use crate::limits;
use crate::token::{Token, Tokens};

/// True if a text is a read in a database with these volatile functions.
#[inline]
pub fn is_read(text: &[u8], volatile: &VolatileNames) -> bool {
    may_be(text) && reads(Tokens::new(text), |name| !volatile.has(name))
}

/// The names that a text calls, sorted: the text is a read unless one of them is volatile. `None`
/// for a text that is no read in any database.
pub fn called_names(text: &[u8]) -> Option<Vec<CalledName>> {
    may_be(text).then(|| called_in(Tokens::new(text))).flatten()
}

/// [`called_names`] of a text in these tokens.
pub(crate) fn called_in(tokens: Tokens<'_>) -> Option<Vec<CalledName>> {
    let mut names = Vec::new();
    let reads = reads(tokens, |name| {
        names.push(name);
        true
    });
    names.sort_unstable();
    names.dedup();
    names.shrink_to_fit();
    reads.then_some(names)
}

/// A first look, in a few instructions: false for most texts that are no reads.
#[inline]
fn may_be(text: &[u8]) -> bool {
    let begins = match text {
        [b's' | b'S', b'e' | b'E', ..] => true,
        [b'w' | b'W' | b'v' | b'V' | b't' | b'T', ..] => true,
        // Blanks, a comment, a parenthesis.
        [b' ' | b'\t'..=b'\r' | b'-' | b'/' | b'(', ..] => true,
        _ => false,
    };
    begins && text.len() <= limits::READ
}

/// What stands before a token, as far as it matters.
#[derive(Clone, Copy)]
enum Before<'a> {
    /// A name: a parenthesis behind it calls the function.
    Name(&'a [u8]),
    /// A dot: the name behind it may be a column, or call a function.
    Dot,
    /// FOR: a lock may follow.
    For,
    Other,
}

/// Reads a text. `may_call` hears of each name that is called, perhaps several times; if it says
/// false, the text is no read.
fn reads(mut tokens: Tokens<'_>, mut may_call: impl FnMut(CalledName) -> bool) -> bool {
    // An encoding may make other names of such characters.
    if !tokens.rest().is_ascii() && !may_call(CalledName::FOREIGN) {
        return false;
    }
    if !begins(&mut tokens) {
        return false;
    }
    let (mut before, mut over) = (Before::Other, false);
    while let Some(token) = tokens.take_next() {
        if over && token != Token::Sign(b';') {
            return false;
        }
        let name = match token {
            Token::Word(word) => match keyword(word) {
                Keyword::Forbidden => return false,
                Keyword::Lock if matches!(before, Before::For) => return false,
                Keyword::For if !matches!(before, Before::Dot) => {
                    before = Before::For;
                    continue;
                }
                Keyword::For | Keyword::Lock | Keyword::None => word,
            },
            Token::Quoted(name) => {
                if is_of_one_host(name) {
                    return false;
                }
                name
            }
            Token::Sign(sign) => {
                match sign {
                    b'(' => {
                        if let Before::Name(name) = before
                            && !may_call(CalledName::of(name))
                        {
                            return false;
                        }
                    }
                    b'.' => {
                        before = Before::Dot;
                        continue;
                    }
                    b';' => over = true,
                    // The dot of `$1.name` belongs to no number.
                    b'$' => tokens.pass_digits(),
                    0 => return false,
                    _ => {}
                }
                before = Before::Other;
                continue;
            }
            Token::Unicode => return false,
            Token::Text { .. } => {
                before = Before::Other;
                continue;
            }
        };
        before = match before {
            Before::Dot if !may_call(CalledName::of(name)) => return false,
            Before::Dot => Before::Other,
            _ => Before::Name(name),
        };
    }
    !tokens.is_cut() && !tokens.is_unsure()
}

/// Passes over the parentheses and the word that a read begins with.
#[inline(always)]
fn begins(tokens: &mut Tokens<'_>) -> bool {
    loop {
        match tokens.next() {
            Some(Token::Sign(b'(')) => {}
            Some(Token::Word(word)) => {
                return is(word, b"select")
                    || is(word, b"with")
                    || is(word, b"values")
                    || is(word, b"table");
            }
            _ => return false,
        }
    }
}

/// What a word without quotes says.
enum Keyword {
    /// No read has the word.
    Forbidden,
    For,
    /// No read has the word behind FOR.
    Lock,
    None,
}

#[inline(always)]
fn keyword(word: &[u8]) -> Keyword {
    let forbidden = match word[0] | 0x20 {
        // INTO creates a table, and `FOR UPDATE` locks rows.
        b'i' => is(word, b"insert") || is(word, b"into") || is_of_one_host(word),
        b'u' => is(word, b"update"),
        b'd' => is(word, b"delete"),
        b'm' => is(word, b"merge"),
        b'p' | b't' | b'c' | b'l' => is_of_one_host(word),
        b'f' if is(word, b"for") => return Keyword::For,
        // `FOR SHARE`, `FOR KEY SHARE`, `FOR NO KEY UPDATE`.
        b's' if is(word, b"share") => return Keyword::Lock,
        b'k' if is(word, b"key") => return Keyword::Lock,
        b'n' if is(word, b"no") => return Keyword::Lock,
        _ => false,
    };
    if forbidden {
        Keyword::Forbidden
    } else {
        Keyword::None
    }
}

/// A name of PostgreSQL that means something else on each host, or belongs to a sequence.
fn is_of_one_host(name: &[u8]) -> bool {
    match name.first().map_or(0, |byte| byte | 0x20) {
        b'p' => begins_with(name, b"pg_"),
        b't' => begins_with(name, b"txid_"),
        b'i' => {
            begins_with(name, b"inet_") || is(name, b"information_schema") || is(name, b"is_called")
        }
        b'c' => is(name, b"current_setting"),
        b'l' => is(name, b"last_value") || is(name, b"log_cnt"),
        _ => false,
    }
}

/// Whether a word is this one, in any case.
#[inline(always)]
fn is<const LENGTH: usize>(word: &[u8], other: &[u8; LENGTH]) -> bool {
    word.len() == LENGTH && begins_with(word, other)
}

/// Whether a word begins with this part, in any case.
#[inline(always)]
fn begins_with<const LENGTH: usize>(word: &[u8], part: &[u8; LENGTH]) -> bool {
    { word.first_chunk::<LENGTH>() }
        .is_some_and(|front| front.map(|byte| byte | 0x20) == part.map(|byte| byte | 0x20))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reads, with the names that they call.
    const READS: &[(&str, &str)] = &[
        // The commands.
        ("select 1", ""),
        (
            "SELECT abalance FROM pgbench_accounts WHERE aid = 12345;",
            "",
        ),
        ("values (1), (2)", ""),
        ("table t", ""),
        ("Table only t;", ""),
        ("with a as (select 1) select * from a", "as"),
        (
            "with recursive a(n) as (values (1) union select n + 1 from a) table a",
            "a as values",
        ),
        ("((select 1) union (values (2)))", "union values"),
        (" \n\t( /* a */ select 1)", ""),
        ("-- a\nselect 1 -- b", ""),
        ("/* a /* b */ */select 1/**/;/* c */ ; -- d", ""),
        ("select", ""),
        ("select 1;;", ""),
        (
            "select 'a' as b, 2.5 c, null d from t where e = 'f' order by 1 desc limit 10",
            "",
        ),
        (
            "select count(*), max (x) from t where a in (1, 2)",
            "count max in",
        ),
        ("select distinct on (a) a from t", "on"),
        (
            "select a from t where exists (select 1) and not (b or (c))",
            "exists not or",
        ),
        ("select case when a then f(1) else g (2) end", "f g"),
        ("select a over from t", ""),
        (
            "select sum(a) filter (where b) over (partition by c) from t",
            "sum filter over",
        ),
        (
            "select * from a join b using (c) left join lateral (select 1) d on true",
            "using lateral",
        ),
        // Words that only look like others.
        (
            "select inserted, updated_at, deleted, merged, intoto from t",
            "",
        ),
        ("select update_ from t", ""),
        ("select no, key, share from t", ""),
        (r#"select "update", "into" from "insert""#, ""),
        ("select 'insert', 'for update' from t", ""),
        ("select $$delete from t$$, $a$ merge $$ $a$", ""),
        ("select 1 /* into */ -- update\n", ""),
        (
            "select substring(a for 3), overlay(b placing c from 1 for 2)",
            "substring overlay",
        ),
        ("select 1 for read only", ""),
        (r#"select "for" share from t"#, ""),
        ("select 'for' key from t", ""),
        ("select pgx, txid, inet, pg, xpg_y, _pg_z from t", ""),
        ("select 'pg_class', $$pg_sleep(1)$$", ""),
        ("select current_settings, last_valued, log_cnts from t", ""),
        // Calls.
        ("select f()", "f"),
        (r#"select F(1), "G"(2)"#, "f g"),
        ("select f /* a */ -- b\n (1)", "f"),
        (r#"select "f"/**/(1)"#, "f"),
        ("select a.b(1)", "b"),
        ("select a . /* c */ b", "b"),
        ("select a.b.c from a.b", "b c"),
        (r#"select "a"."b" from "a""#, "b"),
        ("select ('s'::regclass).nextval", "nextval"),
        (r#"select ('s'::regclass)."nextval""#, "nextval"),
        ("select x.nextval", "nextval"),
        ("select a[1].f, (b).*", "f"),
        (r#"select $1.f, $2 . g, $3."h""#, "f g h"),
        ("select $1f(2)", "f"),
        ("select f (g(h((1))))", "f g h"),
        ("select(f(1))", "f"),
        ("select f(*), g(all 1), h(variadic array[1])", "f g h"),
        (r#"select "for"(1)"#, "for"),
        ("select a.for(1), b.for share from t", "for"),
        (
            "select random(), gen_random_uuid()",
            "random gen_random_uuid",
        ),
        ("select nextval, setval from t", ""),
        (
            "select cast(a as numeric(10,2)), b::varchar(5)",
            "cast numeric varchar",
        ),
        (r#"select "a""b"(1)"#, "a\"b"),
        ("select f$1(2), _g(3)", "f$1 _g"),
        ("select extract(epoch from now())", "extract now"),
        ("select * from f(1) as t(a int)", "f t"),
        ("select * from rows from (f(1), g(2))", "from f g"),
        // Constants.
        ("select ''", ""),
        ("select 'it''s', ';', '--', '/*'", ""),
        (r"select E'a\n', e'\\', e'it\'s; insert'", ""),
        (r"select 'a\b', 'c\\'", ""),
        ("select N'a', b'01', X'1f', n'a'", ""),
        (r"select U&'d\0061t', u&'a' uescape '!'", ""),
        ("select 'a'\n  'b''; delete from t'", ""),
        ("select E'a' -- b\n '; insert'", ""),
        ("select a'b' from t", ""),
        ("select $$$$, $a$$$ $b$ $a$, $_1$'$_1$", ""),
        ("select $1, $2::int", ""),
        (
            "select 1, 1.5, .5, 5., 1e5, 1.5e-3, 1E+2, 1_000, 0x1f, 0b1, 0o7",
            "",
        ),
        ("select 1.5f(2)", "f"),
        ("select date '2020-01-02', interval '1' day", ""),
        // Operators and other signs.
        ("select a - b / c * d, a-b/c, a -1, - -1", ""),
        ("select 1 +-- insert\n 2", ""),
        ("select 1 @/* ; insert */ 2", ""),
        ("select 1 */* ( */ 2", ""),
        ("select 1 <>-- )\n-2", ""),
        (
            "select a->'b'->>'c', a #> '{b}', a #>> b, a @> b, a ? 'b', a ?| c, a ?& d",
            "",
        ),
        ("select a::int::text, :b, a[1:2], array[1, 2]", ""),
        (
            "select a ~ '^b' and c !~* 'd' and e like 'f%' escape '!'",
            "",
        ),
        ("select a operator(pg.+) b", "operator"),
        ("select u & v, u&v, e, n, x", ""),
        (
            "select a || 'x' || b from t \n where c = $1 and d <= $2 or e is not null",
            "",
        ),
        ("select '\u{e9}'", "\u{e9}"),
        ("select a as \u{fc}ber from t", "\u{fc}"),
        ("select \u{fc}(1), \"\u{e4}\"(2)", "\u{fc}"),
    ];

    /// Texts that are no reads in any database.
    const OTHERS: &[&str] = &[
        "",
        ";",
        "()",
        "(",
        "-- select 1",
        "; select 1",
        "select 1; select 2",
        "select 1;; /* a */ begin",
        "select 1 ; (select 2)",
        "select 1;'a'",
        // Other commands.
        "insert into t select 1",
        "update t set a = 1",
        "delete from t",
        "merge into t using u on true when matched then do nothing",
        "truncate t",
        "begin",
        "commit",
        "set a = 1",
        "show a",
        "explain select 1",
        "prepare a as select 1",
        "execute a",
        "declare a cursor for select 1",
        "fetch a",
        "copy (select 1) to stdout",
        "copy t from stdin",
        "call f()",
        "do $$$$",
        "create table t as select 1",
        "create view v as select 1",
        "lock t",
        "listen a",
        "selects 1",
        "selecting",
        r#""select" 1"#,
        "'select' 1",
        "tables",
        "1",
        // Words that write or lock.
        "select * into u from t",
        "select 1 INTO temp t",
        "select 1into t",
        "select 1.5into t",
        "select 1e5into t",
        "select $1into t",
        "select'a'into t",
        r#"select"a"into t"#,
        "select(1)into t",
        "with a as (insert into t values (1) returning 1) select * from a",
        "with a as (UPDATE t set b = 1 returning 1) select * from a",
        "with a as (delete from t returning 1) select * from a",
        "with a as materialized (merge into t using u on a when matched then delete) select 1",
        "with a as (select 1) insert into t select * from a",
        "with a as (select 1) update t set a = 1",
        "with a as (select 1) delete from t",
        "select * from t for update",
        "select * from t for no key update",
        "select * from t for share",
        "select * from t for key share of t nowait",
        "select * from t for/**/share",
        "select * from t for -- a\n key share",
        "select * from t FOR SHARE skip locked",
        "(select * from t for share)",
        "select update from t",
        "select t.update from t",
        "select 'a' /* ' */ into t",
        "select $$a$$into t",
        "select 'a'\n'b' into t",
        "select '' into t",
        "select '''' into t",
        r"select e'\\' into t",
        "select $a$ $$ $a$ into t",
        "select $1$ into t --$1$",
        "select a$b$ into t --$b$",
        "select -- a\r into t",
        "select /* /* */ */ 1 into t",
        "select /*/*/ */ */ 1 into t",
        "select 1 /**/into t",
        "select 1 */**/ 2 into t",
        // Names of one host.
        "select pg_is_in_recovery()",
        "select PG_sleep(1)",
        r#"select "pg_sleep"(1)"#,
        "select pg_catalog.now()",
        "select * from pg_class",
        r#"select * from "pg_stat_activity""#,
        "select a.pg_b from a",
        "select txid_current()",
        "select inet_server_addr()",
        "select * from information_schema.tables",
        "select current_setting('a')",
        "select last_value from s",
        r#"select "log_cnt" from s"#,
        "select is_called from s",
        "select 1e5pg_a",
        // Tokens that are not certain.
        r#"select U&"\006eextval"('s')"#,
        r#"select u&"a""#,
        "select 'a",
        "select \"a",
        r#"select "a"""#,
        r"select e'a\'",
        r"select 'a\', 'b'",
        r"select 'a\'' into t --'",
        "select 'a'\n'\\' || f(1) --'",
        "select 1\0",
        "select 1 \0; delete",
    ];

    fn hashes(names: &str) -> Option<Vec<CalledName>> {
        let names = names.split_whitespace();
        let mut names: Vec<_> = names.map(|name| CalledName::of(name.as_bytes())).collect();
        names.sort_unstable();
        Some(names)
    }

    /// Each text here also is an example for the properties.
    fn read(text: &str) -> Option<Vec<CalledName>> {
        crate::fuzz::reads(text.as_bytes());
        called_names(text.as_bytes())
    }

    #[test]
    fn reads_and_what_they_call() {
        for (text, called) in READS {
            assert_eq!(read(text), hashes(called), "{text}");
        }
    }

    #[test]
    fn texts_that_are_no_reads() {
        for text in OTHERS {
            assert_eq!(read(text), None, "{text}");
        }
        let long = |length| format!("select {}", "1".repeat(length));
        assert!(read(&long(limits::READ - 7)).is_some());
        assert_eq!(read(&long(limits::READ - 6)), None);
    }

    #[test]
    fn a_call_of_a_volatile_function_is_no_read() {
        let volatile = ["nextval", "l\u{f6}schen", "random"];
        let mut names = VolatileNames::default();
        volatile
            .iter()
            .for_each(|name| names.add(name.as_bytes(), false));
        let volatile = names;
        for (text, expected) in [
            ("select nextval from t", true),
            ("select now(), random()", true),
            ("select 1 union select NextVal ('s')", false),
            (r#"select "nextval"('s')"#, false),
            ("select ('s'::regclass).nextval", false),
            ("select gr\u{fc}n from t", false),
            (r#"select "a""b"()"#, false),
            ("insert into t values (1)", false),
        ] {
            assert_eq!(is_read(text.as_bytes(), &volatile), expected, "{text}");
        }
    }

    #[rustfmt::skip]
    const TOKENS: &[&str] = &[
        "select", "with", "values", "table", "from", "for", "share", "key", "no", "into", "f", "e",
        "nextval", r#""a""#, r#""g""h""#, "a.b", ".", ",", "(", ")", ";", "'a'", "'it''s'", r"e'\n'",
        "$1", "$$into$$", "$a$ ' $a$", "1", "1.5", "->", "?", "::", "-", "*", "pg_a", "u&'a'", "b'1'",
    ];

    proptest! {
        /// Blanks, comments and the case of words change no answer.
        #[test]
        fn blanks_change_nothing(
            tokens in prop::collection::vec(prop::sample::select(TOKENS), 0..12),
        ) {
            let text = format!("select {}", tokens.join(" "));
            let expected = read(&text);
            for blank in ["\n", "/* ' */", " -- \"\n", "\t/* /* $$ */ */ "] {
                prop_assert_eq!(&read(&text.replace(' ', blank)), &expected);
            }
            prop_assert_eq!(read(&text.to_uppercase()), expected);
        }

        #[test]
        fn any_characters(text in "[ -~\n\u{e9}]{0,60}") {
            crate::fuzz::reads(text.as_bytes());
            crate::fuzz::reads(["select ", &text].concat().as_bytes());
        }
    }
}
