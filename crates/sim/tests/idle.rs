//! `./prove cores` beside idle clients, of which drivers' own pools have many.

use howdah_sim::cores::machine::Layout;
use howdah_sim::cores::{play, play_beside};

#[test]
fn clients_that_do_nothing_do_not_keep_a_pool_on_one_core() {
    let layout = Layout {
        cores: 4,
        pools: 1,
        servers: 20,
        clients: 40,
        ..Layout::default()
    };
    let alone = play(&layout, 3, 6, None);
    let beside = play_beside(400, &layout, 3, 6, None);
    assert!(beside.wide > 1 && alone.wide > 1, "{beside:#?}");
    assert!(beside.rate >= 0.95 * alone.rate, "{beside:#?}\n{alone:#?}");
}
