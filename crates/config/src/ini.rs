//! The grammar of `pgbouncer.ini`: sections, `key = value` lines, comments and `%include`.
//!
//! Differences from common INI files:
//! - A comment begins a line.
//! - A value is the rest of its line, trimmed.
//! - Keys may be quoted, `'so'` or `"so"`.
//! - More items may follow on the line of a section header.

use std::sync::Arc;

use super::quotes::quoted;
use super::sharding::MapPart;
use super::written::{NO_TEXT, NOT_UTF8, Path, WrittenLine};
use super::{Excerpt, MAX_INCLUDE, Mistake, Place, Scope, connstr, doubts};

/// Reads a configuration, which must have a main section.
pub(super) fn read(
    path: &str,
    text: &str,
    read_file: &mut dyn FnMut(&str) -> Result<String, String>,
    mistakes: &mut Vec<Mistake>,
) -> Vec<WrittenLine> {
    let lines = lines(path, text, read_file, mistakes);
    if lines
        .iter()
        .any(|line| *line.path == [Scope::Global.section()])
    {
        return lines;
    }
    if let Some(format) = doubts::other_format(text) {
        // One mistake says more than one for each line.
        let text = format!("config file {path} is in {format} format");
        *mistakes = vec![Mistake::new(None, text, doubts::OTHER_FORMAT)];
        return Vec::new();
    }
    // Important for an empty or truncated file: a reload would remove all databases.
    let text = format!("main section missing from config file {path}");
    let remedy = "write [pgbouncer], if only with its defaults";
    mistakes.push(Mistake::new(None, text, remedy));
    lines
}

/// Reads a file and the files that it includes, whose lines stand at the place of the `%include`.
/// After a mistake, reading continues at the next line.
fn lines(
    path: &str,
    text: &str,
    read_file: &mut dyn FnMut(&str) -> Result<String, String>,
    mistakes: &mut Vec<Mistake>,
) -> Vec<WrittenLine> {
    let mut reader = Reader {
        read_file,
        mistakes,
        section: Path::default(),
        lines: Vec::new(),
    };
    reader.file(path, text, 0);
    reader.lines
}

struct Reader<'a> {
    read_file: &'a mut dyn FnMut(&str) -> Result<String, String>,
    mistakes: &'a mut Vec<Mistake>,
    /// The section that the next line belongs to.
    section: Path,
    lines: Vec<WrittenLine>,
}

impl Reader<'_> {
    fn file(&mut self, path: &str, text: &str, depth: usize) {
        let mut cursor = Cursor {
            file: path.into(),
            rest: text,
            line: 1,
        };
        loop {
            cursor.skip_space();
            let (place, start) = (cursor.place(), cursor.rest);
            let Some(first) = cursor.peek() else { return };
            let done = match first {
                '#' | ';' => {
                    cursor.take_line();
                    Ok(())
                }
                '[' => self.section(&mut cursor, place.clone()),
                '%' if cursor.at_include() => {
                    let name = cursor.take_line()["%include".len()..].trim().to_owned();
                    self.include(&name, depth)
                }
                _ => self.assignment(&mut cursor, place.clone()),
            };
            if let Err((text, remedy)) = done {
                // A header or a path is shown. Another line may be the rest of a secret.
                let read = &start[..start.len() - cursor.rest.len()];
                let read = read.lines().next().filter(|_| "[%".contains(first));
                let read = read.filter(|read| !read.is_empty());
                let mistake = Mistake::new(Some(&place), text, remedy);
                let mistake = mistake.showing(read.map(Excerpt::of_start));
                self.mistakes.push(mistake);
                // The mistake may be in the middle of a line.
                if cursor.line == place.line {
                    cursor.take_line();
                }
            }
        }
    }

    fn section(&mut self, cursor: &mut Cursor<'_>, place: Place) -> Result<(), Wrong> {
        cursor.advance(1);
        let end = cursor
            .rest
            .find([']', '\n'])
            .filter(|&i| cursor.rest[i..].starts_with(']'));
        let Some(end) = end else {
            // The next lines are meant for this section.
            self.begin(cursor.take_line().trim(), place);
            return Err(syntax("close the section name with ]"));
        };
        self.begin(cursor.advance(end), place);
        cursor.advance(1);
        Ok(())
    }

    fn begin(&mut self, section: &str, place: Place) {
        let map = MapPart::of_section(section);
        self.section = map.unwrap_or_else(|| [section.to_owned()].into());
        self.lines
            .push(WrittenLine::head(self.section.clone(), place));
    }

    fn assignment(&mut self, cursor: &mut Cursor<'_>, place: Place) -> Result<(), Wrong> {
        let key = cursor.key()?;
        cursor.skip_blanks();
        if cursor.peek() != Some('=') {
            return Err(syntax(
                "missing =: write `key = value`; a key with other characters than letters, \
                               digits and _ . - * : goes in quotes",
            ));
        }
        cursor.advance(1);
        let value = cursor.take_line().trim().to_owned();
        let section = match &*self.section {
            [section] => section,
            _ => "",
        };
        match Scope::of_entries(section) {
            Some(scope) => self.entry(scope, key, &value, place),
            None => self.lines.push(WrittenLine {
                key: Some(key),
                text: value,
                ..WrittenLine::head(self.section.clone(), place)
            }),
        }
        Ok(())
    }

    /// An entry: a line for itself, and one for each of its pairs.
    fn entry(&mut self, scope: Scope, name: String, text: &str, place: Place) {
        let path = self.section.iter().chain([&name]).cloned().collect();
        let mut head = WrittenLine::head(path, place);
        let pairs = connstr::parse(text);
        let is_text = !name.contains(NO_TEXT) && !text.contains(NO_TEXT);
        let url = doubts::instead_of_url(text).filter(|_| scope == Scope::Database);
        let wrong = if is_text {
            url.as_ref().or(pairs.as_ref().err()).cloned()
        } else {
            Some(NOT_UTF8.into())
        };
        // A connection string may have a password under any key, so none is shown.
        head.unreadable = wrong.map(|why| match &pairs {
            Ok(_) => (why, Excerpt::of_key(&name)),
            Err(_) => (why, Excerpt::of_hidden(&name)),
        });
        // PgBouncer reads this entry when a client needs it, and then refuses the client.
        let is_fallback = scope == Scope::Database && name == "*";
        head.is_left_out = is_fallback && is_text && head.unreadable.is_some();
        let pairs = pairs.unwrap_or_default().into_iter();
        let pairs: Arc<[_]> = pairs.take_while(|_| head.unreadable.is_none()).collect();
        let lines = pairs.iter().enumerate().map(|(at, pair)| WrittenLine {
            key: Some(pair.key.clone()),
            text: pair.value.clone(),
            among: Some((pairs.clone(), at)),
            ..head.clone()
        });
        self.lines.push(head.clone());
        self.lines.extend(lines);
    }

    fn include(&mut self, name: &str, depth: usize) -> Result<(), Wrong> {
        if depth >= MAX_INCLUDE {
            let text = "include nesting level too deep".to_owned();
            return Err((
                text,
                format!("nest at most {MAX_INCLUDE} files; is there a circle?"),
            ));
        }
        let text = (self.read_file)(name).map_err(|why| {
            let remedy = "check the path, which is relative to the working directory, and that \
                          the file may be read";
            (
                format!("could not load file \"{name}\": {why}"),
                remedy.to_owned(),
            )
        })?;
        self.file(name, &text, depth + 1);
        Ok(())
    }
}

/// The text of a mistake, and its remedy.
type Wrong = (String, String);

fn syntax(remedy: &str) -> Wrong {
    ("syntax error in configuration".into(), remedy.into())
}

struct Cursor<'a> {
    file: Arc<str>,
    rest: &'a str,
    line: u32,
}

impl<'a> Cursor<'a> {
    fn place(&self) -> Place {
        Place::line(self.file.clone(), self.line)
    }

    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    /// Moves on by `bytes`, and returns these bytes.
    fn advance(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.line += taken.bytes().filter(|&b| b == b'\n').count() as u32;
        self.rest = rest;
        taken
    }

    fn skip_space(&mut self) {
        self.advance(self.rest.len() - self.rest.trim_start().len());
    }

    fn skip_blanks(&mut self) {
        self.advance(self.rest.len() - self.rest.trim_start_matches([' ', '\t']).len());
    }

    /// The rest of the line, without its end. Afterwards the cursor is at the end of the line.
    fn take_line(&mut self) -> &'a str {
        self.advance(self.rest.find('\n').unwrap_or(self.rest.len()))
    }

    fn at_include(&self) -> bool {
        self.rest
            .strip_prefix("%include")
            .is_some_and(|rest| rest.starts_with([' ', '\t']))
    }

    fn key(&mut self) -> Result<String, Wrong> {
        let key = match self.peek() {
            Some(quote @ ('\'' | '"')) => self.quoted_key(quote)?,
            _ => {
                let plain = |c: char| c.is_ascii_alphanumeric() || "_.-*:".contains(c);
                let end = self.rest.find(|c| !plain(c)).unwrap_or(self.rest.len());
                self.advance(end).to_owned()
            }
        };
        if key.is_empty() {
            Err(syntax("write a key before `=`"))
        } else {
            Ok(key)
        }
    }

    /// A key in quotes, which end on its line. In double quotes, as SQL writes names, `""` stands
    /// for a quote.
    fn quoted_key(&mut self, quote: char) -> Result<String, Wrong> {
        let line = self.rest.lines().next().unwrap_or_default();
        let found = if quote == '"' {
            quoted(line, quote)
        } else {
            let inside = line[1..].split_once(quote);
            inside.map(|(key, after)| (key.to_owned(), after))
        };
        let (key, after) = found.ok_or_else(|| syntax("close the quoted key on its line"))?;
        self.advance(line.len() - after.len());
        Ok(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines as `place [section]` and `place key=value`; mistakes as their text.
    fn read(text: &str) -> (Vec<String>, Vec<String>) {
        read_with(text, &mut |_| Err("No such file".into()))
    }

    fn read_with(
        text: &str,
        files: &mut dyn FnMut(&str) -> Result<String, String>,
    ) -> (Vec<String>, Vec<String>) {
        let mut mistakes = Vec::new();
        let lines = lines("a.ini", text, files, &mut mistakes);
        let shown = lines.iter().map(|line| match &line.key {
            None => format!("{} [{}]", line.place, line.path[0]),
            Some(key) => format!("{} {key}={}", line.place, line.text),
        });
        (
            shown.collect(),
            mistakes.iter().map(Mistake::to_string).collect(),
        )
    }

    #[test]
    fn reads_what_pgbouncer_reads() {
        for (text, items) in [
            ("", &[][..]),
            ("[a]\nb=c", &["a.ini:1 [a]", "a.ini:2 b=c"]),
            (
                "    [a]\n\t  b \t=\t c  \t\n",
                &["a.ini:1 [a]", "a.ini:2 b=c"],
            ),
            ("; x\n# y\n\n\n  ; z\nb=c", &["a.ini:6 b=c"]),
            ("b = c ; not a comment", &["a.ini:1 b=c ; not a comment"]),
            (
                "pidfile =\ntest2 = ",
                &["a.ini:1 pidfile=", "a.ini:2 test2="],
            ),
            (
                "* = x=y\na-b.c_d* = 1",
                &["a.ini:1 *=x=y", "a.ini:2 a-b.c_d*=1"],
            ),
            (
                "'my key' = 1\n\"my \"\"key\"=2",
                &["a.ini:1 my key=1", "a.ini:2 my \"key=2"],
            ),
            ("[a] b = c", &["a.ini:1 [a]", "a.ini:1 b=c"]),
            ("[a] ; x\r\nb=c\r\n", &["a.ini:1 [a]", "a.ini:2 b=c"]),
            ("[] k=", &["a.ini:1 []", "a.ini:1 k="]),
        ] {
            let (seen, mistakes) = read(text);
            assert_eq!(
                (seen, mistakes),
                (items.iter().map(|s| s.to_string()).collect(), vec![])
            );
        }
    }

    #[test]
    fn goes_on_after_each_mistake() {
        let text = "[a\nb c\n= d\n'x = 1\n\"y = 1\n'' = 2\nümlaut = 3\n%include\nok = 1\n";
        let (items, mistakes) = read(text);
        assert_eq!(items, ["a.ini:1 [a]", "a.ini:9 ok=1"]);
        let lines: Vec<_> = mistakes
            .iter()
            .map(|m| m.split(')').next().unwrap())
            .collect();
        let expected: Vec<_> = (1..=8)
            .map(|n| format!("syntax error in configuration (a.ini:{n}"))
            .collect();
        assert_eq!(lines, expected);
    }

    #[test]
    fn includes_in_place() {
        let (items, mistakes) = read_with(
            "[a]\n%include\t b.ini  \nc=1\n%include gone\nd=1",
            &mut |name| match name {
                "b.ini" => Ok("x=1\n%include c.ini".into()),
                "c.ini" => Ok("[z] y=2".into()),
                _ => Err("No such file or directory".into()),
            },
        );
        let expected = [
            "a.ini:1 [a]",
            "b.ini:1 x=1",
            "c.ini:1 [z]",
            "c.ini:1 y=2",
            "a.ini:3 c=1",
            "a.ini:5 d=1",
        ];
        assert_eq!(items, expected);
        assert_eq!(mistakes.len(), 1);
        let said = "could not load file \"gone\": No such file or directory (a.ini:4)";
        assert!(mistakes[0].starts_with(said), "{}", mistakes[0]);
    }

    #[test]
    fn includes_nest_ten_deep() {
        let mut opened = 0;
        let (_, mistakes) = read_with("%include a.ini", &mut |_| {
            opened += 1;
            Ok("%include a.ini".into())
        });
        assert_eq!(opened, MAX_INCLUDE);
        assert_eq!(mistakes.len(), 1);
        assert!(
            mistakes[0].starts_with("include nesting level too deep"),
            "{}",
            mistakes[0]
        );
    }
}
