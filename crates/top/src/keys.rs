//! What keys do.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::state::State;
use crate::view::View;

/// A key was pressed.
pub(crate) fn pressed(state: &mut State, key: KeyEvent) {
    if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
        state.done = true;
        return;
    }
    if state.filtering {
        return into_filter(state, key.code);
    }
    if std::mem::take(&mut state.help) {
        return;
    }
    let table = state.table();
    let last = table.rows.len().saturating_sub(1);
    let page = 10;
    match key.code {
        KeyCode::Char('q') => state.done = true,
        KeyCode::Char('?' | 'h') => state.help = true,
        KeyCode::Char(' ') => state.paused = !state.paused,
        KeyCode::Char('/') => state.filtering = true,
        KeyCode::Char(digit @ '1'..='5') => {
            let at = digit as usize - '1' as usize;
            state.go(View::MAIN[at].clone());
        }
        KeyCode::Tab => {
            let at = View::MAIN.iter().position(|view| *view == state.view);
            let next = at.map_or(0, |at| (at + 1) % View::MAIN.len());
            state.go(View::MAIN[next].clone());
        }
        KeyCode::Up | KeyCode::Char('k') => state.selected = state.selected.saturating_sub(1),
        KeyCode::Down | KeyCode::Char('j') => state.selected = (state.selected + 1).min(last),
        KeyCode::PageUp => state.selected = state.selected.saturating_sub(page),
        KeyCode::PageDown => state.selected = (state.selected + page).min(last),
        KeyCode::Home | KeyCode::Char('g') => state.selected = 0,
        KeyCode::End | KeyCode::Char('G') => state.selected = last,
        KeyCode::Char('<') | KeyCode::Left => state.sort.shift(table.columns.len(), -1),
        KeyCode::Char('>') | KeyCode::Right => state.sort.shift(table.columns.len(), 1),
        KeyCode::Char('r') => state.sort.downward = !state.sort.downward,
        KeyCode::Enter => state.enter(),
        KeyCode::Esc | KeyCode::Backspace => state.back(),
        _ => {}
    }
}

fn into_filter(state: &mut State, key: KeyCode) {
    match key {
        KeyCode::Enter => state.filtering = false,
        KeyCode::Esc => {
            state.filtering = false;
            state.filter.clear();
        }
        KeyCode::Backspace => drop(state.filter.pop()),
        KeyCode::Char(c) if state.filter.len() < 100 => state.filter.push(c),
        _ => {}
    }
    state.selected = 0;
}
