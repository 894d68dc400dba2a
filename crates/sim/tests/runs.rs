//! A short slice of `./sim`: some hundred seeds of the whole world, and that seeds repeat.

use howdah_sim::run::run;

/// Seeds that find a mistake which is not mended yet, and what it is. Once it is mended,
/// `what_is_known_is_still_there` says that a seed can go from here.
///
/// - 1066: after DDL, a portal of a statement that was described in a transaction with DDL, which
///   was rolled back, runs with the new rows; PostgreSQL refuses it with 0A000.
const KNOWN: [u64; 1] = [1066];

fn play(seeds: std::ops::Range<u64>) {
    let (mut statements, mut lends) = (0, 0);
    for seed in seeds.filter(|seed| !KNOWN.contains(seed)) {
        let outcome = run(seed, false);
        if let Some(violation) = outcome.violation {
            panic!(
                "./sim --seed {seed}: {}: {}",
                violation.checker, violation.text
            );
        }
        statements += outcome.statements;
        lends += outcome.lends;
    }
    // A world in which nothing happens proves nothing.
    assert!(statements > 10_000, "only {statements} statements");
    assert!(lends > 100, "only {lends} lends");
}

#[test]
fn every_reply_is_right_part_one() {
    play(0..1500);
}

#[test]
fn every_reply_is_right_part_two() {
    play(1500..3000);
}

#[test]
fn what_is_known_is_still_there() {
    for seed in KNOWN {
        let mended = run(seed, false).violation.is_none();
        assert!(!mended, "seed {seed} is clean: take it out of KNOWN");
    }
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
