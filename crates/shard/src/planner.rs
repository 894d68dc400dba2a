//! Plans of the texts that were seen, by shape.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::catalogue::{Catalogue, Path};
use crate::facts::Surroundings;
use crate::map::Map;
use crate::plan::{Command, Plan};
use crate::recent::RecentTexts;
use crate::refusal::Refusal;
use crate::scan::{Constants, Shape, scan};

/// How a client's names and constants are read.
#[derive(Clone, Copy, Debug)]
pub struct Names<'a> {
    /// The current role.
    pub role: &'a str,
    /// The role that has logged in, whose defaults count whatever the current role is.
    pub login: &'a str,
    /// The value of `search_path`; `None` for the login's default.
    pub search_path: Option<&'a str>,
    /// The client has temporary tables, and keeps its server.
    pub has_temporary: bool,
    /// A backslash escapes in every string (`standard_conforming_strings = off`).
    pub escapes: bool,
    /// The client's encoding is UTF8. Else only ASCII is read.
    pub utf8: bool,
}

/// The number of [`Names`], as a planner gives it: as long as numbers are equal, a text has the same
/// plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NamesNumber {
    /// How often the planner has forgotten all: for another map or catalogue, say.
    forgotten: u64,
    reading: u32,
    escapes: bool,
    utf8: bool,
}

/// The plan of a text, and the text's constants.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The plan.
    pub plan: Arc<Plan>,
    /// The constants, which are ranges of the text.
    pub constants: Constants,
}

/// Whose names a plan is made with.
#[derive(Debug)]
struct Reading {
    role: String,
    login: String,
    search_path: Option<String>,
    has_temporary: bool,
    path: Path,
}

type Known = Result<Arc<Plan>, Refusal>;

/// The plans by shape, and for each the number of the reading.
type Plans = HashMap<String, Vec<(u32, Known)>, RandomState>;

/// Makes plans, and keeps those of the last texts.
#[derive(Debug)]
pub struct Planner {
    map: Arc<Map>,
    catalogue: Arc<Catalogue>,
    functions: HashSet<String>,
    readings: Vec<Reading>,
    /// How often all plans were forgotten.
    forgotten: u64,
    /// Plans used since the last turn, and those before.
    young: Plans,
    old: Plans,
    young_bytes: usize,
    most_bytes: usize,
    /// Texts with parameters, which come again.
    recent: RecentTexts,
}

/// The most readings that are remembered.
const MOST_READINGS: usize = 1000;

/// The longest `search_path`, in bytes.
const MOST_PATH: usize = 4096;

impl Planner {
    /// A planner for a map, whose plans take at most so many bytes, about. `functions` are those
    /// that touch one shard only, as the user says: `name` or `schema.name`.
    pub fn new(
        map: Arc<Map>,
        catalogue: Arc<Catalogue>,
        functions: HashSet<String>,
        most_bytes: usize,
    ) -> Planner {
        Planner {
            map,
            catalogue,
            functions,
            readings: Vec::new(),
            forgotten: 0,
            young: Plans::default(),
            old: Plans::default(),
            young_bytes: 0,
            most_bytes,
            recent: RecentTexts::new(most_bytes / 4),
        }
    }

    /// Another catalogue: all plans are made anew.
    pub fn set_catalogue(&mut self, catalogue: Arc<Catalogue>) {
        self.catalogue = catalogue;
        self.forget();
    }

    /// Another map, or other functions: all plans are made anew.
    pub fn set_map(&mut self, map: Arc<Map>, functions: HashSet<String>) {
        (self.map, self.functions) = (map, functions);
        self.forget();
    }

    /// The catalogue in use.
    pub fn catalogue(&self) -> &Arc<Catalogue> {
        &self.catalogue
    }

    fn forget(&mut self) {
        self.forgotten += 1;
        self.readings.clear();
        self.young.clear();
        self.old.clear();
        self.young_bytes = 0;
        self.recent.forget();
    }

    /// How many shapes have a plan.
    pub fn count(&self) -> usize {
        self.young.len() + self.old.len()
    }

    /// The plan of a text.
    pub fn plan(&mut self, text: &[u8], names: &Names<'_>) -> Result<Planned, Refusal> {
        self.planned(text, names, false)
    }

    /// The plan of a text that will come again, because its values are parameters.
    pub fn plan_bound(&mut self, text: &[u8], names: &Names<'_>) -> Result<Planned, Refusal> {
        self.planned(text, names, true)
    }

    fn planned(&mut self, text: &[u8], names: &Names<'_>, again: bool) -> Result<Planned, Refusal> {
        if !names.utf8 && !text.is_ascii() {
            return Err(
                Refusal::unproved("the statement has characters that are not read")
                    .detail("The client's encoding is not UTF8, and a character is not in ASCII.")
                    .hint("Set client_encoding to UTF8."),
            );
        }
        if names.search_path.is_some_and(|path| path.len() > MOST_PATH) {
            let message = format!("search_path is longer than {MOST_PATH} bytes");
            return Err(Refusal::too_complex(message).hint("Set a shorter search_path."));
        }
        let reading = self.reading(names);
        let read_as = (reading, names.escapes);
        if again && let Some(planned) = self.recent.find(text, read_as) {
            return Ok(planned);
        }
        let (shape, constants) = scan(text, names.escapes)?;
        let plan = self.plan_of(&shape, reading)?;
        let planned = Planned { plan, constants };
        if again {
            self.recent.keep(text, read_as, &planned);
        }
        Ok(planned)
    }

    /// The number of a client's names; `None` if no text can be read with them.
    pub fn number(&mut self, names: &Names<'_>) -> Option<NamesNumber> {
        if names.search_path.is_some_and(|path| path.len() > MOST_PATH) {
            return None;
        }
        let reading = self.reading(names);
        Some(NamesNumber {
            forgotten: self.forgotten,
            reading,
            escapes: names.escapes,
            utf8: names.utf8,
        })
    }

    /// The number of a reading.
    fn reading(&mut self, names: &Names<'_>) -> u32 {
        let same = |reading: &Reading| {
            reading.role == names.role
                && reading.login == names.login
                && reading.search_path.as_deref() == names.search_path
                && reading.has_temporary == names.has_temporary
        };
        if let Some(at) = self.readings.iter().position(same) {
            return at as u32;
        }
        if self.readings.len() >= MOST_READINGS {
            self.forget();
        }
        self.readings.push(Reading {
            role: names.role.into(),
            login: names.login.into(),
            search_path: names.search_path.map(str::to_owned),
            has_temporary: names.has_temporary,
            path: self.catalogue.path(names),
        });
        self.readings.len() as u32 - 1
    }

    fn plan_of(&mut self, shape: &Shape, reading: u32) -> Known {
        if let Some(known) = find(&self.young, shape, reading) {
            return known.clone();
        }
        let known = match find(&self.old, shape, reading) {
            Some(known) => known.clone(),
            None => self.make(shape, reading),
        };
        self.keep(shape, reading, known.clone());
        known
    }

    fn make(&self, shape: &Shape, reading: u32) -> Known {
        let reading = &self.readings[reading as usize];
        let commands = read(Surroundings {
            map: &self.map,
            catalogue: &self.catalogue,
            path: &reading.path,
            shape,
            functions: &self.functions,
            has_temporary: reading.has_temporary,
        })?;
        Ok(Arc::new(Plan {
            guess: commands.iter().all(|command| command.facts.guess),
            writes: commands.iter().any(|command| command.facts.writes),
            has_unknown_name: commands
                .iter()
                .any(|command| command.facts.has_unknown_name),
            commands,
        }))
    }

    fn keep(&mut self, shape: &Shape, reading: u32, known: Known) {
        let of_plan = known.as_ref().map_or(0, |plan| plan.bytes());
        self.young_bytes += 200 + shape.text().len() + of_plan;
        if self.young_bytes > self.most_bytes / 2 {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        let of_shape = self.young.entry(shape.text().to_owned()).or_default();
        of_shape.push((reading, known));
    }
}

fn find<'a>(plans: &'a Plans, shape: &Shape, reading: u32) -> Option<&'a Known> {
    let mut known = plans.get(shape.text())?.iter();
    known.find(|(of, _)| *of == reading).map(|(_, known)| known)
}

#[cfg(feature = "grammar")]
fn read(around: Surroundings<'_>) -> Result<Vec<Command>, Refusal> {
    crate::command::read(around)
}

#[cfg(not(feature = "grammar"))]
fn read(_around: Surroundings<'_>) -> Result<Vec<Command>, Refusal> {
    Err(Refusal::unproved(
        "statements are not read: this Howdah is built without PostgreSQL's grammar",
    )
    .hint(crate::refusal::SAY_SHARD))
}
