// A pool of pgx under load, while the poolers behind its address are drained. Each client adds rows,
// each in a transaction or alone, until it is told to stop by SIGTERM. Then one line of JSON says how many
// rows were confirmed, how often a connection had ended with 57P01 before something began, and what else
// went wrong.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	clients = 100
	pause   = 100 * time.Millisecond
	insert  = "insert into drained values ($1, $2)"
	count   = "select count(*) from drained where client = $1 and number = $2"
)

type tally struct {
	Confirmed int      `json:"confirmed"`
	Moved     int      `json:"moved"`
	Problems  []string `json:"problems"`
}

var ctx = context.Background()

// Whether the pooler has ended the connection.
func ended(err error) bool {
	var told *pgconn.PgError
	return errors.As(err, &told) && told.Code == "57P01"
}

// Adds a row alone. True if nothing of it began.
func alone(pool *pgxpool.Pool, client string, number int) (bool, error) {
	_, err := pool.Exec(ctx, insert, client, number)
	return ended(err), err
}

// Adds a row in a transaction, which is not ended once it has begun.
func inTransaction(pool *pgxpool.Pool, client string, number int) (bool, error) {
	transaction, err := pool.Begin(ctx)
	if err != nil {
		return ended(err), err
	}
	if _, err = transaction.Exec(ctx, insert, client, number); err != nil {
		transaction.Rollback(ctx)
		return false, fmt.Errorf("in a transaction: %w", err)
	}
	return false, transaction.Commit(ctx)
}

// Whether a row is there.
func find(pool *pgxpool.Pool, client string, number int, moved *int) (found int, err error) {
	for {
		err = pool.QueryRow(ctx, count, client, number).Scan(&found)
		if err == nil || !ended(err) {
			return found, err
		}
		*moved++
	}
}

func (own *tally) work(pool *pgxpool.Pool, client string, over <-chan struct{}) {
	problem := func(err error) { own.Problems = append(own.Problems, client+": "+err.Error()) }
	for number := 1; ; number++ {
		select {
		case <-over:
			return
		case <-time.After(pause):
		}
		add := alone
		if number%2 == 0 {
			add = inTransaction
		}
		for {
			untouched, err := add(pool, client, number)
			if err == nil {
				own.Confirmed++
				break
			}
			if !untouched {
				problem(err)
				break
			}
			own.Moved++
			if found, err := find(pool, client, number, &own.Moved); err != nil || found > 0 {
				problem(fmt.Errorf("%d rows of a statement that was refused, %v", found, err))
			}
		}
	}
}

func main() {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	config, err := pgxpool.ParseConfig(fmt.Sprintf("pool_max_conns=%d pool_min_conns=%d", clients, clients))
	if err == nil {
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
	}
	pool, failed := pgxpool.NewWithConfig(ctx, config)
	if err = errors.Join(err, failed); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	over := make(chan struct{})
	tallies := make([]tally, clients)
	var all sync.WaitGroup
	for index := range tallies {
		all.Go(func() { tallies[index].work(pool, fmt.Sprintf("pgx %d", index), over) })
	}
	<-stop
	close(over)
	all.Wait()
	sum := tally{Problems: []string{}}
	for _, own := range tallies {
		sum.Confirmed += own.Confirmed
		sum.Moved += own.Moved
		sum.Problems = append(sum.Problems, own.Problems...)
	}
	json.NewEncoder(os.Stdout).Encode(sum)
}
