package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
)

func commitRollback(ctx context.Context) error {
	conns, err := connectAll(ctx, 2)
	if err != nil {
		return err
	}
	one, two := conns[0], conns[1]
	if err := execAll(ctx, two, "drop table if exists drv_pgx_tx", "create table drv_pgx_tx (id int primary key)"); err != nil {
		return err
	}
	tx, err := one.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.Serializable})
	if err != nil {
		return err
	}
	_, inserted := tx.Exec(ctx, "insert into drv_pgx_tx values ($1)", 1)
	if err := first(inserted,
		wantValue(ctx, one, "serializable", "show transaction_isolation"),
		wantValue(ctx, two, 0, "select count(*) from drv_pgx_tx"),
		tx.Commit(ctx),
		wantValue(ctx, two, 1, "select count(*) from drv_pgx_tx"),
	); err != nil {
		return err
	}
	tx, err = one.Begin(ctx)
	if err != nil {
		return err
	}
	_, deleted := tx.Exec(ctx, "delete from drv_pgx_tx")
	return first(deleted, tx.Rollback(ctx),
		wantValue(ctx, two, 1, "select count(*) from drv_pgx_tx"),
		wantValue(ctx, one, "read committed", "show transaction_isolation"),
		execAll(ctx, two, "drop table drv_pgx_tx"))
}

func nestedTransactions(ctx context.Context) error {
	conn, err := connect(ctx)
	if err != nil {
		return err
	}
	if err := execAll(ctx, conn, "drop table if exists drv_pgx_nest", "create table drv_pgx_nest (id int primary key)"); err != nil {
		return err
	}
	put := func(tx pgx.Tx, id int) error {
		_, err := tx.Exec(ctx, "insert into drv_pgx_nest values ($1)", id)
		return err
	}
	err = pgx.BeginFunc(ctx, conn, func(outer pgx.Tx) error {
		taken := func() error {
			return pgx.BeginFunc(ctx, outer, func(inner pgx.Tx) error { return first(put(inner, 2), put(inner, 1)) })
		}
		return first(
			put(outer, 1),
			wantState(taken(), "23505"),
			pgx.BeginFunc(ctx, outer, func(inner pgx.Tx) error { return put(inner, 3) }),
		)
	})
	return first(err,
		wantValue(ctx, conn, "1,3", "select string_agg(id::text, ',' order by id) from drv_pgx_nest"),
		execAll(ctx, conn, "drop table drv_pgx_nest"))
}

func errorsAndAfter(ctx context.Context) error {
	conn, err := connect(ctx)
	if err != nil {
		return err
	}
	constraint := func(err error) error {
		var pgErr *pgconn.PgError
		if !errors.As(err, &pgErr) || pgErr.ConstraintName != "drv_pgx_positive" {
			return fmt.Errorf("no constraint name: %v", err)
		}
		return nil
	}
	_, divided := conn.Exec(ctx, "select 1 / $1::int", 0)
	if err := first(
		wantState(divided, "22012"),
		wantState(execAll(ctx, conn, "selec 1"), "42601"),
		wantState(execAll(ctx, conn, "select * from drv_pgx_no_such"), "42P01"),
		execAll(ctx, conn, "drop table if exists drv_pgx_err",
			"create table drv_pgx_err (id int constraint drv_pgx_positive check (id > 0))"),
		constraint(execAll(ctx, conn, "insert into drv_pgx_err values (-1)")),
		wantValue(ctx, conn, 1, "select 1 / $1::int", 1),
	); err != nil {
		return err
	}
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	_, divided = tx.Exec(ctx, "select 1 / $1::int", 0)
	_, refused := tx.Exec(ctx, "select 1 / $1::int", 1)
	committed := tx.Commit(ctx)
	return first(wantState(divided, "22012"), wantState(refused, "25P02"),
		expect(errors.Is(committed, pgx.ErrTxCommitRollback), "commit of a failed transaction: %v", committed),
		wantValue(ctx, conn, 1, "select 1 / $1::int", 1),
		execAll(ctx, conn, "drop table drv_pgx_err"))
}

func leftInTransaction(ctx context.Context) error {
	keeper, err := connect(ctx)
	if err != nil {
		return err
	}
	if err := execAll(ctx, keeper, "drop table if exists drv_pgx_left", "create table drv_pgx_left (id int)"); err != nil {
		return err
	}
	for range 8 {
		conn, err := connect(ctx)
		if err != nil {
			return err
		}
		if err := first(execAll(ctx, conn, "begin", "insert into drv_pgx_left values (1)", "lock table drv_pgx_left"),
			conn.Close(ctx)); err != nil {
			return err
		}
	}
	return first(
		execAll(ctx, keeper, "begin", "set local lock_timeout = '5s'", "lock table drv_pgx_left"),
		wantValue(ctx, keeper, 0, "select count(*) from drv_pgx_left"),
		execAll(ctx, keeper, "commit", "drop table drv_pgx_left"))
}

func notices(ctx context.Context) error {
	var got, notMine []string
	into := func(list *[]string) func(*pgx.ConnConfig) {
		return func(c *pgx.ConnConfig) {
			c.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { *list = append(*list, n.Severity+" "+n.Message) }
		}
	}
	conn, err := connect(ctx, into(&got))
	if err != nil {
		return err
	}
	other, err := connect(ctx, into(&notMine))
	if err != nil {
		return err
	}
	return first(
		execAll(ctx, conn, "do $$ begin for i in 1..50 loop raise notice 'note %', i; end loop; end $$"),
		execAll(ctx, other, "select 1"),
		func() error {
			return expect(len(got) == 50 && got[49] == "NOTICE note 50" && len(notMine) == 0, "got %v, the other %v", got, notMine)
		}())
}

// sleepers run a short sleep each; the result comes by the channel, nil if it slept to its end.
func sleepers(ctx context.Context, count int) (chan error, error) {
	conns, err := connectAll(ctx, count)
	if err != nil {
		return nil, err
	}
	results := make(chan error, count)
	for _, conn := range conns {
		go func() { results <- wantValue(ctx, conn, "slept", "select 'slept' from pg_sleep(0.8)") }()
	}
	return results, nil
}

func cancelOnlyThatQuery(ctx context.Context) error {
	target, err := connect(ctx)
	if err != nil {
		return err
	}
	others, err := sleepers(ctx, 3)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		_, err := target.Exec(ctx, "select pg_sleep(20)")
		done <- err
	}()
	var ended error
	for ended == nil {
		select {
		case ended = <-done:
			if ended == nil {
				return errors.New("the sleep came to its end")
			}
		case <-time.After(100 * time.Millisecond):
			if err := target.PgConn().CancelRequest(ctx); err != nil {
				return err
			}
		}
	}
	if err := wantState(ended, "57014"); err != nil {
		return err
	}
	// A cancel for a session that runs nothing hits nobody.
	for range 3 {
		if err := target.PgConn().CancelRequest(ctx); err != nil {
			return err
		}
	}
	time.Sleep(50 * time.Millisecond)
	for range 3 {
		if err := <-others; err != nil {
			return err
		}
	}
	return wantValue(ctx, target, "usable", "select 'usable'")
}

// cancelByContext: with this handler pgx answers a context's end by a CancelRequest and keeps the connection.
func cancelByContext(ctx context.Context) error {
	conn, err := connect(ctx, func(c *pgx.ConnConfig) {
		c.BuildContextWatcherHandler = func(pg *pgconn.PgConn) ctxwatch.Handler {
			return &pgconn.CancelRequestContextWatcherHandler{Conn: pg, DeadlineDelay: 10 * time.Second}
		}
	})
	if err != nil {
		return err
	}
	for range 3 {
		short, stop := context.WithTimeout(ctx, 200*time.Millisecond)
		_, err := conn.Exec(short, "select pg_sleep($1)", 20)
		stop()
		if err := first(wantState(err, "57014"), wantValue(ctx, conn, "usable", "select 'usable'")); err != nil {
			return err
		}
	}
	return nil
}

// rowsClosedEarly: pgx reads what is left and throws it away.
func rowsClosedEarly(ctx context.Context) error {
	conn, err := connect(ctx)
	if err != nil {
		return err
	}
	for range 3 {
		rows, err := conn.Query(ctx, "select i, repeat('x', 100) from generate_series(1, $1) i", 30000)
		if err != nil {
			return err
		}
		seen := 0
		for rows.Next() && seen < 10 {
			seen++
		}
		rows.Close()
		if err := first(expect(seen == 10, "%d rows", seen), rows.Err(), wantValue(ctx, conn, "usable", "select 'usable'")); err != nil {
			return err
		}
	}
	return nil
}
