//! The hash of PostgreSQL's `PARTITION BY HASH`, for one key column.

use crate::value::KeyValue;

/// `HASH_PARTITION_SEED` of PostgreSQL.
const SEED: u64 = 0x7A5B_2236_7996_DCFD;

/// What `hash_combine64` adds to the hash of the first column.
const FIRST_COLUMN: u64 = 0x49A0_F4DD_15E5_A8E3;

/// The seed and what is added, as PostgreSQL reads these numbers: both fit into a signed `bigint`.
pub(crate) const IN_SQL: (i64, i64) = (SEED as i64, FIRST_COLUMN as i64);

/// The slot of a key: the remainder for which PostgreSQL's `satisfies_hash_partition` says true,
/// with `slots` as the modulus.
pub fn slot(key: &KeyValue, slots: u32) -> u32 {
    let hash = match key {
        KeyValue::Int(value) => hash_integer(*value),
        KeyValue::Text(text) => hash_bytes(text),
        KeyValue::Uuid(bytes) => hash_bytes(bytes),
    };
    let row = hash.wrapping_add(FIRST_COLUMN);
    (row % u64::from(slots)) as u32
}

/// `hashint8extended`, which agrees with `hashint4extended` and `hashint2extended`.
fn hash_integer(value: i64) -> u64 {
    let (low, high) = (value as u32, (value >> 32) as u32);
    let low = low ^ if value >= 0 { high } else { !high };
    let mut state = State::new(4);
    state.a = state.a.wrapping_add(low);
    state.finish()
}

/// `hash_bytes_extended`.
fn hash_bytes(bytes: &[u8]) -> u64 {
    let mut state = State::new(bytes.len() as u32);
    let (blocks, rest) = bytes.as_chunks::<12>();
    for block in blocks {
        state.add(block);
        state.mix();
    }
    let mut last = [0; 12];
    // The lowest byte of the third word belongs to the length.
    let behind = rest.get(8..).unwrap_or_default();
    last[..rest.len().min(8)].copy_from_slice(&rest[..rest.len().min(8)]);
    last[9..9 + behind.len()].copy_from_slice(behind);
    state.add(&last);
    state.finish()
}

/// The three words of Bob Jenkins' hash.
struct State {
    a: u32,
    b: u32,
    c: u32,
}

impl State {
    fn new(length: u32) -> State {
        let start = 0x9e37_79b9_u32.wrapping_add(length).wrapping_add(3_923_095);
        let mut state = State {
            a: start.wrapping_add((SEED >> 32) as u32),
            b: start.wrapping_add(SEED as u32),
            c: start,
        };
        state.mix();
        state
    }

    fn add(&mut self, block: &[u8; 12]) {
        let word = |at: usize| {
            u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
        };
        self.a = self.a.wrapping_add(word(0));
        self.b = self.b.wrapping_add(word(4));
        self.c = self.c.wrapping_add(word(8));
    }

    fn mix(&mut self) {
        let State { a, b, c } = self;
        let step = |x: &mut u32, y: u32, bits: u32| *x = x.wrapping_sub(y) ^ y.rotate_left(bits);
        step(a, *c, 4);
        *c = c.wrapping_add(*b);
        step(b, *a, 6);
        *a = a.wrapping_add(*c);
        step(c, *b, 8);
        *b = b.wrapping_add(*a);
        step(a, *c, 16);
        *c = c.wrapping_add(*b);
        step(b, *a, 19);
        *a = a.wrapping_add(*c);
        step(c, *b, 4);
        *b = b.wrapping_add(*a);
    }

    fn finish(self) -> u64 {
        let State {
            mut a,
            mut b,
            mut c,
        } = self;
        let step = |x: u32, y: u32, bits: u32| (x ^ y).wrapping_sub(y.rotate_left(bits));
        c = step(c, b, 14);
        a = step(a, c, 11);
        b = step(b, a, 25);
        c = step(c, b, 16);
        a = step(a, c, 4);
        b = step(b, a, 14);
        c = step(c, b, 24);
        u64::from(b) << 32 | u64::from(c)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::KeyType;

    /// Each line: type, value in hexadecimal digits of its text, and what PostgreSQL said: the only
    /// remainder of 64 and of 7 for which `satisfies_hash_partition` was true.
    const SAID: &str = include_str!("../tests/hash.txt");

    #[test]
    fn postgresql_agrees() {
        let mut lines = 0;
        for line in SAID.lines().filter(|line| !line.starts_with('#')) {
            let fields: Vec<&str> = line.split(' ').collect();
            let [of, value, in_64, in_7] = fields[..] else {
                panic!("{line}");
            };
            let text: Vec<u8> = (0..value.len() / 2)
                .map(|at| u8::from_str_radix(&value[2 * at..2 * at + 2], 16).expect("hex"))
                .collect();
            let key = KeyType::of_name(of).expect("a type");
            let key = KeyValue::of_literal(key, &text).expect("a value");
            assert_eq!(slot(&key, 64).to_string(), in_64, "{line}");
            assert_eq!(slot(&key, 7).to_string(), in_7, "{line}");
            lines += 1;
        }
        assert!(lines > 240, "{lines} lines");
    }
}
