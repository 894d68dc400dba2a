//! The proof that a statement's rows are on one shard: what follows from which values.
//!
//! A **node** is a column of a table or subquery in a statement. It holds for a shard if, among the
//! rows that can matter to the statement, the column has only values that the distribution sends
//! there, or NULL. A **leaf** is a constant or parameter. A **rule** says that a node holds if all
//! its premises do. Nothing else makes a node hold, so a circle of columns proves nothing.

use crate::map::{DistributionId, Map, Shard, ShardSet};
use crate::refusal::Refusal;
use crate::scan::{ConstantKind, Constants};
use crate::value::{Given, KeyType, KeyValue, Unreadable, is_undeclared};

/// A column of a table or subquery of a statement.
pub(crate) type Node = u32;

/// What makes a node hold, with the other premises of its rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Premise {
    /// A constant or parameter, by its number.
    Leaf(u32),
    Node(Node),
}

/// A value in a statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Term {
    /// A constant of the shape, perhaps behind a minus.
    Constant {
        number: u32,
        negative: bool,
    },
    /// `$n`
    Parameter(u32),
    /// A constant that is an array.
    ConstantArray(u32),
    /// `$n` that is an array.
    ParameterArray(u32),
    Null,
}

/// A value and how it is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Leaf {
    pub(crate) term: Term,
    pub(crate) family: KeyType,
    /// The value becomes a row's key: NULL has no shard.
    pub(crate) stored: bool,
}

/// The values with which a statement runs.
#[derive(Clone, Copy, Debug)]
pub struct Values<'a> {
    /// The text that was planned.
    pub text: &'a [u8],
    /// The constants of the text.
    pub constants: &'a Constants,
    /// The parameters of Bind.
    pub parameters: &'a [Given<'a>],
    /// The client's encoding is the server's, or both are ASCII's superset UTF8: bytes are what the
    /// server hashes.
    pub same_encoding: bool,
}

/// Where the values of a leaf are.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Held {
    /// There is no value but NULL.
    Nothing,
    On(Shard),
    Several,
    Unknown(Refusal),
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Rule {
    node: Node,
    premises: Vec<Premise>,
}

/// The rules of a statement.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Proof {
    nodes: u32,
    leaves: Vec<Leaf>,
    rules: Vec<Rule>,
    /// A column of a recursive query inside itself, and the column of what the recursion adds.
    recursions: Vec<(Node, Node)>,
    /// Parameters whose type may come from elsewhere in the statement.
    pub(crate) doubtful: Vec<u32>,
    /// Surplus blanks are cut when a key is stored.
    pub(crate) cuts_blanks: bool,
    /// The leaves from which a goal may follow.
    needed: Vec<bool>,
    /// The rules that have a node among their premises.
    followers: Vec<Vec<u32>>,
}

/// A column that has to hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Goal {
    pub(crate) by: DistributionId,
    pub(crate) node: Node,
    /// What is refused if the column does not hold.
    pub(crate) what: String,
}

impl Proof {
    pub(crate) fn node(&mut self) -> Node {
        self.nodes += 1;
        self.nodes - 1
    }

    pub(crate) fn leaf(&mut self, leaf: Leaf) -> Premise {
        self.leaves.push(leaf);
        Premise::Leaf(self.leaves.len() as u32 - 1)
    }

    /// The node holds if all the premises do.
    pub(crate) fn rule(&mut self, node: Node, premises: Vec<Premise>) {
        self.rules.push(Rule { node, premises });
    }

    /// How many nodes there are.
    pub(crate) fn nodes(&self) -> u32 {
        self.nodes
    }

    /// How many rules there are.
    pub(crate) fn count(&self) -> usize {
        self.rules.len()
    }

    /// Takes back the rules from a place on that are about older nodes than this.
    pub(crate) fn take_rules(&mut self, from: usize, older: Node) -> Vec<(Node, Vec<Premise>)> {
        let added = self.rules.split_off(from);
        let (taken, kept): (Vec<_>, Vec<_>) = added.into_iter().partition(|rule| rule.node < older);
        self.rules.extend(kept);
        let taken = taken.into_iter().map(|rule| (rule.node, rule.premises));
        taken.collect()
    }

    /// The node is a column of a recursive query inside itself: it may be taken to hold if `added`,
    /// the same column of what the recursion adds, then does.
    pub(crate) fn recursion(&mut self, node: Node, added: Node) {
        self.recursions.push((node, added));
    }

    /// How much memory the rules take, about.
    pub(crate) fn bytes(&self) -> usize {
        let of_rule = |rule: &Rule| 40 + 8 * rule.premises.len();
        self.rules.iter().map(of_rule).sum::<usize>()
            + 20 * self.leaves.len()
            + 30 * self.nodes as usize
    }

    /// Forgets what no goal can follow from, and notes what follows from each node.
    pub(crate) fn prune(&mut self, goals: &[Goal]) {
        let count = self.nodes as usize;
        let mut proofs: Vec<Vec<usize>> = vec![Vec::new(); count];
        for (at, rule) in self.rules.iter().enumerate() {
            proofs[rule.node as usize].push(at);
        }
        let mut added: Vec<Vec<Node>> = vec![Vec::new(); count];
        for (node, by) in &self.recursions {
            added[*node as usize].push(*by);
        }
        let mut matters = vec![false; count];
        let mut open: Vec<Node> = goals.iter().map(|goal| goal.node).collect();
        while let Some(node) = open.pop() {
            let node = node as usize;
            if std::mem::replace(&mut matters[node], true) {
                continue;
            }
            open.append(&mut added[node]);
            let premises = proofs[node]
                .iter()
                .flat_map(|rule| &self.rules[*rule].premises);
            open.extend(premises.filter_map(|premise| match premise {
                Premise::Node(node) => Some(*node),
                Premise::Leaf(_) => None,
            }));
        }
        self.rules.retain(|rule| matters[rule.node as usize]);
        self.recursions.retain(|(node, _)| matters[*node as usize]);
        self.needed = vec![false; self.leaves.len()];
        self.followers = vec![Vec::new(); count];
        for (at, rule) in self.rules.iter().enumerate() {
            for premise in &rule.premises {
                match premise {
                    Premise::Leaf(leaf) => self.needed[*leaf as usize] = true,
                    Premise::Node(node) => self.followers[*node as usize].push(at as u32),
                }
            }
        }
    }

    /// The shard for which all goals hold, among those that `may` be. `None`: any shard will do,
    /// since no row can match.
    pub(crate) fn shard(
        &self,
        map: &Map,
        goals: &[Goal],
        values: &Values<'_>,
        may: impl Fn(Shard) -> Result<(), Refusal>,
    ) -> Result<Option<Shard>, Refusal> {
        if let Some(shard) = self.shard_of_one(map, goals, values) {
            return may(shard).map(|()| Some(shard));
        }
        let mut solved: Vec<(DistributionId, Solved)> = Vec::new();
        for goal in goals {
            if !solved.iter().any(|(by, _)| *by == goal.by) {
                solved.push((goal.by, self.solve(map, goal.by, values)));
            }
        }
        let mut fit = ShardSet::all();
        for (goal, solved) in of_goals(goals, &solved) {
            fit = fit.and(solved.holds[goal.node as usize]);
        }
        if fit == ShardSet::all() {
            return Ok(None);
        }
        let held = solved.iter().flat_map(|(_, solved)| &solved.held);
        let named = held.filter_map(|held| match held {
            Held::On(shard) => Some(*shard),
            _ => None,
        });
        let named: Vec<Shard> = named.collect();
        let Some(shard) = named.iter().find(|shard| fit.has(**shard)) else {
            let mut refusal = self.refusal(map, goals, &solved, named.first().copied());
            // Rows that are on one shard only, whatever else is not proved.
            for (goal, solved) in of_goals(goals, &solved) {
                if let Some(only) = solved.holds[goal.node as usize].only() {
                    refusal.firm |= refusal.proved.is_some_and(|other| other != only);
                    refusal.proved = Some(only);
                }
            }
            return Err(refusal);
        };
        may(*shard).map(|()| Some(*shard))
    }

    /// The shard of a statement with one goal that follows from one leaf, as nearly all do, if the
    /// leaf has values of one shard: then no other rule or leaf says more.
    fn shard_of_one(&self, map: &Map, goals: &[Goal], values: &Values<'_>) -> Option<Shard> {
        let ([goal], [rule]) = (goals, &self.rules[..]) else {
            return None;
        };
        let [Premise::Leaf(leaf)] = rule.premises[..] else {
            return None;
        };
        if rule.node != goal.node || !self.recursions.is_empty() {
            return None;
        }
        match self.held(map, goal.by, self.leaves.get(leaf as usize)?, values) {
            Held::On(shard) => Some(shard),
            _ => None,
        }
    }

    /// What follows from the values in a distribution.
    fn solve(&self, map: &Map, by: DistributionId, values: &Values<'_>) -> Solved {
        let leaves = self.leaves.iter().zip(&self.needed);
        let held = leaves.map(|(leaf, needed)| match needed {
            true => self.held(map, by, leaf, values),
            false => Held::Several,
        });
        let held: Vec<Held> = held.collect();
        let mut denied = vec![ShardSet::default(); self.nodes as usize];
        loop {
            let holds = self.consequences(&held, &denied);
            let mut more = false;
            for (node, added) in &self.recursions {
                let unfounded = holds[*node as usize].without(holds[*added as usize]);
                let denied = &mut denied[*node as usize];
                *denied = denied.or(unfounded);
                more |= !unfounded.is_empty();
            }
            if !more {
                return Solved { held, holds };
            }
        }
    }

    /// The shards for which each node holds.
    fn consequences(&self, held: &[Held], denied: &[ShardSet]) -> Vec<ShardSet> {
        let mut holds = vec![ShardSet::default(); self.nodes as usize];
        // The first rule is the last in the list.
        let mut open: Vec<u32> = (0..self.rules.len() as u32).rev().collect();
        let mut is_open = vec![true; self.rules.len()];
        while let Some(at) = open.pop() {
            is_open[at as usize] = false;
            let Rule { node, premises } = &self.rules[at as usize];
            let node = *node as usize;
            let fits = |premise: &Premise| match premise {
                Premise::Node(other) => holds[*other as usize],
                Premise::Leaf(leaf) => held[*leaf as usize].shards(),
            };
            let found = premises
                .iter()
                .fold(ShardSet::all(), |found, premise| found.and(fits(premise)));
            let more = holds[node].or(found.without(denied[node]));
            if more == holds[node] {
                continue;
            }
            holds[node] = more;
            for follower in &self.followers[node] {
                if !std::mem::replace(&mut is_open[*follower as usize], true) {
                    open.push(*follower);
                }
            }
        }
        holds
    }

    /// Where the values of a leaf are in a distribution.
    fn held(&self, map: &Map, by: DistributionId, leaf: &Leaf, values: &Values<'_>) -> Held {
        let of_other_type = map
            .distribution(by)
            .is_none_or(|found| found.key() != leaf.family);
        if of_other_type {
            return Held::Several;
        }
        let read = match self.read(leaf, values) {
            Ok(read) => read,
            Err(error) => {
                let message = "a key's value can't be read exactly as PostgreSQL would";
                let refusal = Refusal::unproved(message).detail(format!("{error}."));
                return Held::Unknown(
                    refusal
                        .hint("Send the value as the key's type, or cast the value to that type."),
                );
            }
        };
        let mut held = Held::Nothing;
        for value in &read {
            // The values of a list are written in UTF-8.
            if let KeyValue::Text(text) = value
                && std::str::from_utf8(text).is_err()
                && map
                    .distribution(by)
                    .is_none_or(|found| found.slots().is_none())
            {
                let message = "a key's value is not in UTF-8, as the values of the list are";
                return Held::Unknown(Refusal::unproved(message));
            }
            match (map.shard_of(by, value), &held) {
                (Ok(shard), Held::Nothing) => held = Held::On(shard),
                (Ok(shard), Held::On(other)) if shard == *other => {}
                (Ok(_), _) => return Held::Several,
                (Err(error), _) => {
                    let hint = "Give the value to a shard in the map's distribution.";
                    return Held::Unknown(Refusal::no_shard(error.to_string()).hint(hint));
                }
            }
        }
        if read.is_empty() && leaf.stored {
            let message = "a row's key is NULL, which has no shard";
            return Held::Unknown(Refusal::no_shard(message).hint("Give the row a key."));
        }
        held
    }

    /// The values of a leaf, without NULL.
    fn read(&self, leaf: &Leaf, values: &Values<'_>) -> Result<Vec<KeyValue>, Unreadable> {
        let read = match leaf.term {
            Term::Null => Vec::new(),
            Term::Constant { number, negative } => {
                let mut read = Vec::new();
                for constant in values.constants.of_number(number, values.text) {
                    let value = constant.value.ok_or_else(uncertain)?;
                    read.push(match (constant.kind, leaf.family) {
                        (ConstantKind::Integer, KeyType::Integer) if negative => {
                            KeyValue::of_literal(leaf.family, &[b"-", &value[..]].concat())?
                        }
                        (ConstantKind::Integer, KeyType::Integer) | (ConstantKind::Text, _) => {
                            KeyValue::of_literal(leaf.family, &value)?
                        }
                        _ => {
                            let value = String::from_utf8_lossy(&value).into_owned();
                            let family = leaf.family;
                            return Err(Unreadable(format!("{value} is compared with a {family}")));
                        }
                    });
                }
                read
            }
            Term::ConstantArray(number) => {
                let mut read = Vec::new();
                for constant in values.constants.of_number(number, values.text) {
                    let value = constant.value.ok_or_else(uncertain)?;
                    read.extend(KeyValue::of_array_literal(leaf.family, &value)?);
                }
                read
            }
            Term::Parameter(number) => {
                let given = self.parameter(number, values)?;
                KeyValue::of_parameter(leaf.family, given)?
                    .into_iter()
                    .collect()
            }
            Term::ParameterArray(number) => {
                let given = self.parameter(number, values)?;
                KeyValue::of_array(leaf.family, given)?.unwrap_or_default()
            }
        };
        self.check_type(leaf, values, &read)?;
        for value in &read {
            let KeyValue::Text(text) = value else {
                continue;
            };
            if !values.same_encoding && !text.is_ascii() {
                return Err(Unreadable(
                    "the encoding of a text is not the server's".into(),
                ));
            }
            if self.cuts_blanks && text.last() == Some(&b' ') {
                return Err(Unreadable(
                    "a text ends in a blank, which a varchar(n) may cut".into(),
                ));
            }
        }
        Ok(read)
    }

    fn parameter<'a>(&self, number: u32, values: &Values<'a>) -> Result<Given<'a>, Unreadable> {
        let at = (number as usize).checked_sub(1);
        let given = at.and_then(|at| values.parameters.get(at));
        let given =
            *given.ok_or_else(|| Unreadable(format!("parameter ${number} is not given")))?;
        Ok(given)
    }

    /// A parameter with several uses may have another type than the key.
    fn check_type(
        &self,
        leaf: &Leaf,
        values: &Values<'_>,
        read: &[KeyValue],
    ) -> Result<(), Unreadable> {
        let (Term::Parameter(number) | Term::ParameterArray(number)) = leaf.term else {
            return Ok(());
        };
        if !self.doubtful.contains(&number) {
            return Ok(());
        }
        let given = self.parameter(number, values)?;
        // The digits of a small number mean the same in each type, even in a real.
        let is_small = |value: &KeyValue| matches!(value, KeyValue::Int(0..=0x100_0000));
        let is_certain = !given.binary && read.iter().all(is_small);
        if given.bytes.is_none() || !is_undeclared(given.oid) || is_certain {
            return Ok(());
        }
        let what = "has several uses that may give it another type: declare or cast it";
        Err(Unreadable(format!("parameter ${number} {what}")))
    }

    /// Why the goals do not hold for one shard.
    fn refusal(
        &self,
        map: &Map,
        goals: &[Goal],
        solved: &[(DistributionId, Solved)],
        named: Option<Shard>,
    ) -> Refusal {
        let is_unproved = |(goal, solved): &(&Goal, &Solved)| {
            let holds = solved.holds[goal.node as usize];
            named.map_or(holds.is_empty(), |shard| !holds.has(shard))
        };
        let mut of_goals = of_goals(goals, solved);
        let Some((goal, solved)) = of_goals.find(is_unproved) else {
            return Refusal::unproved("no shard has all rows of the statement");
        };
        let unknown = solved.held.iter().find_map(|held| match held {
            Held::Unknown(refusal) => Some(refusal.clone()),
            _ => None,
        });
        if let Some(mut refusal) = unknown {
            let detail = || format!("{} is not proved.", goal.what);
            refusal.detail.get_or_insert_with(detail);
            return refusal;
        }
        let what = &goal.what;
        let distribution = map.distribution(goal.by).map_or("", |found| found.name());
        let detail = match named {
            None => format!("{what} is not compared with values of \"{distribution}\"."),
            Some(shard) => {
                let shard = map.name_of(shard);
                format!("{what} is not proved to be on shard \"{shard}\" only.")
            }
        };
        Refusal::unproved("the statement is not proved to touch one shard only")
            .detail(detail)
            .hint(crate::refusal::SAY_KEY)
    }
}

/// What follows in one distribution.
struct Solved {
    /// Where the values of each leaf are.
    held: Vec<Held>,
    /// The shards for which each node holds.
    holds: Vec<ShardSet>,
}

/// Each goal, and what follows in its distribution.
fn of_goals<'a>(
    goals: &'a [Goal],
    solved: &'a [(DistributionId, Solved)],
) -> impl Iterator<Item = (&'a Goal, &'a Solved)> {
    goals.iter().filter_map(|goal| {
        let of = solved.iter().find(|(by, _)| *by == goal.by);
        of.map(|(_, solved)| (goal, solved))
    })
}

impl Held {
    /// The shards that have all the values.
    fn shards(&self) -> ShardSet {
        match self {
            Held::Nothing => ShardSet::all(),
            Held::On(shard) => ShardSet::default().with(*shard),
            Held::Several | Held::Unknown(_) => ShardSet::default(),
        }
    }
}

fn uncertain() -> Unreadable {
    Unreadable("the value of a constant depends on settings or encodings".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(number: u32) -> Leaf {
        Leaf {
            term: Term::Parameter(number),
            family: KeyType::Integer,
            stored: false,
        }
    }

    /// The shard for parameters with these numbers; shard 0 has 0, shard 1 has 1.
    fn shard(proof: &Proof, goals: &[Node], numbers: &[&str]) -> Result<Option<u8>, &'static str> {
        let mut builder = Map::builder(["a", "b"]).expect("shards");
        builder
            .distribution("d", "list bigint 0=a 1=b")
            .expect("a distribution");
        let map = builder.finish();
        let given = numbers.iter().map(|number| Given {
            oid: 0,
            binary: false,
            bytes: Some(number.as_bytes()),
        });
        let given: Vec<Given<'_>> = given.collect();
        let values = Values {
            text: b"",
            constants: &Constants::default(),
            parameters: &given,
            same_encoding: true,
        };
        let goal = |node: &Node| Goal {
            by: DistributionId(0),
            node: *node,
            what: "table".into(),
        };
        let goals: Vec<Goal> = goals.iter().map(goal).collect();
        let mut proof = proof.clone();
        proof.prune(&goals);
        let found = proof.shard(&map, &goals, &values, |_| Ok(()));
        found
            .map(|shard| shard.map(|shard| shard.0))
            .map_err(|refusal| refusal.code)
    }

    #[test]
    fn what_follows() {
        let mut proof = Proof::default();
        let [a, b, c] = [proof.node(), proof.node(), proof.node()];
        let one = proof.leaf(leaf(1));
        let two = proof.leaf(leaf(2));
        proof.rule(a, vec![one]);
        proof.rule(b, vec![Premise::Node(a), two]);
        proof.rule(c, vec![Premise::Node(c)]);
        assert_eq!(shard(&proof, &[a], &["0", "1"]), Ok(Some(0)));
        assert_eq!(shard(&proof, &[a, b], &["0", "1"]), Err("0A000"));
        assert_eq!(shard(&proof, &[a, b], &["1", "1"]), Ok(Some(1)));
        assert_eq!(shard(&proof, &[c], &["1", "1"]), Err("0A000"));
        assert_eq!(shard(&proof, &[b], &["1", "7"]), Err("22023"));
        assert_eq!(shard(&proof, &[b], &["1", "1.0"]), Err("0A000"));
        assert_eq!(shard(&proof, &[b], &["1"]), Err("0A000"));
    }

    #[test]
    fn a_recursion_holds_if_its_steps_do() {
        let steps = |step_holds: bool| {
            let mut proof = Proof::default();
            let [inside, added] = [proof.node(), proof.node()];
            let start = proof.leaf(leaf(1));
            proof.rule(inside, vec![start]);
            if step_holds {
                proof.rule(added, vec![Premise::Node(inside)]);
            }
            proof.recursion(inside, added);
            shard(&proof, &[inside], &["1"])
        };
        assert_eq!(steps(true), Ok(Some(1)));
        assert_eq!(steps(false), Err("0A000"));
    }
}
