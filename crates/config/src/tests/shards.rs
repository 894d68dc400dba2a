//! Sharded databases in ini files.

use super::{good, mistakes};

const ENTRIES: &str =
    "[databases]\np0 = host=a\np1 = host=b\n[pgbouncer]\npool_mode = transaction\n";

fn with(prod: &str, sections: &str) -> String {
    format!("{ENTRIES}[databases]\nprod = {prod}\n{sections}")
}

#[test]
fn a_database_may_have_shards() {
    let sections = "[distributions:prod]\ntenant = hash bigint slots=2 0=p0 1=p1\n\
                    region = list text 'a b',eu=p0 *=p1\n\
                    [tables:prod]\npublic.* = tenant(account_id)\n'public.\"My Table\"' = p1\n";
    let entry = "shards=p0,p1 unlisted_tables=p1 auth_user=who max_db_client_connections=7";
    let config = good(&with(entry, sections));
    let prod = &config.databases["prod"];
    let map = prod.sharding.as_ref().unwrap();
    assert_eq!(map.shards(), ["p0", "p1"]);
    assert_eq!((map.distributions().len(), map.tables().len()), (2, 2));
    assert!(prod.hosts.is_empty());
    // All shards have one schema.
    assert_eq!(config.databases["p0"].schema(), "prod");
    assert_eq!(config.databases["p1"].schema(), "prod");
}

#[test]
fn what_can_not_be_sharded() {
    for (prod, sections, expected) in [
        (
            "shards=p0,p2",
            "",
            "database \"prod\": shard \"p2\" is no entry of [databases]",
        ),
        (
            "shards=p0,p0",
            "",
            "database \"prod\": shard \"p0\" stands twice",
        ),
        ("shards=,", "", "database \"prod\": shards names nobody"),
        (
            "shards=p0,prod",
            "",
            "database \"prod\": shard \"prod\" has shards itself",
        ),
        (
            "shards=p0 host=x",
            "",
            "database \"prod\": it has shards, and host, too",
        ),
        (
            "shards=p0 pool_size=3",
            "",
            "database \"prod\": it has shards, and pool_size, too",
        ),
        (
            "shards=p0 unlisted_tables=p1",
            "",
            "database \"prod\": \"p1\" is no shard of this database",
        ),
        (
            "host=x unlisted_tables=p1",
            "",
            "database \"prod\": it has unlisted_tables, and no shards",
        ),
        (
            "host=x shard_functions=f",
            "",
            "database \"prod\": it has shard_functions, and no shards",
        ),
        (
            "shards=p0,p1",
            "[databases]\nmore = shards=p1\n",
            "shard \"p1\" is a shard of database",
        ),
        (
            "host=x",
            "[tables:prod]\npublic.* = p0\n",
            "there is a map of database \"prod\"",
        ),
        (
            "shards=p0,p1",
            "[distributions:prod]\nt = hash bigint slots=2 0=p0\n",
            "database \"prod\", t = hash bigint slots=2 0=p0: slot 1 has no shard (at character 25) (h.ini:9)",
        ),
        (
            "shards=p0,p1",
            "[tables:prod]\npublic.* = t(id)\npublic.* = p0\n",
            "database \"prod\": \"public.*\" is already written at h.ini:9 (h.ini:10)",
        ),
        (
            "shards=p0,p1",
            "[tables:prod]\npublic.* = t(id)\n",
            "database \"prod\", public.* = t(id): there is no distribution \"t\"",
        ),
        (
            "shards=p0,p1",
            "[databases]\np1 = host=b pool_mode=session\n",
            "shard \"p1\" needs pool_mode = transaction",
        ),
        (
            "shards=p0,p1",
            "[databases]\np1 = host=b user=o password_source='vault path=database/creds/app'\n",
            "shard \"p1\" has users that Vault makes",
        ),
        (
            "shards=p0,p1",
            "[databases]\np1 = host=b session_state=share\n",
            "shard \"p1\" needs session_state = keep",
        ),
        (
            "shards=p0,p1",
            "[users]\nann = pool_mode=session\n",
            "shard \"p0\" needs pool_mode = transaction",
        ),
        (
            "shards=p0,p1",
            "[databases]\np1 = host=b,c target_session_attrs=primary read_routing=statements\n",
            "shard \"p1\" has read_routing",
        ),
        (
            "shards=p0,p1",
            "[databases]\np1 = host=b connect_query='SET search_path TO x'\n",
            "shard \"p1\" has a connect_query",
        ),
        (
            "shards=p0,p1",
            "[pgbouncer]\nmax_prepared_statements = 0\npool_mode = transaction\n",
            "it has shards, and max_prepared_statements is 0",
        ),
    ] {
        let found = mistakes(&with(prod, sections));
        let is_told = found.iter().any(|mistake| mistake.contains(expected));
        assert!(is_told, "{prod}\n{sections}\n{found:#?}");
    }
}
