//! Decides which worker gives a server to which, to even out a pool's servers.
//!
//! Workers lend each other servers by comparing how long their clients wait (`pool/lending.rs`). In
//! a pool on many workers with waits below a millisecond, these times say little: nine servers on
//! one worker and two on another stay as they are, and the two do less than they could. So the
//! Broker also compares how many clients wait for each server.

use crate::event::WorkerId;

/// The worker that should give a server to `to`: the one where afterwards the fewest clients wait
/// for each server, if clearly more would still wait for each server of `to`: half a client and an
/// eighth more, because the numbers change all the time. `held` is servers by worker, `waiting` is
/// clients by worker.
pub(super) fn giver(to: WorkerId, held: &[i32], waiting: &[u32]) -> Option<WorkerId> {
    let to = usize::from(to.0);
    let there = per_server(*waiting.get(to)?, held.get(to)? + 1)?;
    let givers = (0..held.len()).filter(|worker| *worker != to);
    let here = |worker: usize| Some((per_server(*waiting.get(worker)?, held[worker] - 1)?, worker));
    let (least, worker) = givers.filter_map(here).min()?;
    (there > least + least / 8 + MILLI / 2).then_some(WorkerId(worker as u16))
}

/// Waiting clients for each server, in thousandths.
fn per_server(waiting: u32, servers: i32) -> Option<u64> {
    let servers = u64::try_from(servers).ok().filter(|servers| *servers > 0)?;
    Some(u64::from(waiting) * MILLI / servers)
}

const MILLI: u64 = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    fn given(held: &[i32], waiting: &[u32]) -> Option<u16> {
        giver(WorkerId(0), held, waiting).map(|worker| worker.0)
    }

    #[test]
    fn who_has_many_gives_to_who_has_few() {
        assert_eq!(given(&[2, 9, 7], &[18, 11, 13]), Some(1));
        assert_eq!(given(&[3, 9, 7], &[17, 11, 13]), Some(1));
        assert_eq!(given(&[4, 5, 7], &[21, 20, 18]), Some(2));
    }

    #[test]
    fn nobody_gives_where_shares_are_about_even() {
        assert_eq!(given(&[5, 5, 5], &[15, 15, 15]), None);
        assert_eq!(given(&[5, 5, 7], &[20, 20, 18]), None);
        assert_eq!(given(&[5, 6], &[6500, 5000]), None, "an eighth more");
        assert_eq!(given(&[5, 6], &[7000, 5000]), Some(1));
        assert_eq!(given(&[4, 4], &[2, 0]), None, "it may be over in a moment");
        assert_eq!(given(&[4, 5], &[1, 0]), None, "it may be over in a moment");
    }

    #[test]
    fn nobody_gives_the_last() {
        assert_eq!(given(&[1, 1], &[50, 0]), None);
        assert_eq!(given(&[1, 2], &[50, 0]), Some(1));
        assert_eq!(given(&[1, 0, -1], &[50, 0, 0]), None);
    }

    #[test]
    fn a_server_that_went_does_not_come_back_at_once() {
        // The two workers ask in turn, until neither gets a server.
        let (mut held, clients) = ([1, 19], 40);
        let waiting = |held: [i32; 2]| held.map(|servers| (clients - servers).max(0) as u32);
        for turn in 0..40 {
            let to = WorkerId(turn % 2);
            if let Some(from) = giver(to, &held, &waiting(held)) {
                assert_eq!(from.0, 1, "{held:?}");
                held[usize::from(from.0)] -= 1;
                held[usize::from(to.0)] += 1;
            }
        }
        assert!(held[0] >= 8, "{held:?}");
    }
}
