//! A short form of `./prove cores`: the rules use virtual cores, and follow a step in load.

use howdah_sim::cores::machine::Layout;
use howdah_sim::cores::{LATER, MAILS, REACHED, Sums, play, step, sums};

fn reaches(layout: Layout, slow: u64, seconds: u64, sums: Sums) {
    let row = play(&layout, slow, seconds, Some(sums));
    assert!(row.rate >= REACHED * row.bound, "{layout:?}: {row:#?}");
    assert!(row.mails < MAILS, "{layout:?}: {row:#?}");
    assert!(row.passes());
}

#[test]
fn pools_use_the_cores_that_there_are() {
    let sums = sums();
    assert!(sums.core > 2.0 * sums.server, "{sums:?}");
    for (cores, pools, servers) in [(1, 1, 20), (4, 1, 20), (4, 1, 100), (4, 10, 20)] {
        let layout = Layout {
            cores,
            pools,
            servers,
            clients: 4 * servers as usize,
            ..Layout::default()
        };
        reaches(layout, 3, 6, sums);
    }
}

#[test]
fn a_step_in_load_is_followed_within_a_second() {
    let stepped = step(2);
    assert!(
        stepped.wide.is_some_and(|millis| millis <= 1000),
        "{stepped:?}"
    );
    assert!(stepped.moved > 10, "moves were seen: {stepped:?}");
    assert!(stepped.later() <= LATER, "{stepped:?}");
    let [stayed, moved] = stepped.times;
    assert!(stayed.is_sorted() && moved.is_sorted() && moved[0] > 0);
    assert!(moved[3] <= stayed[3] + LATER, "{stepped:?}");
}
