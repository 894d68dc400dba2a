//! What the screen shows now, and how it came there.

use crate::console::Snapshot;
use crate::table::Table;
use crate::view::View;

/// See the module.
pub(crate) struct State {
    /// Whom it looks at.
    pub target: String,
    pub now: Option<Snapshot>,
    before: Option<Snapshot>,
    /// Why there is nothing newer.
    pub lost: Option<String>,
    pub view: View,
    pub selected: usize,
    pub sort: Sort,
    pub filter: String,
    /// Keys go to the filter.
    pub filtering: bool,
    pub paused: bool,
    pub help: bool,
    pub done: bool,
}

/// What rows are sorted by.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Sort {
    /// A column by its number; none is the order of the view.
    pub column: Option<usize>,
    pub downward: bool,
}

impl State {
    /// Nothing is known yet.
    pub fn new(target: String) -> State {
        State {
            target,
            now: None,
            before: None,
            lost: None,
            view: View::Pools,
            selected: 0,
            sort: Sort::of(&View::Pools),
            filter: String::new(),
            filtering: false,
            paused: false,
            help: false,
            done: false,
        }
    }

    /// A newer snapshot.
    pub fn take(&mut self, snapshot: Snapshot) {
        self.before = self.now.replace(snapshot);
        self.lost = None;
    }

    /// The snapshot before.
    pub fn before(&self) -> Option<&Snapshot> {
        self.before.as_ref()
    }

    /// What is to be seen, sorted and filtered.
    pub fn table(&self) -> Table {
        let Some(now) = &self.now else {
            return Table::default();
        };
        let mut table = self.view.table(now, self.before.as_ref());
        if !self.filter.is_empty() {
            table.filter(&self.filter);
        }
        if let Some(column) = self.sort.column {
            table.sort(column, self.sort.downward);
        }
        table
    }

    /// Looks another way.
    pub fn go(&mut self, view: View) {
        self.sort = Sort::of(&view);
        self.view = view;
        self.selected = 0;
    }

    /// Goes into the pool that is selected.
    pub fn enter(&mut self) {
        if matches!(self.view, View::Pool(..)) {
            return;
        }
        let table = self.table();
        let pool = (
            table.value(self.selected, "database"),
            table.value(self.selected, "user"),
        );
        if !pool.0.is_empty() {
            let view = View::Pool(pool.0.to_string(), pool.1.to_string());
            self.filter.clear();
            self.go(view);
        }
    }

    /// Out of the filter, or the pool.
    pub fn back(&mut self) {
        if !self.filter.is_empty() {
            self.filter.clear();
        } else {
            self.go(View::Pools);
        }
    }
}

impl Sort {
    fn of(view: &View) -> Sort {
        let column = match view {
            View::Pools => Some(2),
            View::Clients => Some(3),
            View::Servers => Some(2),
            View::Holders => Some(2),
            View::Queries => Some(1),
            View::Pool(..) => None,
        };
        Sort {
            column,
            downward: *view != View::Servers,
        }
    }

    /// The next column, or the one before.
    pub fn shift(&mut self, columns: usize, by: isize) {
        if columns == 0 {
            return;
        }
        let at = self.column.map_or(-by.min(0), |at| at as isize + by);
        self.column = Some(at.rem_euclid(columns as isize) as usize);
    }
}
