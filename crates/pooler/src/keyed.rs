//! A table whose values have names: pools and logins.

use std::hash::Hash;
use std::sync::Arc;

use hashbrown::HashMap;

use crate::Seeded;

/// A value with a name, which also has a short id on its worker.
pub trait HasKey {
    /// The name, the same on all workers.
    type Key: Eq + Hash;
    /// The id.
    type Id: Copy + From<u32> + Into<u32>;
    /// The value's name.
    fn key(&self) -> &Arc<Self::Key>;
}

/// All values of one worker, by name and by id. Ids of removed values are used again.
#[derive(Debug)]
pub struct Keyed<T: HasKey> {
    slots: Vec<Option<Box<T>>>,
    free: Vec<T::Id>,
    by_key: HashMap<Arc<T::Key>, T::Id, Seeded>,
}

impl<T: HasKey> Keyed<T> {
    /// An empty table.
    pub fn new(seeded: Seeded) -> Self {
        Keyed {
            slots: Vec::new(),
            free: Vec::new(),
            by_key: HashMap::with_hasher(seeded),
        }
    }

    /// The value with this name.
    pub fn find(&self, key: &T::Key) -> Option<T::Id> {
        self.by_key.get(key).copied()
    }

    /// Adds a value.
    pub fn insert(&mut self, value: T) -> T::Id {
        let id = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            T::Id::from(self.slots.len() as u32 - 1)
        });
        self.by_key.insert(value.key().clone(), id);
        self.slots[slot(id)] = Some(Box::new(value));
        id
    }

    /// Removes a value, which nobody may use any more.
    pub fn remove(&mut self, id: T::Id) -> Option<Box<T>> {
        let value = self.slots.get_mut(slot(id))?.take()?;
        self.by_key.remove(value.key());
        self.free.push(id);
        Some(value)
    }

    /// A value that is known to exist, because somebody uses it.
    ///
    /// # Panics
    /// The value does not exist, which is a bug.
    #[inline]
    pub fn at(&self, id: T::Id) -> &T {
        self.slots[slot(id)]
            .as_ref()
            .expect("a value that is in use exists")
    }

    /// Like [`Self::at`], but mutable.
    ///
    /// # Panics
    /// The value does not exist, which is a bug.
    #[inline]
    pub fn at_mut(&mut self, id: T::Id) -> &mut T {
        self.slots[slot(id)]
            .as_mut()
            .expect("a value that is in use exists")
    }

    /// All values.
    pub fn iter(&self) -> impl Iterator<Item = (T::Id, &T)> {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(index, value)| Some((T::Id::from(index as u32), value.as_deref()?)))
    }

    /// The number of values.
    pub fn count(&self) -> usize {
        self.by_key.len()
    }

    /// The ids of all values.
    pub fn ids(&self) -> Vec<T::Id> {
        self.iter().map(|(id, _)| id).collect()
    }
}

#[inline]
fn slot<I: Into<u32>>(id: I) -> usize {
    let index: u32 = id.into();
    index as usize
}

/// Makes a number the id of a [`HasKey`] value.
macro_rules! id {
    ($name:ident) => {
        impl From<u32> for $name {
            #[inline]
            fn from(index: u32) -> Self {
                $name(index)
            }
        }
        impl From<$name> for u32 {
            #[inline]
            fn from(id: $name) -> u32 {
                id.0
            }
        }
    };
}

pub(crate) use id;
