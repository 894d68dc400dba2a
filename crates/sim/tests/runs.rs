//! A short slice of `./prove sim`: some hundred seeds of the whole world. Also: a seed repeats exactly.

use howdah_sim::run::run;

fn play(seeds: std::ops::Range<u64>) {
    let (mut statements, mut reads, mut lends) = (0, 0, 0);
    for seed in seeds {
        let outcome = run(seed, false);
        if let Some(violation) = outcome.violation {
            panic!(
                "./prove sim --seed {seed}: {}: {}",
                violation.checker, violation.text
            );
        }
        statements += outcome.statements;
        reads += outcome.reads;
        lends += outcome.lends;
    }
    // A world in which nothing happens would prove nothing.
    assert!(statements > 10_000, "only {statements} statements");
    assert!(reads > 500, "only {reads} reads at standbys");
    assert!(lends > 100, "only {lends} lends");
}

#[test]
fn every_reply_is_right_part_one() {
    play(0..500);
}

#[test]
fn every_reply_is_right_part_two() {
    play(1000..1500);
}

#[test]
fn a_seed_repeats() {
    for seed in [3, 11, 42, 254, 639] {
        let (first, again) = (run(seed, true), run(seed, true));
        let differs = first.whole.iter().zip(&again.whole).find(|(a, b)| a != b);
        assert_eq!(differs, None, "seed {seed} went another way");
        assert_eq!(first.whole.len(), again.whole.len());
        assert!(!first.whole.is_empty());
    }
}
