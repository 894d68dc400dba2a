//! JSON in which no name stands twice: two readers of a token must not find different values in it.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// A value.
#[derive(Clone, PartialEq, Debug)]
pub enum Json {
    /// Null, true or false.
    Word,
    /// A number. Times are far below the numbers that a float can't hold.
    Number(f64),
    /// A text.
    Text(String),
    /// An array.
    Array(Vec<Json>),
    /// An object.
    Object(JsonObject),
}

/// The values of an object, by name.
pub type JsonObject = BTreeMap<String, Json>;

impl Json {
    /// The object that a text is.
    ///
    /// # Errors
    /// Why it is none.
    pub fn object(text: &[u8]) -> Result<JsonObject, &'static str> {
        match serde_json::from_slice(text) {
            Ok(Json::Object(object)) => Ok(object),
            Ok(_) => Err("it is no JSON object"),
            Err(why) if why.to_string().starts_with(TWICE) => {
                Err("a name stands twice in its JSON")
            }
            Err(_) => Err("its JSON can't be read"),
        }
    }

    /// The text, if it is one.
    pub fn text(&self) -> Option<&str> {
        match self {
            Json::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The texts of an array, or a single text; `None` if there is anything else.
    pub fn texts(&self) -> Option<Vec<&str>> {
        match self {
            Json::Text(text) => Some(vec![text]),
            Json::Array(all) => all.iter().map(Json::text).collect(),
            _ => None,
        }
    }
}

const TWICE: &str = "a name twice";

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Json, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Json, E> {
        Ok(Json::Word)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Json, E> {
        Ok(Json::Word)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Json, E> {
        Ok(Json::Number(number as f64))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Json, E> {
        Ok(Json::Number(number as f64))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Json, E> {
        Ok(Json::Number(number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Json, E> {
        Ok(Json::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Json, A::Error> {
        let mut read = Vec::new();
        while let Some(element) = all.next_element()? {
            read.push(element);
        }
        Ok(Json::Array(read))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<Json, A::Error> {
        let mut read = JsonObject::new();
        while let Some((name, value)) = all.next_entry::<String, Json>()? {
            if read.insert(name, value).is_some() {
                return Err(A::Error::custom(TWICE));
            }
        }
        Ok(Json::Object(read))
    }
}
