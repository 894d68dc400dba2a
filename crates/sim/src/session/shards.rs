//! The reference of a client of a sharded database: which of its statements are refused, because they
//! belong to another shard than their transaction, or to none.

use std::collections::BTreeMap;

use howdah_wire::frame::cstr;
use howdah_wire::tag::frontend;

use super::extended::Bind;
use super::{Block, Fault, Session};
use crate::sharding::{Key, Place, Sharding};
use crate::sql::Sql;

/// The SQLSTATEs of refusals.
const REFUSALS: [&str; 6] = ["0A000", "22023", "25001", "25P02", "42601", "57P03"];

/// How the error of a refused statement begins.
pub const REFUSED: &str = "refused";

/// What a client of a sharded database has said, and where its transaction is.
#[derive(Clone, Debug)]
pub struct Sense {
    sharding: Sharding,
    /// `howdah.shard` of the session.
    session: Option<u8>,
    /// `howdah.shard` of the transaction.
    local: Option<u8>,
    at: Site,
    /// The transaction may have changed what names mean.
    is_vague: bool,
    /// The message under way may be refused: what it needs to know is not known.
    is_unsure: bool,
    /// Shards may be lost or closed to statements.
    forgives: bool,
    /// The SQLSTATE of the next reply, if that is a refusal.
    hears: Option<&'static str>,
}

/// Where a transaction is, or a statement belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Site {
    Nowhere,
    Somewhere,
    /// At a shard.
    Shard(u8),
    /// At the shard of a key, which moves.
    Key(u8),
}

impl Site {
    /// Whether two are one; `None` if that is not known.
    fn is(self, other: Site) -> Option<bool> {
        match (self, other) {
            (Site::Shard(one), Site::Shard(other)) => Some(one == other),
            (Site::Key(one), Site::Key(other)) if one == other => Some(true),
            _ => None,
        }
    }
}

impl Sense {
    /// A client that says nothing.
    pub fn new(sharding: Sharding, forgives: bool) -> Sense {
        Sense {
            sharding,
            session: None,
            local: None,
            at: Site::Nowhere,
            is_vague: false,
            is_unsure: false,
            forgives,
            hears: None,
        }
    }

    /// Places statements. `key`: the second parameter.
    fn places_all<'a>(
        &mut self,
        all: impl IntoIterator<Item = &'a Sql>,
        key: Option<u8>,
        mut in_block: bool,
    ) -> Result<(), Fault> {
        self.is_unsure = false;
        for sql in all {
            self.places(sql, key, in_block)?;
            in_block |= matches!(sql, Sql::Begin(_));
        }
        match self.hears {
            Some("0A000") if self.is_unsure || self.forgives => Err(refused("0A000")),
            Some("57P03") if self.forgives => Err(refused("57P03")),
            _ => Ok(()),
        }
    }

    /// Places a statement. `key`: its second parameter.
    fn places(&mut self, sql: &Sql, key: Option<u8>, in_block: bool) -> Result<(), Fault> {
        let Some(place) = sql.place() else {
            self.is_vague |= in_block && !is_guess(sql);
            if in_block && self.at == Site::Nowhere && !is_guess(sql) {
                self.at = Site::Somewhere;
            }
            return Ok(());
        };
        let site = self.site(place, key)?;
        let Some(site) = site else { return Ok(()) };
        if self.at != Site::Nowhere {
            match self.at.is(site) {
                Some(true) => {}
                Some(false) => return Err(refused("0A000")),
                None => self.is_unsure = true,
            }
        }
        self.at = site;
        Ok(())
    }

    /// Where a statement belongs; `None` if it may run anywhere.
    fn site(&mut self, place: &Place, parameter: Option<u8>) -> Result<Option<Site>, Fault> {
        let key = match place.key {
            Key::Nothing => None,
            Key::Constant(key) => Some(key),
            Key::Parameter => parameter,
        };
        let hint = self.local.or(place.said).or(self.session);
        let hint = hint.map(Site::Shard);
        let Some(key) = key else {
            if place.is_open && hint.is_none() {
                return Err(refused("0A000"));
            }
            // What the transaction has done is perhaps not read, and may change what names mean.
            self.is_unsure |= hint.is_none() && self.at == Site::Somewhere;
            return Ok(hint);
        };
        let home = match self.sharding.home(key) {
            Some(shard) => Site::Shard(shard),
            None => Site::Key(key),
        };
        match hint.map(|hint| hint.is(home)) {
            // Without a catalogue the hint decides, and where names may mean something else.
            Some(Some(false)) if self.forgives || self.is_vague => {
                self.is_unsure = true;
                return Ok(Some(Site::Somewhere));
            }
            Some(Some(false)) => return Err(refused("0A000")),
            Some(None) => self.is_unsure = true,
            Some(Some(true)) | None => {}
        }
        Ok(Some(home))
    }

    /// SET of `howdah.shard`.
    fn sets(&mut self, value: &str, local: bool, in_block: bool) -> Result<(), Fault> {
        if in_block && !local {
            return Err(refused("25001"));
        }
        let shard = value
            .strip_prefix('d')
            .and_then(|shard| shard.parse().ok())
            .filter(|shard| *shard < self.sharding.shards);
        let shard = shard.ok_or_else(|| refused("22023"))?;
        if !local {
            self.session = Some(shard);
        } else if in_block {
            let site = Site::Shard(shard);
            match self.at.is(site) {
                Some(false) => return Err(refused("0A000")),
                None if self.at != Site::Nowhere && self.hears == Some("0A000") => {
                    return Err(refused("0A000"));
                }
                _ => {}
            }
            // PostgreSQL gets the SET if the transaction has a server. If it has none, the next
            // statement goes there.
            self.local = Some(shard);
            if self.at != Site::Nowhere {
                self.at = site;
            }
        }
        Ok(())
    }
}

fn refused(sqlstate: &'static str) -> Fault {
    (sqlstate, REFUSED.into())
}

/// True for commands that a transaction may repeat on another shard.
fn is_guess(sql: &Sql) -> bool {
    let harmless = ["work_mem", "statement_timeout", "howdah.shard"];
    match sql {
        Sql::Set(name, _, local) => *local && harmless.contains(&&**name),
        _ => matches!(
            sql,
            Sql::Begin(_)
                | Sql::Commit
                | Sql::Rollback
                | Sql::Show(_)
                | Sql::Savepoint(_)
                | Sql::RollbackTo(_)
                | Sql::Empty
        ),
    }
}

impl Session {
    /// Places the statements of a message. `key`: the second parameter.
    ///
    /// # Errors
    /// They are refused.
    pub(super) fn placed<'a>(
        &mut self,
        all: impl IntoIterator<Item = &'a Sql>,
        key: Option<u8>,
    ) -> Result<(), Fault> {
        let (failed, in_block) = (self.block == Block::Failed, self.block != Block::None);
        match &mut self.sense {
            Some(sense) if !failed => sense.places_all(all, key, in_block),
            _ => Ok(()),
        }
    }

    /// The next reply has this SQLSTATE.
    pub fn hears_refusal(&mut self, sqlstate: Option<&[u8]>) {
        if let Some(sense) = &mut self.sense {
            let known = REFUSALS.iter().find(|of| Some(of.as_bytes()) == sqlstate);
            sense.hears = known.copied();
        }
    }

    /// The next reply is a refusal of the group that begins with these messages: Howdah looks at all of
    /// a group before it gets a server. True if the group is refused indeed.
    pub fn refuses_group<'a>(&mut self, messages: impl Iterator<Item = (u8, &'a [u8])>) -> bool {
        let heard = self.sense.as_ref().and_then(|sense| sense.hears);
        let Some(heard) = heard else { return false };
        let mut unnamed = false;
        let messages = messages.inspect(|(tag, body)| {
            unnamed |= *tag == frontend::PARSE && body.first() == Some(&0);
        });
        if !self.is_group_refused(messages, heard) {
            return false;
        }
        if unnamed {
            self.statements.remove(&b""[..]);
        }
        self.fail(&refused(heard));
        true
    }

    fn is_group_refused<'a>(
        &self,
        messages: impl Iterator<Item = (u8, &'a [u8])>,
        heard: &str,
    ) -> bool {
        let in_block = self.block != Block::None;
        let Some(mut sense) = self.sense.clone() else {
            return false;
        };
        if heard == "0A000" && in_block && sense.forgives {
            // The BEGIN that Howdah sends first may be refused.
            return true;
        }
        let mut parsed: BTreeMap<Vec<u8>, Sql> = BTreeMap::new();
        for (tag, body) in messages {
            let refused = match tag {
                frontend::PARSE => {
                    let Some((name, rest)) = cstr(body) else {
                        break;
                    };
                    let text = cstr(rest).map_or(&[][..], |(text, _)| text);
                    let sql = Sql::read(&String::from_utf8_lossy(text));
                    let dead = self.block == Block::Failed && !sql.is_exit();
                    parsed.insert(name.to_vec(), sql);
                    dead.then_some("25P02")
                }
                frontend::BIND => {
                    let Some(bind) = Bind::read(body) else { break };
                    let known = || self.statements.get(bind.name).map(|of| &of.sql);
                    let Some(sql) = parsed.get(bind.name).or_else(known) else {
                        break;
                    };
                    let result = match sql {
                        Sql::Set(name, value, local) if name == "howdah.shard" => {
                            sense.sets(value, *local, in_block)
                        }
                        Sql::Reset(Some(name)) if name == "howdah.shard" && in_block => {
                            Err(self::refused("25001"))
                        }
                        sql => sense.places_all([sql], bind.key, in_block),
                    };
                    result.err().map(|fault| fault.0)
                }
                frontend::DESCRIBE | frontend::EXECUTE | frontend::CLOSE => None,
                _ => break,
            };
            if let Some(refused) = refused {
                return refused == heard || refused == "25P02";
            }
        }
        false
    }

    /// SET of `howdah.shard`. `None` if the setting is another, or nobody reads it.
    pub(super) fn set_shard(
        &mut self,
        name: &str,
        value: &str,
        local: bool,
    ) -> Option<Result<(), Fault>> {
        let in_block = self.block != Block::None;
        let sense = self.sense.as_mut().filter(|_| name == "howdah.shard")?;
        Some(sense.sets(value, local, in_block))
    }

    /// RESET of `howdah.shard`, or of all. `None` if the setting is another, or nobody reads it.
    pub(super) fn reset_shard(&mut self, name: Option<&str>) -> Option<Result<(), Fault>> {
        let in_block = self.block != Block::None;
        let own = name.is_none_or(|name| name == "howdah.shard");
        let sense = self.sense.as_mut().filter(|_| own)?;
        if in_block {
            return name.map(|_| Err(refused("25001")));
        }
        sense.session = None;
        name.map(|_| Ok(()))
    }

    /// The transaction is over.
    pub(super) fn leaves_shard(&mut self) {
        if let Some(sense) = &mut self.sense {
            (sense.local, sense.at, sense.is_vague) = (None, Site::Nowhere, false);
        }
    }

    /// The transaction has failed: where it was on a guess, it stays.
    pub(super) fn fails_at_shard(&mut self) {
        if let Some(sense) = &mut self.sense {
            sense.at = Site::Somewhere;
        }
    }

    /// True if the client's database is sharded.
    pub fn is_sharded(&self) -> bool {
        self.sense.is_some()
    }
}
