//! Variables of the usual images of PgBouncer, against the ini files that the images write from them.

use super::super::*;
use super::howdah_toml::World;

/// The variables, one a line: `NAME=value`.
fn read(variables: &'static str, files: &[(&'static str, &'static str)]) -> Reading {
    let variables = variables.lines().map(str::trim);
    let mut world = World {
        files: files.iter().copied().collect(),
        variables: variables.filter_map(|line| line.split_once('=')).collect(),
    };
    Config::read_environment(&mut world)
}

/// All global settings but the ones whose values the images do not write.
fn globals(config: &Config) -> Vec<(String, Option<String>)> {
    let settings = config.show();
    let settings = settings.filter(|shown| !["conffile", "auth_file"].contains(&shown.key));
    settings
        .map(|shown| (shown.key.to_owned(), shown.value))
        .collect()
}

#[test]
fn variables_are_what_the_images_write() {
    const MOUNTED: (&str, &str) = ("/etc/pgbouncer/userlist.txt", "\"app\" \"mounted\"\n");
    let edoburu = "[pgbouncer]\nlisten_addr=0.0.0.0\nlisten_port=5432\nunix_socket_dir=\nauth_type=md5\n\
                   ignore_startup_parameters=extra_float_digits\nadmin_users=postgres\n";
    let bitnami = "[pgbouncer]\nlisten_addr=0.0.0.0\nlisten_port=6432\nunix_socket_dir=/tmp/\n\
                   unix_socket_mode=0777\nauth_type=scram-sha-256\n\
                   ignore_startup_parameters=extra_float_digits\nstats_period=60\n\
                   client_tls_sslmode=disable\nserver_tls_sslmode=disable\nadmin_users=postgres\n";
    for (variables, files, common, ini, users) in [
        (
            "DB_HOST=db",
            &[][..],
            edoburu,
            "[databases]\n* = host=db port=5432 auth_user=postgres\n",
            "",
        ),
        (
            "DATABASE_URL=postgres://app:p%40@s,s@pg/shop\nDB_PORT=6543",
            &[],
            edoburu,
            "[databases]\nshop = host=pg port=6543 auth_user=app\n",
            "\"app\" \"p%40@s,s\"",
        ),
        (
            "DATABASE_URLS=postgres://foo:1@h:5/foo,postgres://bar:2@h/bar,\nDATABASE_URL=no",
            &[],
            edoburu,
            "[databases]\nfoo = host=h port=5 auth_user=foo\nbar = host=h port=5 auth_user=bar\n",
            "\"foo\" \"1\"\n\"bar\" \"2\"",
        ),
        (
            "DB_USER=app\nDB_PASSWORD=hush\nDB_HOST=pg\nDB_PORT=5433\nDB_NAME=shop\n\
             AUTH_TYPE=scram-sha-256\nPOOL_MODE=transaction\nMAX_CLIENT_CONN=1000\nADMIN_USERS=a,b\n\
             LISTEN_PORT=6432\nSERVER_IDLE_TIMEOUT=30\nUSER=root\nWORKERS=9\nHTTP_LISTEN_PORT=1\n\
             PGBOUNCER_POOL_MODE=\nHOWDAH_DEFAULT_POOL_SIZE=7\nCLIENT_ENCODING=UTF8",
            &[],
            edoburu,
            "auth_type=scram-sha-256\npool_mode=transaction\nmax_client_conn=1000\nadmin_users=a,b\n\
             listen_port=6432\nserver_idle_timeout=30\ndefault_pool_size=7\n\
             [databases]\nshop = host=pg port=5433 auth_user=app client_encoding=UTF8\n",
            "\"app\" \"hush\"",
        ),
        (
            "DB_HOST=pg\nDB_USER=app\nDB_PASSWORD=not_this\nDB_PORT=tcp://10.0.0.1:5432",
            &[MOUNTED],
            edoburu,
            "[databases]\n* = host=pg port=5432 auth_user=app\n",
            "\"app\" \"mounted\"",
        ),
        (
            "POSTGRESQL_HOST=postgresql\nPGBOUNCER_AUTH_TYPE=trust",
            &[],
            bitnami,
            "auth_type=trust\n[databases]\npostgres = host=postgresql port=5432 dbname=postgres\n",
            "\"postgres\" \"\"",
        ),
        (
            "POSTGRESQL_PASSWORD_FILE=/run/word\nPOSTGRESQL_USERNAME=app\nPGBOUNCER_DATABASE=*\n\
             PGBOUNCER_POOL_MODE=transaction\nPGBOUNCER_SET_DATABASE_USER=yes\n\
             PGBOUNCER_SET_DATABASE_PASSWORD=TRUE\nPGBOUNCER_PORT=tcp://10.0.0.1:6432\n\
             PGBOUNCER_SERVICE_HOST=10.0.0.1\nPGBOUNCER_PORT_6432_TCP=tcp://10.0.0.1:6432\n\
             PGBOUNCER_INIT_SLEEP_TIME=1\nPGBOUNCER_STATS_USERS_FILE=/run/none\nPGBOUNCER_USERLIST=\"u\" \"v\"",
            &[("/run/word", "it's hush\n\n"), ("/run/none", "\n")],
            bitnami,
            "admin_users=app\npool_mode=transaction\n[databases]\n\
             * = host=postgresql port=5432 user=app password='it''s hush'\n",
            "\"app\" \"it's hush\"\n\"u\" \"v\"",
        ),
        (
            "POSTGRESQL_PASSWORD=hush\nPOSTGRESQL_DATABASE=shop\nPGBOUNCER_DATABASE=front\n\
             PGBOUNCER_AUTH_USER=who\nPGBOUNCER_CONNECT_QUERY=select ''a b''\n\
             PGBOUNCER_DSN_0=\"one 1\"=host=h1 dbname=d1\nPGBOUNCER_DSN_1=two=host=h2 password='x y'\n\
             PGBOUNCER_DSN_3=three=host=h3\nPGBOUNCER_SERVER_TLS_SSLMODE=require",
            &[],
            bitnami,
            "server_tls_sslmode=require\nserver_tls_ciphers=fast\nserver_tls_protocols=secure\n[databases]\n\
             front = host=postgresql port=5432 dbname=shop auth_user=who connect_query='select ''a b'''\n\
             \"one 1\" = host=h1 dbname=d1\ntwo = host=h2 password='x y'\n",
            "\"postgres\" \"hush\"",
        ),
    ] {
        let seen = read(variables, files);
        let ini = format!("{common}auth_file=/users\n{ini}");
        let written = Config::read("p.ini", &ini, &mut |_| Ok(users.into()));
        assert_eq!((&seen.mistakes, &written.mistakes), (&vec![], &vec![]));
        let (seen, written) = (seen.config, written.config);
        assert_eq!(globals(&seen), globals(&written), "{variables}");
        assert_eq!(seen.databases, written.databases, "{variables}");
        assert_eq!(seen.fallback, written.fallback, "{variables}");
        let secrets = |config: &Config| {
            let users = config.users.values();
            let users = users.map(|user| (user.name.clone(), user.listed, user.secret.clone()));
            let mut users: Vec<_> = users.collect();
            users.sort_by(|a, b| a.0.cmp(&b.0));
            format!("{users:?}")
        };
        assert_eq!(secrets(&seen), secrets(&written), "{variables}");
    }
}

#[test]
fn howdahs_own_urls_go_before_an_image() {
    let reading = read(
        "HOWDAH_DATABASE_URL=postgresql://u:p@h/d\nDATABASE_URL=mysql://nothing\nPOSTGRESQL_HOST=x",
        &[],
    );
    assert_eq!(reading.mistakes, []);
    assert!(reading.config.databases.contains_key("d") && reading.config.databases.len() == 1);
}

#[test]
fn wrong_variables_of_an_image_are_told_of() {
    for (variables, said) in [
        (
            "DB_HOST=a\nPGBOUNCER_DATABASE=b",
            "DB_HOST is a variable of the image edoburu/pgbouncer, PGBOUNCER_DATABASE of bitnami/pgbouncer (PGBOUNCER_DATABASE): take those of one image away",
        ),
        (
            "DATABASE_URL=a\nPOSTGRESQL_PASSWORD_FILE=/b",
            "DATABASE_URL is a variable of the image edoburu/pgbouncer, POSTGRESQL_PASSWORD_FILE of bitnami/pgbouncer (POSTGRESQL_PASSWORD_FILE): take those of one image away",
        ),
        (
            "DB_USER=a\nDB_PASSWORD=hush",
            "there is no host (DB_HOST): set DB_HOST or DATABASE_URL",
        ),
        (
            "DATABASE_URL=hush",
            "a URL can't be used (DATABASE_URL): write postgres://USER:PASSWORD@HOST:PORT/DATABASE",
        ),
        (
            "DATABASE_URL=postgres://u:hush@/d",
            "a URL can't be used (DATABASE_URL): it has no host: write postgres://USER:PASSWORD@HOST:PORT/DATABASE",
        ),
        (
            "DATABASE_URL=postgres://u:hu/sh@h/d?sslmode=require",
            "a URL can't be used (DATABASE_URL): the image takes no parameters in it: HOWDAH_DATABASE_URL does, in libpq's grammar",
        ),
        (
            "DATABASE_URLS=postgres://u:hu/sh,word@h/d",
            "a URL can't be used (DATABASE_URLS): its port is no number: write postgres://USER:PASSWORD@HOST:PORT/DATABASE",
        ),
        (
            "POSTGRESQL_PASSWORD_FILE=/gone",
            "could not read \"/gone\": No such file or directory (POSTGRESQL_PASSWORD_FILE): name a file that has the value, and that Howdah may read",
        ),
        (
            "POSTGRESQL_PASSWORD=x\nPGBOUNCER_CONNECT_QUERY=select 'a'",
            "a single quote stands alone (PGBOUNCER_CONNECT_QUERY): write two of them, as between the quotes of pgbouncer.ini",
        ),
        (
            "DB_HOST=h\nPOOL_SIZE=9",
            "invalid value \"...\" for parameter pool_size in configuration (POOL_SIZE): there is no such setting",
        ),
        (
            "DB_HOST=h\nDB_PORT=hush",
            "database \"*\", port (DB_PORT): must be a port from 1 to 65535",
        ),
        (
            "POSTGRESQL_HOST=h",
            "there is no password (POSTGRESQL_PASSWORD): set POSTGRESQL_PASSWORD or POSTGRESQL_PASSWORD_FILE",
        ),
        (
            "PGBOUNCER_AUTH_TYPE=trust\nPGBOUNCER_DSN_0=hush",
            "an entry of [databases] can't be read (PGBOUNCER_DSN_0): write NAME=host=HOST dbname=DATABASE",
        ),
        (
            "PGBOUNCER_AUTH_TYPE=trust\nPGBOUNCER_DSN_0=a=host=x password='hush",
            "an entry of [databases] can't be read (PGBOUNCER_DSN_0): ",
        ),
        (
            "PGBOUNCER_AUTH_TYPE=trust\nPGBOUNCER_USERLIST=\"u\" hush",
            "line 1 can't be read (PGBOUNCER_USERLIST): a password in quotes must follow the user",
        ),
        (
            "POSTGRESQL_PASSWORD=x\nPGBOUNCER_EXTRA_FLAGS=--verbose",
            "Howdah takes no options from a variable (PGBOUNCER_EXTRA_FLAGS): write the options as the arguments of the container",
        ),
        (
            "PGBOUNCER_AUTH_TYPE=trust\nPGBOUNCER_PORT_FILE=/gone",
            "could not read \"/gone\": No such file or directory (PGBOUNCER_PORT_FILE): name a file that has the value, and that Howdah may read",
        ),
        (
            "POSTGRESQL_PASSWORD=x\nPGBOUNCER_AUTH_TYPE=hush",
            "invalid value \"hush\" for parameter auth_type in configuration (PGBOUNCER_AUTH_TYPE): must be one of ",
        ),
        (
            "POOL_MODE=session",
            "there is no database in the environment: set ",
        ),
    ] {
        let seen = read(variables, &[]).mistakes;
        let seen: Vec<_> = seen.iter().map(Mistake::to_string).collect();
        assert!(
            seen.iter().any(|text| text.starts_with(said)),
            "{variables}: {seen:#?}"
        );
        let most = if variables.contains("URLS") { 2 } else { 1 };
        assert!(seen.len() <= most, "{variables}: {seen:#?}");
        let shown = seen.join("");
        assert!(!shown.contains("hush") || said.contains("hush"), "{shown}");
    }
}
