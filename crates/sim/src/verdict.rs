//! What must hold of the roster's verdicts, whatever it was told.

use howdah_pooler::roster::view::{HostStanding, ListView, Role, State, View};

/// What is wrong with a view that follows another one, if anything is.
pub fn objection(before: &View, after: &View) -> Option<String> {
    after.lists.iter().find_map(|(list, now)| {
        let then = before.lists.get(list)?;
        older(now)
            .or_else(|| replaced(then, now))
            .or_else(|| passed_over(then, now))
    })
}

fn primary(view: &ListView) -> Option<usize> {
    let is_primary = |(_, of): &(_, HostStanding)| of.role == Some(Role::Primary);
    view.hosts.iter().position(is_primary)
}

/// A primary is on the highest timeline that any host has shown.
fn older(view: &ListView) -> Option<String> {
    let (host, primary) = &view.hosts[primary(view)?];
    let own = primary.timeline?;
    let shown = view
        .hosts
        .iter()
        .filter(|(_, of)| of.state != State::Drained);
    let newer = |(_, of): &&(_, HostStanding)| of.timeline.is_some_and(|of| of > own);
    let (newer, _) = shown.into_iter().find(newer)?;
    Some(format!(
        "{host} is the primary, and {newer} is on a higher timeline"
    ))
}

/// A primary that is up and on the same timeline as before is not replaced by a host on that
/// timeline.
fn replaced(before: &ListView, after: &ListView) -> Option<String> {
    let (old, new) = (primary(before)?, primary(after));
    let (host, then) = &before.hosts[old];
    let now = &after.hosts[old].1;
    let promoted = !matches!(now.role, Some(Role::Standby));
    let same = promoted && now.timeline == then.timeline && now.timeline.is_some();
    let is_up = |of: &HostStanding| matches!(of.state, State::Up | State::Fenced);
    let newest = after.hosts.iter().filter_map(|(_, of)| of.timeline).max();
    let goes = new != Some(old) && same && is_up(then) && is_up(now) && newest == now.timeline;
    goes.then(|| format!("{host} was the primary, and nothing has happened to it"))
}

/// A host that comes to take writes on a timeline of its own, the highest of all, is the primary.
fn passed_over(before: &ListView, after: &ListView) -> Option<String> {
    let timelines = after.hosts.iter().map(|(_, of)| of.timeline);
    let timelines = timelines.collect::<Option<Vec<_>>>()?;
    let newest = *timelines.iter().max()?;
    let is_newest = |of: &HostStanding| of.timeline == Some(newest);
    let at = after.hosts.iter().position(|(_, of)| is_newest(of))?;
    let is_sole = timelines.iter().filter(|of| **of == newest).count() == 1;
    let (host, now) = &after.hosts[at];
    let is_new = before.hosts[at].1.timeline < Some(newest);
    let may_write = now.role != Some(Role::Standby);
    let is_there = matches!(now.state, State::Up | State::Fenced);
    let is_primary = now.role == Some(Role::Primary);
    let wrong = is_sole && is_new && may_write && is_there && !is_primary;
    wrong.then(|| format!("{host} takes writes on the highest timeline, and is not the primary"))
}

/// A fenced host that takes writes on the same timeline as before is not the primary, unless an
/// administrator resumes it.
pub fn fence_forgotten(before: &View, after: &View) -> Option<String> {
    after.lists.iter().find_map(|(list, now)| {
        let then = before.lists.get(list)?;
        let (host, of) = &now.hosts[primary(now)?];
        let old = then.standing(host)?;
        let same = of.timeline.is_some() && old.timeline == of.timeline;
        let wrong = old.state == State::Fenced && old.role.is_none() && same;
        wrong.then(|| format!("{host} was fenced, and is the primary"))
    })
}
