//! What a file says, whatever its syntax: keys and values with their places.

use std::collections::HashMap;

use howdah_config::Place;

/// A key, and what stands behind it.
#[derive(Clone, Debug)]
pub struct Branch {
    /// The key.
    pub name: String,
    /// The words between the key and its block: `"shop"` in `database "shop" {`. TOML has none.
    pub words: Vec<BlockWord>,
    /// Where the key stands.
    pub place: Place,
    /// What stands behind the key.
    pub fruit: Fruit,
}

/// A word between a key and its block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockWord {
    /// The word, without quotes.
    pub text: String,
    /// False for a keyword such as `default`.
    pub is_quoted: bool,
}

/// A key that two files set.
#[derive(Clone, Debug)]
pub struct Twice {
    /// The key.
    pub name: String,
    /// Its first place.
    pub first: Place,
    /// Its second place.
    pub second: Place,
}

/// A value of a file.
#[derive(Clone, Debug)]
pub enum Fruit {
    /// A text.
    Text(String),
    /// An integer.
    Integer(i64),
    /// A number with a fraction, as it is written.
    Fraction(String),
    /// True or false.
    Flag(bool),
    /// Nothing, which YAML can say.
    Nothing,
    /// A list.
    List(Vec<Fruit>),
    /// A table, with its keys in the order of the file.
    Table(Vec<Branch>),
}

impl Fruit {
    /// A text, or a number as a text.
    pub fn text(&self) -> Option<String> {
        match self {
            Fruit::Text(text) | Fruit::Fraction(text) => Some(text.clone()),
            Fruit::Integer(number) => Some(number.to_string()),
            _ => None,
        }
    }

    /// A number, perhaps written as a text.
    pub fn number(&self) -> Option<f64> {
        self.text()?.trim().parse().ok()
    }

    /// True or false, perhaps as 1 and 0 or as words.
    pub fn flag(&self) -> Option<bool> {
        match self {
            Fruit::Flag(flag) => Some(*flag),
            Fruit::Integer(0) => Some(false),
            Fruit::Integer(1) => Some(true),
            Fruit::Text(text) => match text.to_ascii_lowercase().as_str() {
                "yes" | "true" | "on" => Some(true),
                "no" | "false" | "off" => Some(false),
                _ => None,
            },
            _ => None,
        }
    }

    /// The branches of a table; none of other values.
    pub fn table(&self) -> &[Branch] {
        match self {
            Fruit::Table(all) => all,
            _ => &[],
        }
    }

    /// The elements of a list; a single value is a list of one.
    pub fn list(&self) -> &[Fruit] {
        match self {
            Fruit::List(all) => all,
            Fruit::Nothing => &[],
            other => std::slice::from_ref(other),
        }
    }

    /// The value of a table's key. Of several the last counts.
    pub fn get(&self, name: &str) -> Option<&Fruit> {
        let found = self.table().iter().rev().find(|branch| branch.name == name);
        found.map(|branch| &branch.fruit)
    }

    /// The text of a table's key.
    pub fn get_text(&self, name: &str) -> Option<String> {
        self.get(name)?.text()
    }

    /// The flag of a table's key.
    pub fn get_flag(&self, name: &str) -> Option<bool> {
        self.get(name)?.flag()
    }

    /// True if two values say the same, wherever they stand.
    pub fn equals(&self, other: &Fruit) -> bool {
        match (self, other) {
            (Fruit::List(all), Fruit::List(others)) => {
                all.len() == others.len() && all.iter().zip(others).all(|(a, b)| a.equals(b))
            }
            (Fruit::Table(all), Fruit::Table(others)) => {
                let is_in = |branch: &Branch| {
                    let mut others = others.iter();
                    others.any(|it| it.name == branch.name && it.fruit.equals(&branch.fruit))
                };
                all.len() == others.len() && all.iter().all(is_in)
            }
            (Fruit::Flag(flag), Fruit::Flag(other)) => flag == other,
            (Fruit::Nothing, Fruit::Nothing) => true,
            _ => self.text().is_some() && self.text() == other.text(),
        }
    }

    /// This tree with another file's: tables with one name go on with each other, and so do lists.
    ///
    /// # Errors
    /// A key has two values.
    pub fn merged(self, other: Fruit) -> Result<Fruit, Twice> {
        let (mut all, more) = match (self, other) {
            (Fruit::Table(all), Fruit::Table(more)) => (all, more),
            (all, _) => return Ok(all),
        };
        let mut places: HashMap<_, _> = all.iter().map(|it| it.name.clone()).zip(0..).collect();
        for branch in more {
            let at: usize = *places.entry(branch.name.clone()).or_insert(all.len());
            let Some(first) = all.get_mut(at) else {
                all.push(branch);
                continue;
            };
            let fruit = std::mem::replace(&mut first.fruit, Fruit::Nothing);
            first.fruit = match (fruit, branch.fruit) {
                (fruit @ Fruit::Table(_), other @ Fruit::Table(_)) => fruit.merged(other)?,
                (Fruit::List(all), Fruit::List(more)) => {
                    Fruit::List(all.into_iter().chain(more).collect())
                }
                _ => {
                    return Err(Twice {
                        name: branch.name,
                        first: first.place.clone(),
                        second: branch.place,
                    });
                }
            };
        }
        Ok(Fruit::Table(all))
    }

    /// The entries of a section: those of a table of tables with their keys, or those of a list of
    /// tables.
    pub fn entries(&self) -> Vec<(String, &Fruit)> {
        match self {
            Fruit::Table(all) => all
                .iter()
                .map(|branch| (branch.name.clone(), &branch.fruit))
                .collect(),
            Fruit::List(all) => (0..).map(|at: usize| at.to_string()).zip(all).collect(),
            _ => Vec::new(),
        }
    }
}
