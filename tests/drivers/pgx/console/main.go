// Reads the console with pgx's defaults: statements cached under names, results in binary format.
package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib"
)

func must(err error, what string) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "pgx: %s: %v\n", what, err)
		os.Exit(1)
	}
}

func main() {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, "")
	must(err, "connect")
	for range 2 {
		for _, table := range os.Args[1:] {
			rows, err := conn.Query(ctx, "show "+table)
			must(err, table)
			found, err := pgx.CollectRows(rows, pgx.RowToMap)
			must(err, table)
			fmt.Println(table, len(found))
		}
	}
	must(conn.Ping(ctx), "ping")
	tx, err := conn.Begin(ctx)
	must(err, "begin")
	var active string
	must(tx.QueryRow(ctx, "show state").Scan(&active, nil), "show state")
	must(tx.Commit(ctx), "commit")
	_, err = conn.Exec(ctx, "pause $1", "postgres")
	must(err, "pause")
	_, err = conn.Exec(ctx, "resume $1", "postgres")
	must(err, "resume")
	if _, err = conn.Exec(ctx, "show nothing"); err == nil {
		must(fmt.Errorf("no error"), "show nothing")
	}
	must(conn.Close(ctx), "close")
	db, err := sql.Open("pgx", "")
	must(err, "database/sql")
	must(db.Ping(), "database/sql: ping")
	var version string
	must(db.QueryRow("show version").Scan(&version), "database/sql")
	fmt.Println("end 1")
}
