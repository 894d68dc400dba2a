//! tokio-postgres with its defaults: every statement named, all requests of a connection pipelined,
//! types looked up in the catalogue. The server is told by PGHOST, PGPORT, PGUSER, PGPASSWORD and
//! PGDATABASE; with PGSSLROOTCERT it is reached over TLS, with the channel bound. Prints one line "behaviour count" for each behaviour that went as it must.

use std::fmt::Debug;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::future::{join_all, try_join_all};
use futures_util::{SinkExt, TryStreamExt};
use openssl::ssl::{SslConnector, SslMethod};
use postgres_openssl::MakeTlsConnector;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Kind;
use tokio_postgres::config::{ChannelBinding, SslMode};
use tokio_postgres::{AsyncMessage, Client, Error};

const CLIENTS: usize = 8;

type Heard = Arc<Mutex<Vec<String>>>;

fn same<T: PartialEq + Debug>(got: T, wanted: T, what: &str) {
    assert!(got == wanted, "{what}: got {got:?}, not {wanted:?}");
}

fn done(behaviour: &str, count: usize) {
    println!("{behaviour} {count}");
}

fn refused<T>(result: Result<T, Error>, wanted: &SqlState, what: &str) {
    let code = result.err().and_then(|error| error.code().cloned());
    same(code.as_ref(), Some(wanted), what);
}

/// TLS that knows the authority of PGSSLROOTCERT and checks the server's name.
fn tls() -> MakeTlsConnector {
    let mut builder = SslConnector::builder(SslMethod::tls_client()).expect("TLS");
    if let Ok(authority) = std::env::var("PGSSLROOTCERT") {
        builder.set_ca_file(authority).expect("an authority");
    }
    MakeTlsConnector::new(builder.build())
}

async fn connect_hearing(index: usize, heard: Heard) -> Client {
    let of = |name| std::env::var(name).expect("PGHOST and its kin are set");
    let (mode, binding) = match std::env::var("PGSSLROOTCERT") {
        Ok(_) => (SslMode::Require, ChannelBinding::Require),
        Err(_) => (SslMode::Disable, ChannelBinding::Disable),
    };
    let (client, mut connection) = tokio_postgres::Config::new()
        .ssl_mode(mode)
        .channel_binding(binding)
        .host(of("PGHOST"))
        .port(of("PGPORT").parse().expect("a port"))
        .user(of("PGUSER"))
        .password(of("PGPASSWORD"))
        .dbname(of("PGDATABASE"))
        .application_name(format!("tokio {index}"))
        .connect(tls())
        .await
        .expect("connects");
    tokio::spawn(async move {
        while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
            match message {
                Ok(AsyncMessage::Notice(notice)) => {
                    heard.lock().unwrap().push(notice.message().into());
                }
                Ok(_) => {}
                Err(_) => break,
            }
        }
    });
    client
}

async fn connect(index: usize) -> Client {
    connect_hearing(index, Heard::default()).await
}

/// Runs `work` on all connections at once.
async fn on_all<F: Future<Output = Result<Client, Error>>>(
    conns: &mut Vec<Client>,
    work: impl Fn(usize, Client) -> F,
) {
    let all = conns
        .drain(..)
        .enumerate()
        .map(|(index, conn)| work(index, conn));
    let back = try_join_all(all).await.expect("works");
    conns.extend(back);
}

async fn repeats(conns: &mut Vec<Client>) {
    on_all(conns, async |index, conn| {
        let name: String = conn.query_one("show application_name", &[]).await?.get(0);
        same(name, format!("tokio {index}"), "application_name");
        let shared = conn.prepare("select $1::text || '!', $2::int4").await?;
        for turn in 0..40_i32 {
            let value = format!("{index}.{turn}");
            let row = conn.query_one(&shared, &[&value, &turn]).await?;
            same(
                (row.get(0), row.get(1)),
                (value.clone() + "!", turn),
                "shared statement",
            );
            // A text is prepared, run and closed.
            let text = format!("select $1::text || ' of {}'", index % 3);
            let row = conn.query_one(&text, &[&value]).await?;
            same(row.get(0), format!("{value} of {}", index % 3), "text");
            let row = conn
                .query_typed_raw("select $1 + 1", [(turn, tokio_postgres::types::Type::INT4)])
                .await?;
            let rows: Vec<_> = row.try_collect().await?;
            same(rows[0].get(0), turn + 1, "unnamed statement");
        }
        refused(
            conn.prepare("select nonsense").await,
            &SqlState::UNDEFINED_COLUMN,
            "bad text",
        );
        Ok(conn)
    })
    .await;
    done("prepared statements", CLIENTS * 40);
}

async fn pipelines(conns: &mut Vec<Client>) {
    on_all(conns, async |index, conn| {
        for turn in 0..5_i32 {
            let text = "select $1::int4 * 2";
            let values: Vec<i32> = (0..50)
                .map(|n| index as i32 * 1000 + turn * 100 + n)
                .collect();
            let asked = values.iter().map(|value| {
                let conn = &conn;
                async move {
                    let row = conn.query_one(text, &[value]).await?;
                    Ok::<i32, Error>(row.get(0))
                }
            });
            let wanted: Vec<i32> = values.iter().map(|value| value * 2).collect();
            same(try_join_all(asked).await?, wanted, "pipeline");
            let divide = conn.prepare("select 100 / $1::int4").await?;
            let (conn, divide) = (&conn, &divide);
            let asked = (0..20_i32).map(|n| async move {
                conn.query_one(divide, &[&(n - 10)])
                    .await
                    .map(|row| row.get::<_, i32>(0))
            });
            for (n, answer) in join_all(asked).await.into_iter().enumerate() {
                match n as i32 - 10 {
                    0 => refused(answer, &SqlState::DIVISION_BY_ZERO, "one of a pipeline"),
                    divisor => same(answer?, 100 / divisor, "beside an error"),
                }
            }
        }
        Ok(conn)
    })
    .await;
    done("pipelines", CLIENTS * 5);
}

async fn transactions(conns: &mut Vec<Client>) {
    conns[0]
        .batch_execute(
            "drop table if exists tokio_rows; create table tokio_rows (owner int4, body text)",
        )
        .await
        .expect("a table");
    on_all(conns, async |index, mut conn| {
        let (owner, insert) = (index as i32, "insert into tokio_rows values ($1, $2)");
        for _ in 0..6 {
            let mut transaction = conn.transaction().await?;
            transaction.execute(insert, &[&owner, &"kept"]).await?;
            let inner = transaction.savepoint("s").await?;
            inner.execute(insert, &[&owner, &"undone"]).await?;
            let result = inner.query("select 1 / $1::int4", &[&0]).await;
            refused(result, &SqlState::DIVISION_BY_ZERO, "division");
            let result = inner.query("select $1::int4", &[&0]).await;
            refused(
                result,
                &SqlState::IN_FAILED_SQL_TRANSACTION,
                "failed transaction",
            );
            inner.rollback().await?;
            transaction
                .batch_execute(&format!("set local work_mem = '{}MB'", index + 1))
                .await?;
            let memory: String = transaction.query_one("show work_mem", &[]).await?.get(0);
            same(memory, format!("{}MB", index + 1), "set local");
            transaction.commit().await?;
            let memory: String = conn.query_one("show work_mem", &[]).await?.get(0);
            same(memory.as_str(), "4MB", "after set local");
            // One that is dropped rolls back.
            let dropped = conn.transaction().await?;
            dropped.execute(insert, &[&owner, &"dropped"]).await?;
            drop(dropped);
        }
        let count: i64 = conn
            .query_one(
                "select count(*) from tokio_rows where owner = $1",
                &[&owner],
            )
            .await?
            .get(0);
        same(count, 6, "rows kept");
        Ok(conn)
    })
    .await;
    done("transactions", CLIENTS * 6);
}

async fn portals(conns: &mut Vec<Client>) {
    on_all(conns, async |index, mut conn| {
        for _ in 0..3 {
            let transaction = conn.transaction().await?;
            let text = "select $1::int4 * 1000 + i from generate_series(1, 100) i";
            let portal = transaction.bind(text, &[&(index as i32)]).await?;
            for from in (1..=100).step_by(20) {
                let rows = transaction.query_portal(&portal, 20).await?;
                let got: Vec<i32> = rows.iter().map(|row| row.get(0)).collect();
                let wanted: Vec<i32> = (from..from + 20).map(|i| index as i32 * 1000 + i).collect();
                same(got, wanted, "portal");
            }
            transaction.commit().await?;
        }
        Ok(conn)
    })
    .await;
    done("portals", CLIENTS * 3);
}

async fn copies(conns: &mut Vec<Client>) {
    conns[0]
        .batch_execute(
            "drop table if exists tokio_copied; \
             create table tokio_copied (owner int4, n int4, body text, primary key (owner, n))",
        )
        .await
        .expect("a table");
    on_all(conns, async |index, conn| {
        let lines = |from: i32| {
            let line = |n| Bytes::from(format!("{index}\t{n}\t{}\n", "x".repeat(200)));
            futures_util::stream::iter((from..300).map(move |n| Ok(line(n))))
        };
        let copy = "copy tokio_copied from stdin";
        let mut sink = Box::pin(conn.copy_in(copy).await?);
        sink.send_all(&mut lines(0)).await?;
        same(sink.as_mut().finish().await?, 300, "rows copied");
        let mut sink = Box::pin(conn.copy_in(copy).await?);
        let _ = sink.send_all(&mut lines(200)).await;
        refused(
            sink.as_mut().finish().await,
            &SqlState::UNIQUE_VIOLATION,
            "copied twice",
        );
        // One that is dropped fails.
        let sink = conn.copy_in::<_, Bytes>(copy).await?;
        drop(sink);
        let text = format!("copy (select n from tokio_copied where owner = {index}) to stdout");
        let out: Vec<Bytes> = conn.copy_out(&text).await?.try_collect().await?;
        same(out.len(), 300, "rows copied out");
        Ok(conn)
    })
    .await;
    done("copies", CLIENTS);
}

async fn cancels(conns: &mut Vec<Client>) {
    let stopped = AtomicBool::new(false);
    let (front, back) = conns.split_at(4);
    let beside = join_all(back[..3].iter().map(async |conn| {
        for turn in 0_i32.. {
            if stopped.load(Ordering::Relaxed) {
                break;
            }
            let row = conn
                .query_one("select $1::int4", &[&turn])
                .await
                .expect("works");
            same(row.get(0), turn, "beside a cancel");
        }
    }));
    let cancelled = async {
        for (index, conn) in front.iter().enumerate() {
            let mark = format!("select pg_sleep(60) /* tokio {index} */");
            let active = "select count(*) from pg_stat_activity \
                          where state = 'active' and query = $1";
            let cancel = async {
                loop {
                    let row = back[3].query_one(active, &[&mark]).await.expect("works");
                    if row.get::<_, i64>(0) > 0 {
                        break;
                    }
                }
                conn.cancel_token()
                    .cancel_query(tls())
                    .await
                    .expect("cancels");
            };
            let (result, ()) = futures_util::future::join(conn.batch_execute(&mark), cancel).await;
            refused(result, &SqlState::QUERY_CANCELED, "cancelled");
            let row = conn.query_one("select 7", &[]).await.expect("works");
            same(row.get(0), 7_i32, "after a cancel");
        }
        stopped.store(true, Ordering::Relaxed);
    };
    futures_util::future::join(beside, cancelled).await;
    done("cancels", 4);
}

async fn large(conns: &mut Vec<Client>) {
    on_all(conns, async |index, conn| {
        let text = char::from(b'a' + index as u8).to_string().repeat(1 << 20);
        for _ in 0..2 {
            let row = conn.query_one("select $1::text", &[&text]).await?;
            assert!(row.get::<_, &str>(0) == text, "1 MB came back changed");
        }
        Ok(conn)
    })
    .await;
    done("1 MB parameters", CLIENTS * 2);
}

async fn notices() {
    join_all((0..CLIENTS).map(async |index| {
        let heard = Heard::default();
        let conn = connect_hearing(index, heard.clone()).await;
        let wanted: Vec<_> = (0..5).map(|turn| format!("from {index}.{turn}")).collect();
        for text in &wanted {
            let raise = format!("do $$begin raise notice '{text}'; end$$");
            conn.batch_execute(&raise).await.expect("raises");
        }
        same(heard.lock().unwrap().clone(), wanted, "notices");
    }))
    .await;
    done("notices", CLIENTS * 5);
}

async fn changed_types(conns: &mut Vec<Client>) {
    conns[0]
        .batch_execute(
            "drop table if exists tokio_shape; create table tokio_shape as select 1 as c1",
        )
        .await
        .expect("a table");
    for columns in 1..5 {
        on_all(conns, async |_, conn| {
            for _ in 0..4 {
                // Prepared anew each time.
                let rows = conn.query("select * from tokio_shape", &[]).await?;
                same(rows[0].len(), columns, "columns of a changed shape");
            }
            Ok(conn)
        })
        .await;
        let alter = format!("alter table tokio_shape add c{} int4", columns + 1);
        conns[columns].batch_execute(&alter).await.expect("alters");
    }
    done("changed result types", CLIENTS * 4);
}

async fn types(conns: &mut Vec<Client>) {
    for labels in [["glad", "sad"], ["up", "down"], ["left", "right"]] {
        let create = format!(
            "drop type if exists tokio_mood; create type tokio_mood as enum ('{}', '{}')",
            labels[0], labels[1]
        );
        conns[0].batch_execute(&create).await.expect("a type");
        on_all(conns, async |_, conn| {
            // A type is looked up once a connection, by its oid: a new one has a new oid.
            let statement = conn.prepare("select $1::text::tokio_mood").await?;
            let Kind::Enum(seen) = statement.columns()[0].type_().kind() else {
                panic!("not an enum: {:?}", statement.columns());
            };
            same(seen.as_slice(), &labels.map(String::from)[..], "labels");
            conn.query_one(&statement, &[&labels[1]]).await?;
            Ok(conn)
        })
        .await;
    }
    done("types made anew", CLIENTS * 3);
}

async fn resets(conns: &mut Vec<Client>) {
    on_all(conns, async |index, conn| {
        for reset in ["deallocate all", "discard all"] {
            let statement = conn.prepare("select $1::int4 + 1").await?;
            conn.batch_execute(reset).await?;
            let result = conn.query(&statement, &[&1]).await;
            refused(
                result,
                &SqlState::INVALID_SQL_STATEMENT_NAME,
                "a name that is gone",
            );
            let row = conn
                .query_one("select $1::int4 + 1", &[&(index as i32)])
                .await?;
            same(row.get(0), index as i32 + 1, "after a reset");
        }
        Ok(conn)
    })
    .await;
    done("reset by SQL", CLIENTS * 2);
}

async fn reconnects(conns: &[Client]) {
    join_all((0..CLIENTS).map(async |index| {
        for turn in 0..12_i32 {
            let conn = connect(index).await;
            let row = conn
                .query_one("select $1::int4", &[&turn])
                .await
                .expect("works");
            same(row.get(0), turn, "new connection");
            if turn % 2 == 0 {
                let left = "begin; insert into tokio_rows values (-1, 'left behind')";
                conn.batch_execute(left).await.expect("inserts");
            }
        }
    }))
    .await;
    let left = "select count(*) from tokio_rows where owner = -1";
    let count: i64 = conns[0].query_one(left, &[]).await.expect("counts").get(0);
    same(count, 0, "left behind");
    done("reconnects", CLIENTS * 12);
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let mut conns = join_all((0..CLIENTS).map(connect)).await;
    done("connect", CLIENTS);
    repeats(&mut conns).await;
    pipelines(&mut conns).await;
    transactions(&mut conns).await;
    portals(&mut conns).await;
    copies(&mut conns).await;
    cancels(&mut conns).await;
    large(&mut conns).await;
    notices().await;
    changed_types(&mut conns).await;
    types(&mut conns).await;
    resets(&mut conns).await;
    reconnects(&conns).await;
    done("end", 1);
}
