// pgx with its defaults: statements cached under names, pipelined batches, COPY, and database/sql
// over it. The server is told by PGHOST, PGPORT, PGUSER, PGPASSWORD and PGDATABASE. Prints one line
// "behaviour count" for each behaviour that went as it must.
package main

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
)

const clients = 8

var (
	ctx   = context.Background()
	conns [clients]*pgx.Conn
)

func fail(format string, arguments ...any) {
	fmt.Fprintf(os.Stderr, "pgx: "+format+"\n", arguments...)
	os.Exit(1)
}

func must(err error, what string) {
	if err != nil {
		fail("%s: %v", what, err)
	}
}

func same(got, wanted any, what string) {
	if !reflect.DeepEqual(got, wanted) {
		fail("%s: got %.200v, not %.200v", what, got, wanted)
	}
}

func done(behaviour string, count int) { fmt.Println(behaviour, count) }

func code(err error) string {
	var told *pgconn.PgError
	if errors.As(err, &told) {
		return told.Code
	}
	return fmt.Sprint(err)
}

func together(n int, work func(index int)) {
	var all sync.WaitGroup
	for index := range n {
		all.Go(func() { work(index) })
	}
	all.Wait()
}

func onAll(work func(index int, conn *pgx.Conn)) {
	together(clients, func(index int) { work(index, conns[index]) })
}

func connect(index int) *pgx.Conn {
	config, err := pgx.ParseConfig("")
	must(err, "configuration")
	config.RuntimeParams["application_name"] = fmt.Sprint("pgx ", index)
	conn, err := pgx.ConnectConfig(ctx, config)
	must(err, "connect")
	return conn
}

type asker interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func one[T any](conn asker, what, statement string, arguments ...any) T {
	var value T
	must(conn.QueryRow(ctx, statement, arguments...).Scan(&value), what)
	return value
}

func all[T any](conn interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}, what, statement string, arguments ...any) []T {
	rows, err := conn.Query(ctx, statement, arguments...)
	must(err, what)
	values, err := pgx.CollectRows(rows, pgx.RowTo[T])
	must(err, what)
	return values
}

func exec(conn interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}, statement string, arguments ...any) {
	_, err := conn.Exec(ctx, statement, arguments...)
	must(err, statement)
}

func connects() {
	together(clients, func(index int) { conns[index] = connect(index) })
	onAll(func(index int, conn *pgx.Conn) {
		same(one[string](conn, "name", "select current_setting('application_name')"),
			fmt.Sprint("pgx ", index), "application_name")
	})
	done("connect", clients)
}

func repeats() {
	onAll(func(index int, conn *pgx.Conn) {
		for turn := range 40 {
			value := fmt.Sprintf("%d.%d", index, turn)
			same(one[string](conn, "shared", "select $1::text || '!'", value), value+"!", "shared")
			own := fmt.Sprintf("select $1::text || ' of %d'", index)
			same(one[string](conn, "own", own, value), fmt.Sprintf("%s of %d", value, index), "own")
			same(one[int](conn, "number", "select $1::int + 1", index*1000+turn),
				index*1000+turn+1, "number")
		}
	})
	done("cached statements", clients*40)
}

func evictions() {
	onAll(func(index int, conn *pgx.Conn) {
		for turn := range 600 { // pgx keeps 512, and deallocates the rest in the next round trip
			text := fmt.Sprintf("select '%d.%d ' || $1::text", index%2, turn)
			value := fmt.Sprint(index)
			same(one[string](conn, "many", text, value),
				fmt.Sprintf("%d.%d %d", index%2, turn, index), "one of many statements")
		}
	})
	done("evicted statements", clients*600)
}

func modes() {
	onAll(func(index int, conn *pgx.Conn) {
		for _, mode := range []pgx.QueryExecMode{
			pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe,
			pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
		} {
			for turn := range 5 {
				got := one[string](conn, mode.String(), "select $1::text || $2::text",
					mode, fmt.Sprint(index), fmt.Sprint(turn))
				same(got, fmt.Sprint(index, turn)[:1]+fmt.Sprint(turn), mode.String())
			}
		}
	})
	done("query modes", clients*5)
}

func prepared() {
	onAll(func(index int, conn *pgx.Conn) {
		for turn := range 5 {
			_, err := conn.Prepare(ctx, "mine", fmt.Sprintf("select $1::int + %d", index*100+turn))
			must(err, "prepare")
			same(one[int](conn, "explicit", "mine", 7), index*100+turn+7, "explicit statement")
			_, err = conn.PgConn().Prepare(ctx, "mine", "select 1", nil)
			same(code(err), "42P05", "a name twice")
			must(conn.Deallocate(ctx, "mine"), "deallocate")
			result := conn.PgConn().ExecPrepared(ctx, "mine", [][]byte{[]byte("1")}, nil, nil).Read()
			same(code(result.Err), "26000", "a name that is gone")
		}
		must(conn.DeallocateAll(ctx), "deallocate all")
		same(one[string](conn, "again", "select $1::text || '!'", "x"), "x!", "after deallocate all")
		exec(conn, "discard all")
		_, err := conn.Exec(ctx, "select $1::text || '!'", "x")
		same(code(err), "26000", "after discard all")
		same(one[string](conn, "again", "select $1::text || '!'", "x"), "x!", "after that error")
	})
	done("explicit statements", clients*5)
}

func transactions() {
	exec(conns[0], "drop table if exists pgx_rows")
	exec(conns[0], "create table pgx_rows (owner int, body text)")
	insert := "insert into pgx_rows values ($1, $2)"
	onAll(func(index int, conn *pgx.Conn) {
		for turn := range 6 {
			tx, err := conn.Begin(ctx)
			must(err, "begin")
			exec(tx, insert, index, fmt.Sprint("kept ", turn))
			inner, err := tx.Begin(ctx)
			must(err, "savepoint")
			exec(inner, insert, index, "undone")
			_, err = inner.Exec(ctx, "select 1 / $1::int", 0)
			same(code(err), "22012", "division")
			must(inner.Rollback(ctx), "rollback to savepoint")
			exec(tx, "set local work_mem = '"+fmt.Sprint(index+1)+"MB'")
			same(one[string](tx, "set local", "show work_mem"), fmt.Sprint(index+1)+"MB", "set local")
			must(tx.Commit(ctx), "commit")
			same(one[string](conn, "set local", "show work_mem"), "4MB", "after set local")

			tx, err = conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.Serializable})
			must(err, "begin")
			exec(tx, insert, index, "failed")
			_, err = tx.Exec(ctx, "select nonsense")
			same(code(err), "42703", "unknown column")
			_, err = tx.Exec(ctx, insert, index, "in a failed transaction")
			same(code(err), "25P02", "in a failed transaction")
			same(tx.Commit(ctx), pgx.ErrTxCommitRollback, "commit of a failed transaction")
		}
		count := "select count(*) from pgx_rows where owner = $1"
		same(one[int](conn, "rows", count, index), 6, "rows")
		tx, err := conn.BeginTx(ctx, pgx.TxOptions{AccessMode: pgx.ReadOnly})
		must(err, "begin")
		same(one[int](tx, "rows", count, index), 6, "rows, read only")
		_, err = tx.Exec(ctx, insert, index, "read only")
		same(code(err), "25006", "read only")
		must(tx.Rollback(ctx), "rollback")
	})
	done("transactions", clients*6)
}

func batches() {
	onAll(func(index int, conn *pgx.Conn) {
		for turn := range 5 {
			batch := &pgx.Batch{}
			for i := range 30 {
				batch.Queue("select $1::text", fmt.Sprintf("%d.%d.%d", index, turn, i))
				batch.Queue(fmt.Sprintf("select $1::int * %d", i), index)
			}
			results := conn.SendBatch(ctx, batch)
			for i := range 30 {
				same(one[string](row{results}, "batch", ""), fmt.Sprintf("%d.%d.%d", index, turn, i), "batch")
				same(one[int](row{results}, "batch", ""), index*i, "batch")
			}
			must(results.Close(), "batch")

			batch = &pgx.Batch{}
			batch.Queue("select $1::int", index)
			batch.Queue("select 1 / ($1::int - $1)", index)
			batch.Queue("select $1::text", "skipped")
			results = conn.SendBatch(ctx, batch)
			same(one[int](row{results}, "batch", ""), index, "before the error")
			_, err := results.Exec()
			same(code(err), "22012", "error in a batch")
			_, err = results.Exec()
			if err == nil {
				fail("a statement behind an error was run")
			}
			_ = results.Close()
			same(one[int](conn, "after", "select $1::int", index), index, "after a failed batch")
			pipelines(index, conn)
		}
	})
	done("batches", clients*5)
}

// row makes the next result of a batch look like an answer.
type row struct{ results pgx.BatchResults }

func (r row) QueryRow(context.Context, string, ...any) pgx.Row { return r.results.QueryRow() }

// pipelines sends several groups at once, one of which fails, with Flush in between.
func pipelines(index int, conn *pgx.Conn) {
	pipeline := conn.PgConn().StartPipeline(ctx)
	for group := range 4 {
		divisor := "1"
		if group == 2 {
			divisor = "0"
		}
		pipeline.SendQueryParams("select $1::int / $2::int", [][]byte{
			[]byte(fmt.Sprint(index*10 + group)), []byte(divisor)}, nil, nil, nil)
		must(pipeline.Sync(), "sync")
	}
	for group := range 4 {
		results, err := pipeline.GetResults()
		if group == 2 {
			same(code(err), "22012", "error in a pipeline")
		} else {
			must(err, "results of a pipeline")
			read := results.(*pgconn.ResultReader).Read()
			same(string(read.Rows[0][0]), fmt.Sprint(index*10+group), "pipeline")
		}
		_, err = pipeline.GetResults()
		must(err, "sync of a pipeline")
	}
	pipeline.SendPrepare("piped", "select 'flushed' as x", nil)
	pipeline.SendFlushRequest()
	must(pipeline.Flush(), "flush")
	results, err := pipeline.GetResults()
	must(err, "answer to a flush")
	same(results.(*pgconn.StatementDescription).Fields[0].Name, "x", "description after a flush")
	pipeline.SendDeallocate("piped")
	must(pipeline.Sync(), "sync")
	must(pipeline.Close(), "close of a pipeline")
}

func copies() {
	exec(conns[0], "drop table if exists pgx_copied")
	exec(conns[0], "create table pgx_copied (owner int, n int, body text, primary key (owner, n))")
	onAll(func(index int, conn *pgx.Conn) {
		var rows [][]any
		for n := range 500 {
			rows = append(rows, []any{int32(index), int32(n), strings.Repeat("x", 200)})
		}
		columns, table := []string{"owner", "n", "body"}, pgx.Identifier{"pgx_copied"}
		count, err := conn.CopyFrom(ctx, table, columns, pgx.CopyFromRows(rows))
		must(err, "copy")
		same(count, int64(500), "rows copied")
		_, err = conn.CopyFrom(ctx, table, columns, pgx.CopyFromRows(rows))
		same(code(err), "23505", "rows copied twice")
		_, err = conn.CopyFrom(ctx, table, columns, pgx.CopyFromFunc(func() ([]any, error) {
			return nil, errors.New("given up")
		}))
		if err == nil {
			fail("a copy that was given up succeeded")
		}
		var out bytes.Buffer
		_, err = conn.PgConn().CopyTo(ctx, &out, fmt.Sprintf(
			"copy (select owner, n from pgx_copied where owner = %d order by n) to stdout", index))
		must(err, "copy out")
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		same(len(lines), 500, "rows copied out")
		same(lines[499], fmt.Sprintf("%d\t499", index), "last row copied out")
	})
	done("copies", clients)
}

// sleep runs a statement that is given up as soon as it runs.
func sleep(conn *pgx.Conn, mark string) (context.Context, error) {
	short, cancel := context.WithCancel(ctx)
	text := fmt.Sprintf("select pg_sleep($1) /* %s */", mark)
	var watch sync.WaitGroup
	watch.Go(func() {
		for one[int](conns[0], "active", `select count(*) from pg_stat_activity
			where state = 'active' and wait_event = 'PgSleep' and query = $1`, text) == 0 {
		}
		cancel()
	})
	_, err := conn.Exec(short, text, 60)
	watch.Wait()
	return short, err
}

func timeouts() {
	stop := make(chan struct{})
	var beside sync.WaitGroup
	for index := 4; index < clients; index++ {
		beside.Go(func() {
			for turn := 0; ; turn++ {
				select {
				case <-stop:
					return
				default:
				}
				same(one[int](conns[index], "beside", "select $1::int", index*100000+turn),
					index*100000+turn, "beside a timeout")
			}
		})
	}
	for index := range 4 {
		// By default a timeout ends pgx's connection; with a cancel request handler it lives.
		config, err := pgx.ParseConfig("")
		must(err, "configuration")
		config.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
			return &pgconn.CancelRequestContextWatcherHandler{
				Conn: conn, DeadlineDelay: 20 * time.Second}
		}
		conn, err := pgx.ConnectConfig(ctx, config)
		must(err, "connect")
		for turn := range 2 {
			_, err = sleep(conn, fmt.Sprintf("handled %d.%d", index, turn))
			same(code(err), "57014", "cancelled")
			same(one[int](conn, "after", "select $1::int", index), index, "after a cancel")
		}
		must(conn.Close(ctx), "close")
		conn = connect(index)
		short, err := sleep(conn, fmt.Sprintf("closed %d", index))
		same(errors.Is(err, short.Err()), true, "given up")
		same(conn.IsClosed(), true, "closed by its context")
		<-conn.PgConn().CleanupDone()
	}
	close(stop)
	beside.Wait()
	done("timeouts", 4)
}

func large() {
	onAll(func(index int, conn *pgx.Conn) {
		text := strings.Repeat(string(rune('a'+index)), 1<<20)
		for range 2 {
			if one[string](conn, "large", "select $1::text", text) != text {
				fail("1 MB came back changed")
			}
		}
	})
	done("1 MB parameters", clients*2)
}

func notices() {
	together(clients, func(index int) {
		var heard []string
		config, err := pgx.ParseConfig("")
		must(err, "configuration")
		config.OnNotice = func(_ *pgconn.PgConn, notice *pgconn.Notice) {
			heard = append(heard, notice.Message)
		}
		conn, err := pgx.ConnectConfig(ctx, config)
		must(err, "connect")
		for turn := range 5 {
			exec(conn, fmt.Sprintf("do $$begin raise notice 'from %d.%d'; end$$", index, turn))
			same(heard[turn], fmt.Sprintf("from %d.%d", index, turn), "notice")
		}
		same(len(heard), 5, "notices")
		must(conn.Close(ctx), "close")
	})
	done("notices", clients*5)
}

// changedTypes alters a table under cached plans: pgx reports that once, and then prepares anew.
func changedTypes() {
	exec(conns[0], "drop table if exists pgx_shape")
	exec(conns[0], "create table pgx_shape as select 1 as c1")
	for columns := 1; columns < 5; columns++ {
		onAll(func(index int, conn *pgx.Conn) {
			for turn := range 6 {
				rows, err := conn.Query(ctx, "select * from pgx_shape")
				must(err, "query")
				got, err := pgx.CollectRows(rows, pgx.RowToMap)
				if code(err) == "0A000" && turn == 0 {
					continue
				}
				must(err, "changed shape")
				same(len(got[0]), columns, "columns of a changed shape")
			}
		})
		exec(conns[columns], fmt.Sprintf("alter table pgx_shape add c%d int", columns+1))
	}
	done("changed result types", clients*4)
}

func types() {
	exec(conns[0], "drop table if exists pgx_moods; drop type if exists pgx_pair, pgx_mood cascade")
	exec(conns[0], "create type pgx_mood as enum ('glad', 'sad')")
	exec(conns[0], "create type pgx_pair as (name text, mood pgx_mood)")
	type pair struct{ Name, Mood string }
	onAll(func(index int, conn *pgx.Conn) {
		for _, name := range []string{"pgx_mood", "pgx_mood[]", "pgx_pair"} {
			kind, err := conn.LoadType(ctx, name)
			must(err, "load type")
			conn.TypeMap().RegisterType(kind)
		}
		for turn := range 5 {
			wanted := pair{fmt.Sprint(index, turn), "sad"}
			same(one[pair](conn, "pair", "select $1::pgx_pair", wanted), wanted, "composite")
			same(one[[]string](conn, "moods", "select $1::pgx_mood[]", []string{"glad", "sad"}),
				[]string{"glad", "sad"}, "array of an enum")
		}
	})
	done("types looked up", clients*5)
}

// cursors reads through a portal with a row limit and through SQL's cursors.
func cursors() {
	onAll(func(index int, conn *pgx.Conn) {
		for range 3 {
			tx, err := conn.Begin(ctx)
			must(err, "begin")
			exec(tx, fmt.Sprintf("declare c cursor for select %d * 1000 + i from generate_series(1, 50) i", index))
			for from := 1; from <= 50; from += 10 {
				got := all[int](tx, "fetch", "fetch 10 from c")
				same([]int{len(got), got[0], got[9]}, []int{10, index*1000 + from, index*1000 + from + 9}, "cursor")
			}
			must(tx.Commit(ctx), "commit")
			same(len(all[int](conn, "rows", "select i from generate_series(1, $1::int) i", 2000+index)),
				2000+index, "many rows")
		}
	})
	done("cursors", clients*3)
}

func pools() {
	pool, err := pgxpool.New(ctx, "pool_max_conns=10")
	must(err, "pool")
	together(24, func(index int) {
		for turn := range 20 {
			same(one[int](pool, "pooled", "select $1::int", index*100+turn), index*100+turn, "pooled")
			must(pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				same(one[int](tx, "pooled", "select $1::int + 1", index*100+turn), index*100+turn+1, "pooled")
				return nil
			}), "pooled transaction")
		}
	})
	pool.Close()
	done("pgxpool", 24*20)
}

func databaseSQL() {
	pool, err := sql.Open("pgx", "")
	must(err, "open")
	pool.SetMaxOpenConns(10)
	together(24, func(index int) {
		statement, err := pool.PrepareContext(ctx, "select $1::int * 2")
		must(err, "prepare")
		for turn := range 10 {
			var got int
			must(statement.QueryRow(index*100+turn).Scan(&got), "prepared")
			same(got, (index*100+turn)*2, "prepared")
			tx, err := pool.Begin()
			must(err, "begin")
			must(tx.QueryRow("select $1::int + 5", index*100+turn).Scan(&got), "query")
			same(got, index*100+turn+5, "in a transaction")
			must(tx.Rollback(), "rollback")
		}
		must(statement.Close(), "close of a statement")
	})
	must(pool.Close(), "close")
	done("database/sql", 24*10)
}

func reconnects() {
	together(clients, func(index int) {
		for turn := range 12 {
			conn := connect(index)
			same(one[int](conn, "new", "select $1::int", index*100+turn), index*100+turn, "new connection")
			if turn%2 == 0 {
				must(conn.Close(ctx), "close")
				continue
			}
			exec(conn, "begin")
			exec(conn, "insert into pgx_rows values (-1, 'left behind')")
			must(conn.PgConn().Conn().Close(), "hang up")
		}
	})
	done("reconnects", clients*12)
	same(one[int](conns[0], "left", "select count(*) from pgx_rows where owner = -1"), 0, "left behind")
}

// migrations takes goose's lock, as replicas do that start at once.
func migrations() {
	const lock = 5887940537704921958
	inside := 0
	onAll(func(index int, conn *pgx.Conn) {
		for turn := range 3 {
			for !one[bool](conn, "lock", "SELECT pg_try_advisory_lock($1)", lock) {
			}
			inside++
			same(inside, 1, "who migrates")
			same(one[int](conn, "migrate", "select $1::int", turn), turn, "migration")
			inside--
			same(one[bool](conn, "unlock", "SELECT pg_advisory_unlock($1)", lock), true, "unlock")
		}
	})
	done("advisory locks", clients*3)
}

// notifications are heard as River's workers hear them.
func notifications() {
	onAll(func(index int, conn *pgx.Conn) {
		channel := fmt.Sprintf("river_insert_%d", index)
		listener := connect(index)
		exec(listener, `LISTEN "`+channel+`"`)
		for turn := range 5 {
			exec(conn, "SELECT pg_notify($1, $2)", channel, fmt.Sprint(turn))
			heard, err := listener.WaitForNotification(ctx)
			must(err, "wait for a notification")
			same(heard.Payload, fmt.Sprint(turn), "notification")
		}
		exec(listener, `UNLISTEN "`+channel+`"`)
		must(listener.Close(ctx), "close")
	})
	done("notifications", clients*5)
}

func main() {
	for _, behaviour := range []func(){connects, repeats, evictions, modes, prepared, transactions,
		batches, copies, timeouts, large, notices, changedTypes, types, cursors, pools, databaseSQL,
		migrations, notifications, reconnects} {
		behaviour()
	}
	onAll(func(_ int, conn *pgx.Conn) { must(conn.Close(ctx), "close") })
	done("end", 1)
}
