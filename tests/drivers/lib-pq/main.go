// lib/pq with its defaults: unnamed statements parsed in one group and bound in the next, named ones
// when prepared. The server is told by PGHOST, PGPORT, PGUSER, PGPASSWORD and PGDATABASE. Prints one
// line "behaviour count" for each behaviour that went as it must.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/lib/pq"
)

const clients = 8

var (
	ctx   = context.Background()
	conns [clients]*sql.Conn
)

func fail(format string, arguments ...any) {
	fmt.Fprintf(os.Stderr, "lib/pq: "+format+"\n", arguments...)
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
	var told *pq.Error
	if errors.As(err, &told) {
		return string(told.Code)
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

func onAll(work func(index int, conn *sql.Conn)) {
	together(clients, func(index int) { work(index, conns[index]) })
}

// where has the options of a connection. lib/pq insists on TLS unless told otherwise, here or by
// PGSSLMODE.
func where(options string) string {
	if os.Getenv("PGSSLMODE") != "" {
		return options
	}
	return "sslmode=disable " + options
}

// open gives a database of one name.
func open(options string) *sql.DB {
	db, err := sql.Open("postgres", where(options))
	must(err, "open")
	return db
}

type runner interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
}

func one[T any](conn runner, what, statement string, arguments ...any) T {
	var value T
	must(conn.QueryRowContext(ctx, statement, arguments...).Scan(&value), what)
	return value
}

func exec(conn runner, statement string, arguments ...any) {
	_, err := conn.ExecContext(ctx, statement, arguments...)
	must(err, statement)
}

func refused(conn runner, wanted, statement string, arguments ...any) {
	_, err := conn.ExecContext(ctx, statement, arguments...)
	same(code(err), wanted, statement)
}

func connects() {
	together(clients, func(index int) {
		conn, err := open(fmt.Sprintf("application_name='pq %d'", index)).Conn(ctx)
		must(err, "connect")
		conns[index] = conn
	})
	onAll(func(index int, conn *sql.Conn) {
		same(one[string](conn, "name", "select current_setting('application_name')"),
			fmt.Sprint("pq ", index), "application_name")
	})
	done("connect", clients)
}

func unnamed() {
	onAll(func(index int, conn *sql.Conn) {
		for turn := range 100 {
			value := fmt.Sprintf("%d.%d", index, turn)
			same(one[string](conn, "text", "select $1::text || '!'", value), value+"!", "shared")
			own := fmt.Sprintf("select $1::text || ' of %d'", index)
			same(one[string](conn, "own", own, value), fmt.Sprintf("%s of %d", value, index), "own")
		}
		_, err := conn.QueryContext(ctx, "select $1::text, nonsense", "x")
		same(code(err), "42703", "unknown column")
		same(one[int](conn, "after", "select $1::int", index), index, "after an error")
	})
	done("unnamed statements", clients*100)
}

func binaryParameters() {
	db := open("binary_parameters=yes")
	db.SetMaxOpenConns(clients)
	together(clients, func(index int) {
		for turn := range 50 {
			same(one[int](db, "binary", "select $1::int + 1", index*100+turn),
				index*100+turn+1, "one group")
		}
	})
	must(db.Close(), "close")
	done("unnamed in one group", clients*50)
}

func prepared() {
	onAll(func(index int, conn *sql.Conn) {
		// lib/pq counts its names from 1 on each connection, so that all of them collide.
		shared, err := conn.PrepareContext(ctx, "select $1::text || 'shared'")
		must(err, "prepare")
		own, err := conn.PrepareContext(ctx, fmt.Sprintf("select $1::int + %d", index*1000))
		must(err, "prepare")
		_, err = conn.PrepareContext(ctx, "select nonsense")
		same(code(err), "42703", "refused Parse")
		for turn := range 20 {
			var text string
			must(shared.QueryRow(fmt.Sprint(index)).Scan(&text), "shared")
			same(text, fmt.Sprint(index)+"shared", "shared statement")
			var number int
			must(own.QueryRow(turn).Scan(&number), "own")
			same(number, index*1000+turn, "own statement")
		}
		must(shared.Close(), "close")
		must(own.Close(), "close")
		kept, err := conn.PrepareContext(ctx, "select $1::text || 'kept'")
		must(err, "prepare")
		exec(conn, "discard all")
		_, err = kept.Exec("x")
		same(code(err), "26000", "after discard all")
		same(one[int](conn, "after", "select $1::int", index), index, "after that error")
	})
	done("named statements", clients*20)
}

func transactions() {
	exec(conns[0], "drop table if exists pq_rows; create table pq_rows (owner int, body text)")
	insert := "insert into pq_rows values ($1, $2)"
	onAll(func(index int, conn *sql.Conn) {
		for turn := range 6 {
			tx, err := conn.BeginTx(ctx, nil)
			must(err, "begin")
			exec(tx, insert, index, fmt.Sprint("kept ", turn))
			exec(tx, "savepoint s")
			exec(tx, insert, index, "undone")
			refused(tx, "22012", "select 1 / $1::int", 0)
			exec(tx, "rollback to s")
			exec(tx, fmt.Sprintf("set local work_mem = '%dMB'", index+1))
			same(one[string](tx, "set local", "show work_mem"), fmt.Sprint(index+1)+"MB", "set local")
			must(tx.Commit(), "commit")
			same(one[string](conn, "set local", "show work_mem"), "4MB", "after set local")

			tx, err = conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelSerializable})
			must(err, "begin")
			exec(tx, insert, index, "failed")
			refused(tx, "42703", "select nonsense")
			refused(tx, "25P02", insert, index, "in a failed transaction")
			must(tx.Rollback(), "rollback")

			tx, err = conn.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
			must(err, "begin")
			refused(tx, "25006", insert, index, "read only")
			must(tx.Rollback(), "rollback")
		}
		same(one[int](conn, "rows", "select count(*) from pq_rows where owner = $1", index), 6, "rows")
		rows, err := conn.QueryContext(ctx, "select 1; select 2; select 3")
		must(err, "several statements")
		for wanted := 1; wanted <= 3; wanted++ {
			for rows.Next() {
				var got int
				must(rows.Scan(&got), "scan")
				same(got, wanted, "one of several statements")
			}
			same(rows.NextResultSet(), wanted < 3, "next of several statements")
		}
		must(rows.Close(), "close")
	})
	done("transactions", clients*6)
}

func cursors() {
	onAll(func(index int, conn *sql.Conn) {
		tx, err := conn.BeginTx(ctx, nil)
		must(err, "begin")
		exec(tx, fmt.Sprintf("declare c cursor for select %d * 1000 + i from generate_series(1, 50) i", index))
		for turn := 1; turn <= 50; turn++ {
			same(one[int](tx, "fetch", "fetch c"), index*1000+turn, "cursor")
		}
		must(tx.Commit(), "commit")
		// Rows that are not read to their end.
		rows, err := conn.QueryContext(ctx, "select i from generate_series($1::int, 5000) i", index)
		must(err, "query")
		rows.Next()
		must(rows.Close(), "close")
		same(one[int](conn, "after", "select $1::int", index), index, "after rows not read")
	})
	done("cursors", clients)
}

func copies() {
	exec(conns[0], "drop table if exists pq_copied")
	exec(conns[0], "create table pq_copied (owner int, n int, body text, primary key (owner, n))")
	onAll(func(index int, conn *sql.Conn) {
		for turn := range 2 {
			tx, err := conn.BeginTx(ctx, nil)
			must(err, "begin")
			copy, err := tx.PrepareContext(ctx, "copy pq_copied (owner, n, body) from stdin")
			must(err, "copy")
			for n := range 500 {
				_, err = copy.Exec(index, n, strings.Repeat("x", 200))
				if err != nil {
					break
				}
			}
			if err == nil {
				_, err = copy.Exec()
			}
			if turn == 0 {
				must(err, "end of copy")
				must(copy.Close(), "close of copy")
				must(tx.Commit(), "commit")
			} else {
				same(code(err), "23505", "rows copied twice")
				_ = copy.Close()
				_ = tx.Rollback()
			}
		}
		same(one[int](conn, "copied", "select count(*) from pq_copied where owner = $1", index), 500, "rows")
	})
	done("copies", clients*2)
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
	db := open("")
	// A cancel request that comes before its query hits nothing, so the login must not take the time.
	must(db.Ping(), "connect")
	for index := range 4 {
		short, cancel := context.WithTimeout(ctx, 150*time.Millisecond)
		_, err := db.ExecContext(short, "select pg_sleep($1)", 60)
		cancel()
		if code(err) != "57014" && !errors.Is(err, context.DeadlineExceeded) {
			fail("timeout: %v", err)
		}
		same(one[int](db, "after", "select $1::int", index), index, "after a timeout")
	}
	must(db.Close(), "close")
	close(stop)
	beside.Wait()
	done("timeouts", 4)
}

func large() {
	onAll(func(index int, conn *sql.Conn) {
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
		plain, err := pq.NewConnector(where(""))
		must(err, "connector")
		db := sql.OpenDB(pq.ConnectorWithNoticeHandler(plain, func(notice *pq.Error) {
			heard = append(heard, notice.Message)
		}))
		for turn := range 5 {
			exec(db, fmt.Sprintf("do $$begin raise notice 'from %d.%d'; end$$", index, turn))
		}
		must(db.Close(), "close")
		for turn := range heard {
			same(heard[turn], fmt.Sprintf("from %d.%d", index, turn), "notice")
		}
		same(len(heard), 5, "notices")
	})
	done("notices", clients*5)
}

func changedTypes() {
	exec(conns[0], "drop table if exists pq_shape; create table pq_shape as select 1 as c1")
	for columns := 1; columns < 5; columns++ {
		onAll(func(_ int, conn *sql.Conn) {
			for range 6 {
				rows, err := conn.QueryContext(ctx, "select *, $1::int from pq_shape", columns)
				must(err, "query")
				names, err := rows.Columns()
				must(err, "columns")
				same(len(names), columns+1, "columns of a changed shape")
				must(rows.Close(), "close")
			}
		})
		exec(conns[columns], fmt.Sprintf("alter table pq_shape add c%d int", columns+1))
	}
	done("changed result types", clients*4)
}

func pool() {
	db := open("")
	db.SetMaxOpenConns(10)
	together(24, func(index int) {
		statement, err := db.Prepare("select $1::int * 2")
		must(err, "prepare")
		for turn := range 20 {
			var got int
			must(statement.QueryRow(index*100+turn).Scan(&got), "prepared")
			same(got, (index*100+turn)*2, "prepared")
			same(one[[]byte](db, "bytes", "select $1::bytea", []byte{0, byte(index), 255}),
				[]byte{0, byte(index), 255}, "bytes")
			same(one[bool](db, "array", "select $1::int = any($2)", index, pq.Array([]int{1, index})),
				true, "array")
		}
		must(statement.Close(), "close of a statement")
	})
	must(db.Close(), "close")
	done("database/sql", 24*20)
}

func reconnects() {
	together(clients, func(index int) {
		for turn := range 12 {
			db := open("")
			same(one[int](db, "new", "select $1::int", index*100+turn), index*100+turn, "new connection")
			if turn%2 == 1 {
				exec(db, "begin; insert into pq_rows values (-1, 'left behind')")
			}
			must(db.Close(), "close")
		}
	})
	done("reconnects", clients*12)
	same(one[int](conns[0], "left", "select count(*) from pq_rows where owner = -1"), 0, "left behind")
}

// migrations takes golang-migrate's lock, as replicas do that start at once.
func migrations() {
	const lock = 1486364155
	inside := 0
	onAll(func(index int, conn *sql.Conn) {
		for turn := range 3 {
			exec(conn, "SELECT pg_advisory_lock($1)", lock)
			inside++
			same(inside, 1, "who migrates")
			same(one[int](conn, "migrate", "select $1::int", turn), turn, "migration")
			inside--
			exec(conn, "SELECT pg_advisory_unlock($1)", lock)
		}
	})
	done("advisory locks", clients*3)
}

func notifications() {
	onAll(func(index int, conn *sql.Conn) {
		channel := fmt.Sprintf("pq %d", index)
		listener := pq.NewListener(where(""), time.Second, time.Minute, nil)
		must(listener.Listen(channel), "listen")
		for turn := range 5 {
			exec(conn, "select pg_notify($1, $2)", channel, fmt.Sprint(turn))
			same((<-listener.Notify).Extra, fmt.Sprint(turn), "notification")
		}
		must(listener.Close(), "close of a listener")
	})
	done("notifications", clients*5)
}

func main() {
	for _, behaviour := range []func(){connects, unnamed, binaryParameters, prepared, transactions,
		cursors, copies, timeouts, large, notices, changedTypes, pool, migrations, notifications,
		reconnects} {
		behaviour()
	}
	onAll(func(_ int, conn *sql.Conn) { must(conn.Close(), "close") })
	done("end", 1)
}
