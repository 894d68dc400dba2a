//! The deepest statements do not overflow the stack of a worker, and take no time.
#![cfg(feature = "grammar")]

use std::collections::HashSet;
use std::sync::Arc;

use howdah_shard::{Catalogue, MOST_TOKENS, Map, Names, Planner, Refusal};

/// The stack that Rust gives to a thread.
const STACK: usize = 2 << 20;

fn plan(text: String) -> Result<usize, Refusal> {
    let planning = move || {
        let map = Map::builder(["a", "b"]).expect("shards").finish();
        let catalogue = Catalogue::new(1, vec![None, None]);
        let mut planner = Planner::new(Arc::new(map), Arc::new(catalogue), HashSet::new(), 1 << 20);
        let names = Names {
            role: "a",
            login: "a",
            search_path: None,
            has_temporary: false,
            escapes: false,
            utf8: true,
        };
        let planned = planner.plan(text.as_bytes(), &names);
        planned.map(|planned| planned.plan.count())
    };
    let worker = std::thread::Builder::new()
        .stack_size(STACK)
        .spawn(planning);
    worker.expect("a thread").join().expect("no panic")
}

#[test]
fn no_depth_overflows_the_stack() {
    // What stands before, again and again; in the middle; and behind.
    for (front, middle, behind) in [
        ("1+", "1", ""),
        ("(", "1", ")"),
        ("not ", "true", ""),
        ("- ", "a", ""),
        ("", "1", "::int"),
        ("", "1", " union select 1"),
        ("", "1 from a", " join b on true"),
        ("", "1 from a", ", b"),
        ("", "1", " and 1"),
        ("", "1", " and 1 or 1"),
        ("(select ", "1", ")"),
        ("exists (select from a where ", "true", ")"),
        ("case when true then ", "1", " end"),
        ("f(", "1", ")"),
        ("array[", "1", "]"),
        ("row(", "1", ")"),
        ("", "a", "[1]"),
        ("", "a", ".b"),
        ("a in (", "1", ")"),
        ("1 from (select ", "1", ")"),
        ("1 from (a join ", "b", " on true)"),
        ("coalesce(", "1", ")"),
        ("", "1", " collate a"),
        ("", "1", " is null"),
        ("", "1", "; select 1"),
    ] {
        let words = format!("{front}{behind}")
            .split_inclusive(|c: char| !c.is_alphanumeric())
            .count();
        for tokens in [100, 1_000, MOST_TOKENS - 10, MOST_TOKENS * 3] {
            let count = tokens / words.max(1);
            let text = format!(
                "select {}{middle}{}",
                front.repeat(count),
                behind.repeat(count)
            );
            if let Err(refusal) = plan(text) {
                let codes = ["0A000", "42601", "54001"];
                assert!(
                    codes.contains(&refusal.code),
                    "{front}{middle}{behind}: {refusal}"
                );
            }
        }
    }
}

#[test]
fn what_is_too_deep_is_said() {
    for text in [
        format!("select {}1", "1+".repeat(10_000)),
        format!("select {}1", "1+".repeat(4_000)),
        format!("select {}1", "1+".repeat(100)),
        format!("select {}1{}", "(select ".repeat(1_000), ")".repeat(1_000)),
    ] {
        assert_eq!(plan(text).map_err(|refusal| refusal.code), Err("54001"));
    }
    assert_eq!(plan(format!("select {}1", "1+".repeat(40))), Ok(1));
    assert_eq!(
        plan(format!("select {}true", "true and ".repeat(3_000))),
        Ok(1)
    );
    assert_eq!(
        plan(format!("select 1 where 1 in ({}1)", "17, ".repeat(100_000))),
        Ok(1)
    );
}
