// pgx on a database that may be sharded: tenants in WHERE, and a tenant said for each request. What
// is printed is the same whether there are shards or not.
package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib"
)

const (
	tenants   = 12
	count     = "select count(*) from orders where account_id = $1"
	insert    = "insert into orders (account_id, id) values ($1, $2)"
	notProved = "select count(*) from orders where account_id + 0 = $1"
)

var ctx = context.Background()

func must(err error, what string) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "pgx: %s: %v\n", what, err)
		os.Exit(1)
	}
}

type asked interface {
	QueryRow(ctx context.Context, sql string, arguments ...any) pgx.Row
}

func number(in asked, text string, arguments ...any) (found int) {
	must(in.QueryRow(ctx, text, arguments...).Scan(&found), text)
	return found
}

// The first statement of each transaction has a key, and an error goes to a savepoint.
func transactions(conn *pgx.Conn) {
	for tenant := 1; tenant <= tenants; tenant++ {
		tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		must(err, "begin")
		before := number(tx, count, tenant)
		inner, err := tx.Begin(ctx)
		must(err, "savepoint")
		_, err = inner.Exec(ctx, insert, tenant, 500)
		must(err, "insert")
		if _, err = inner.Exec(ctx, insert, tenant, 500); err == nil {
			must(fmt.Errorf("no error"), "insert again")
		}
		must(inner.Rollback(ctx), "rollback to the savepoint")
		fmt.Println("transaction", tenant, before, number(tx, count, tenant))
		must(tx.Commit(ctx), "commit")
	}
}

// Statements that are sent at once; outside of a transaction, and inside.
func batches(conn *pgx.Conn) {
	for tenant := 1; tenant <= tenants; tenant++ {
		batch := &pgx.Batch{}
		batch.Queue(insert, tenant, 501)
		batch.Queue(count, tenant)
		batch.Queue("delete from orders where account_id = $1 and id = 501", tenant)
		results := conn.SendBatch(ctx, batch)
		_, err := results.Exec()
		must(err, "insert in a batch")
		var found int
		must(results.QueryRow().Scan(&found), "count in a batch")
		must(results.Close(), "batch")
		tx, err := conn.Begin(ctx)
		must(err, "begin")
		must(tx.SendBatch(ctx, batch).Close(), "batch in a transaction")
		must(tx.Rollback(ctx), "rollback")
		fmt.Println("batch", tenant, found, number(conn, count, tenant))
	}
}

// A statement that is prepared alone, by name.
func prepared(conn *pgx.Conn) {
	_, err := conn.Prepare(ctx, "counts", count)
	must(err, "prepare")
	for tenant := 1; tenant <= tenants; tenant++ {
		tx, err := conn.Begin(ctx)
		must(err, "begin")
		fmt.Println("prepared", tenant, number(conn, "counts", tenant))
		must(tx.Commit(ctx), "commit")
	}
}

// Each says its tenant, and its statements don't.
func requests(conn *pgx.Conn) {
	for tenant := 1; tenant <= tenants; tenant++ {
		_, err := conn.Exec(ctx, fmt.Sprintf("set howdah.key = 'tenant:%d'", tenant))
		must(err, "set")
		found := number(conn, notProved, tenant)
		tx, err := conn.Begin(ctx)
		must(err, "begin")
		_, err = tx.CopyFrom(ctx, pgx.Identifier{"orders"}, []string{"account_id", "id"},
			pgx.CopyFromRows([][]any{{tenant, 502}}))
		must(err, "copy")
		fmt.Println("request", tenant, found, number(tx, notProved, tenant))
		must(tx.Rollback(ctx), "rollback")
	}
	_, err := conn.Exec(ctx, "reset howdah.key")
	must(err, "reset")
}

func main() {
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement,
		pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec,
		pgx.QueryExecModeSimpleProtocol} {
		config, err := pgx.ParseConfig("")
		must(err, "settings")
		config.DefaultQueryExecMode = mode
		conn, err := pgx.ConnectConfig(ctx, config)
		must(err, "connect")
		fmt.Println(mode)
		transactions(conn)
		batches(conn)
		prepared(conn)
		requests(conn)
		must(conn.Close(ctx), "close")
	}
	db, err := sql.Open("pgx", "")
	must(err, "database/sql")
	statement, err := db.Prepare(count)
	must(err, "database/sql: prepare")
	for tenant := 1; tenant <= tenants; tenant++ {
		tx, err := db.Begin()
		must(err, "database/sql: begin")
		var found int
		must(tx.Stmt(statement).QueryRow(tenant).Scan(&found), "database/sql: count")
		must(tx.Commit(), "database/sql: commit")
		fmt.Println("database/sql", tenant, found)
	}
	fmt.Println("end 1")
}
