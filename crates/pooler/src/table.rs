//! A table whose slots count their uses, so that a stale id finds nothing.

use std::marker::PhantomData;

use crate::event::{ClientId, ServerId};

/// An id made of a slot's index and its generation.
pub trait SlotKey: Copy {
    /// Makes an id.
    fn new(index: u32, generation: u32) -> Self;
    /// The slot.
    fn index(self) -> u32;
    /// The use of the slot.
    fn generation(self) -> u32;
}

macro_rules! key {
    ($name:ident) => {
        impl SlotKey for $name {
            fn new(index: u32, generation: u32) -> Self {
                $name { index, generation }
            }
            fn index(self) -> u32 {
                self.index
            }
            fn generation(self) -> u32 {
                self.generation
            }
        }
    };
}

key!(ClientId);
key!(ServerId);

/// A table of boxed values, by slot and use. Free slots are reused, the last freed first.
#[derive(Debug)]
pub struct Table<K, T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    key: PhantomData<K>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<Box<T>>,
}

impl<K, T> Default for Table<K, T> {
    fn default() -> Self {
        Table {
            slots: Vec::new(),
            free: Vec::new(),
            key: PhantomData,
        }
    }
}

impl<K: SlotKey, T> Table<K, T> {
    /// Inserts the value that `make` makes from its key.
    pub fn insert(&mut self, make: impl FnOnce(K) -> T) -> K {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                generation: 0,
                value: None,
            });
            (self.slots.len() - 1) as u32
        });
        let slot = &mut self.slots[index as usize];
        let key = K::new(index, slot.generation);
        slot.value = Some(Box::new(make(key)));
        key
    }

    /// Removes a value. Its key becomes invalid.
    pub fn remove(&mut self, key: K) -> Option<Box<T>> {
        let slot = self.slots.get_mut(key.index() as usize)?;
        if slot.generation != key.generation() {
            return None;
        }
        let value = slot.value.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(key.index());
        Some(value)
    }

    /// The value under a key.
    pub fn get(&self, key: K) -> Option<&T> {
        let slot = self.slots.get(key.index() as usize)?;
        if slot.generation != key.generation() {
            return None;
        }
        slot.value.as_deref()
    }

    /// The value under a key, mutable.
    pub fn get_mut(&mut self, key: K) -> Option<&mut T> {
        let slot = self.slots.get_mut(key.index() as usize)?;
        if slot.generation != key.generation() {
            return None;
        }
        slot.value.as_deref_mut()
    }

    /// The value under a key that must exist: its end is an event of its own, and comes later.
    ///
    /// # Panics
    /// The value does not exist, which is a bug.
    #[track_caller]
    pub fn at(&self, key: K) -> &T {
        match self.get(key) {
            Some(value) => value,
            None => missing(),
        }
    }

    /// As [`Table::at`], mutable.
    ///
    /// # Panics
    /// The value does not exist, which is a bug.
    #[track_caller]
    pub fn at_mut(&mut self, key: K) -> &mut T {
        match self.get_mut(key) {
            Some(value) => value,
            None => missing(),
        }
    }

    /// The key that is now valid for a slot.
    pub fn key_at(&self, index: u32) -> Option<K> {
        let slot = self.slots.get(index as usize)?;
        slot.value.as_ref().map(|_| K::new(index, slot.generation))
    }

    /// All values, by slot.
    pub fn iter(&self) -> impl Iterator<Item = (K, &T)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            let value = slot.value.as_deref()?;
            Some((K::new(index as u32, slot.generation), value))
        })
    }

    /// All values, by slot, mutable.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (K, &mut T)> {
        self.slots
            .iter_mut()
            .enumerate()
            .filter_map(|(index, slot)| {
                let value = slot.value.as_deref_mut()?;
                Some((K::new(index as u32, slot.generation), value))
            })
    }

    /// All keys, by slot.
    pub fn keys(&self) -> Vec<K> {
        self.iter().map(|(key, _)| key).collect()
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The number of free slots.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// True if the table has no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cold]
#[track_caller]
fn missing() -> ! {
    panic!("a connection that must exist is gone")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stale_keys_find_nothing() {
        let mut table = Table::<ClientId, &str>::default();
        let a = table.insert(|_| "a");
        let b = table.insert(|_| "b");
        assert_eq!(table.get(a), Some(&"a"));
        assert_eq!(table.remove(a).as_deref(), Some(&"a"));
        assert_eq!(table.remove(a), None);
        let c = table.insert(|_| "c");
        assert_eq!((c.index, c.generation), (a.index, a.generation + 1));
        assert_eq!(table.get(a), None);
        assert_eq!(table.get(c), Some(&"c"));
        assert_eq!(table.key_at(b.index), Some(b));
        assert_eq!(table.len(), 2);
    }
}
