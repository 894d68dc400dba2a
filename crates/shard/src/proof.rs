//! The proof that a statement's rows are on one shard: what follows from which values.
//!
//! A **node** is a column of a table or subquery in a statement. It holds for a shard if, among the
//! rows that can matter to the statement, the column has only values that the distribution sends
//! there, or NULL. A **leaf** is a constant or parameter. A **rule** says that a node holds if all
//! its premises do. Nothing else makes a node hold, so a circle of columns proves nothing.

use crate::map::{DistributionId, Map, Shard};
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

    /// The node is a column of a recursive query inside itself: it may be taken to hold if `added`,
    /// the same column of what the recursion adds, then does.
    pub(crate) fn recursion(&mut self, node: Node, added: Node) {
        self.recursions.push((node, added));
    }

    /// How much memory the rules take, about.
    pub(crate) fn bytes(&self) -> usize {
        let of_rule = |rule: &Rule| 40 + 8 * rule.premises.len();
        self.rules.iter().map(of_rule).sum::<usize>() + 20 * self.leaves.len()
    }

    /// Forgets what no goal can follow from.
    pub(crate) fn prune(&mut self, goals: &[Goal]) {
        let mut nodes = vec![false; self.nodes as usize];
        goals
            .iter()
            .for_each(|goal| nodes[goal.node as usize] = true);
        let mut more = true;
        while more {
            more = false;
            let rules = self
                .rules
                .iter()
                .map(|rule| (rule.node, &rule.premises[..]));
            let recursions = self.recursions.iter();
            let added: Vec<_> = recursions
                .map(|(node, added)| (*node, [Premise::Node(*added)]))
                .collect();
            let added = added.iter().map(|(node, premises)| (*node, &premises[..]));
            for (_, premises) in rules
                .chain(added)
                .filter(|(node, _)| nodes[*node as usize])
                .collect::<Vec<_>>()
            {
                for premise in premises {
                    if let Premise::Node(node) = premise {
                        more |= !std::mem::replace(&mut nodes[*node as usize], true);
                    }
                }
            }
        }
        self.rules.retain(|rule| nodes[rule.node as usize]);
        self.recursions.retain(|(node, _)| nodes[*node as usize]);
        self.needed = vec![false; self.leaves.len()];
        for premise in self.rules.iter().flat_map(|rule| &rule.premises) {
            if let Premise::Leaf(leaf) = premise {
                self.needed[*leaf as usize] = true;
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
        let mut of: Vec<(DistributionId, Vec<Held>)> = Vec::new();
        for goal in goals {
            if !of.iter().any(|(by, _)| *by == goal.by) {
                let leaves = self.leaves.iter().zip(&self.needed);
                let held = leaves.map(|(leaf, needed)| match needed {
                    true => self.held(map, goal.by, leaf, values),
                    false => Held::Several,
                });
                of.push((goal.by, held.collect()));
            }
        }
        let mut candidates = Vec::new();
        for held in of.iter().flat_map(|(_, held)| held) {
            if let Held::On(shard) = held
                && !candidates.contains(shard)
            {
                candidates.push(*shard);
            }
        }
        let any = candidates.is_empty();
        candidates.extend(any.then_some(Shard(0)));
        let mut first = None;
        for shard in candidates {
            match self.unproved(goals, &of, shard) {
                None if any => return Ok(None),
                None => return may(shard).map(|()| Some(shard)),
                Some(goal) => first = first.or(Some((goal, shard))),
            }
        }
        let (goal, shard) = first.ok_or_else(|| Refusal::unproved("nothing is to be proved"))?;
        Err(self.refusal(map, goal, &of, shard, any))
    }

    /// The first goal that does not hold for a shard.
    fn unproved<'a>(
        &self,
        goals: &'a [Goal],
        of: &[(DistributionId, Vec<Held>)],
        shard: Shard,
    ) -> Option<&'a Goal> {
        for (by, held) in of {
            let holds = self.solve(held, shard);
            let mine = goals.iter().filter(|goal| goal.by == *by);
            let unproved = mine.into_iter().find(|goal| !holds[goal.node as usize]);
            if unproved.is_some() {
                return unproved;
            }
        }
        None
    }

    /// Which nodes hold for a shard.
    fn solve(&self, held: &[Held], shard: Shard) -> Vec<bool> {
        let mut denied = vec![false; self.nodes as usize];
        loop {
            let holds = self.consequences(held, shard, &denied);
            let bad =
                |(node, added): &&(Node, Node)| holds[*node as usize] && !holds[*added as usize];
            let Some((node, _)) = self.recursions.iter().find(bad) else {
                return holds;
            };
            denied[*node as usize] = true;
        }
    }

    /// The nodes that follow from the leaves.
    fn consequences(&self, held: &[Held], shard: Shard, denied: &[bool]) -> Vec<bool> {
        let mut holds = vec![false; self.nodes as usize];
        loop {
            let mut more = false;
            for rule in &self.rules {
                let node = rule.node as usize;
                if holds[node] || denied[node] {
                    continue;
                }
                holds[node] = rule.premises.iter().all(|premise| match premise {
                    Premise::Node(other) => holds[*other as usize],
                    Premise::Leaf(leaf) => {
                        let held = &held[*leaf as usize];
                        *held == Held::Nothing || *held == Held::On(shard)
                    }
                });
                more |= holds[node];
            }
            if !more {
                return holds;
            }
        }
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
                let given = self.parameter(number, leaf.family, values)?;
                KeyValue::of_parameter(leaf.family, given)?
                    .into_iter()
                    .collect()
            }
            Term::ParameterArray(number) => {
                let given = self.parameter(number, leaf.family, values)?;
                KeyValue::of_array(leaf.family, given)?.unwrap_or_default()
            }
        };
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

    fn parameter<'a>(
        &self,
        number: u32,
        family: KeyType,
        values: &Values<'a>,
    ) -> Result<Given<'a>, Unreadable> {
        let at = (number as usize).checked_sub(1);
        let given = at.and_then(|at| values.parameters.get(at));
        let given =
            *given.ok_or_else(|| Unreadable(format!("parameter ${number} is not given")))?;
        // Digits mean the same number in each type.
        let is_certain = family == KeyType::Integer && !given.binary;
        if is_undeclared(given.oid) && !is_certain && self.doubtful.contains(&number) {
            let what = "has several uses that may give it another type: declare or cast it";
            return Err(Unreadable(format!("parameter ${number} {what}")));
        }
        Ok(given)
    }

    /// Why a goal does not hold.
    fn refusal(
        &self,
        map: &Map,
        goal: &Goal,
        of: &[(DistributionId, Vec<Held>)],
        shard: Shard,
        any: bool,
    ) -> Refusal {
        let held = of
            .iter()
            .find(|(by, _)| *by == goal.by)
            .map(|(_, held)| held);
        let unknown = held.into_iter().flatten().find_map(|held| match held {
            Held::Unknown(refusal) => Some(refusal.clone()),
            _ => None,
        });
        if let Some(mut refusal) = unknown {
            refusal
                .detail
                .get_or_insert_with(|| format!("{} is not proved.", goal.what));
            return refusal;
        }
        let distribution = map.distribution(goal.by).map_or("", |found| found.name());
        let detail = if any {
            format!(
                "{} is not compared with values of \"{distribution}\".",
                goal.what
            )
        } else {
            format!(
                "{} is not proved to be on shard \"{}\" only.",
                goal.what,
                map.name_of(shard)
            )
        };
        Refusal::unproved("the statement is not proved to touch one shard only")
            .detail(detail)
            .hint(crate::refusal::SAY_KEY)
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
