//! Deep statements do not overflow the stack of a worker.
#![cfg(feature = "grammar")]

fn depths(make: impl Fn(usize) -> String, name: &str) {
    for depth in [10, 20, 30, 40, 45, 50, 60, 100, 500, 1000, 2000, 3300, 5000] {
        let text = make(depth);
        let r = std::thread::Builder::new()
            .stack_size(2 << 20)
            .spawn(move || {
                let r = pg_query::parse(&text, 0);
                match r {
                    Ok(_) => "ok".to_owned(),
                    Err(e) => format!("{e}"),
                }
            })
            .unwrap()
            .join()
            .unwrap();
        eprintln!("{name} {depth}: {r}");
    }
}

#[test]
fn deep() {
    depths(|n| format!("select {}1", "1+".repeat(n)), "plus");
    depths(
        |n| format!("select {}1{}", "(".repeat(n), ")".repeat(n)),
        "paren",
    );
    depths(|n| format!("select {}true", "not ".repeat(n)), "not");
    depths(|n| format!("select 1{}", "::int".repeat(n)), "cast");
    depths(
        |n| format!("select 1{}", " union select 1".repeat(n)),
        "union",
    );
    depths(
        |n| format!("select 1 from a{}", " join b on true".repeat(n)),
        "join",
    );
    depths(|n| format!("select 1{}", " and 1".repeat(n)), "and");
    depths(
        |n| format!("select {}1{}", "(select ".repeat(n), ")".repeat(n)),
        "sub",
    );
    depths(
        |n| {
            format!(
                "select {}1{}",
                "case when true then ".repeat(n),
                " end".repeat(n)
            )
        },
        "case",
    );
    depths(
        |n| format!("select {}1{}", "f(".repeat(n), ")".repeat(n)),
        "f",
    );
    depths(
        |n| format!("select 1 {}", "[1".repeat(n) + &"]".repeat(n)),
        "idx",
    );
    depths(
        |n| format!("select {}1{}", "array[".repeat(n), &"]".repeat(n)),
        "arr",
    );
    depths(|n| format!("{} select 1", "explain ".repeat(n)), "explain");
}
