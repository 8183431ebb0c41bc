package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const clients = 30

func preparedManyClients(ctx context.Context) error {
	texts := []string{"select 'a' || $1::int", "select 'b' || ($1::int + 1)", "select 'c' || ($1::int * 2)"}
	wanted := func(text, n int) string {
		return fmt.Sprintf("%c%d", 'a'+text, []int{n, n + 1, n * 2}[text])
	}
	return inParallel(clients, func(number int) error {
		conn, err := connect(ctx)
		if err != nil {
			return err
		}
		// Names of our own, which stand for other texts in each client.
		for i := range 3 {
			if _, err := conn.Prepare(ctx, fmt.Sprintf("s%d", i), texts[(number+i)%3]); err != nil {
				return err
			}
		}
		for turn := range 20 {
			n := number*1000 + turn
			step := func(q interface {
				QueryRow(context.Context, string, ...any) pgx.Row
			}) error {
				for i := range 3 {
					text := (number + i) % 3
					var byName, cached string
					if err := q.QueryRow(ctx, fmt.Sprintf("s%d", i), n).Scan(&byName); err != nil {
						return err
					}
					if err := q.QueryRow(ctx, texts[text], n).Scan(&cached); err != nil {
						return err
					}
					if byName != wanted(text, n) || cached != wanted(text, n) {
						return fmt.Errorf("client %d: wanted %s, got %s and %s", number, wanted(text, n), byName, cached)
					}
				}
				return nil
			}
			if turn%3 != 0 {
				err = step(conn)
			} else {
				err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return step(tx) })
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func preparedByName(ctx context.Context) error {
	conn, err := connect(ctx)
	if err != nil {
		return err
	}
	shape, err := conn.Prepare(ctx, "shape", "select $1::int8 as big, $2::text as words")
	if err != nil {
		return err
	}
	if len(shape.ParamOIDs) != 2 || shape.ParamOIDs[0] != 20 || len(shape.Fields) != 2 || shape.Fields[1].Name != "words" {
		return fmt.Errorf("described as %v %v", shape.ParamOIDs, shape.Fields)
	}
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	_, prepared := tx.Prepare(ctx, "inside", "select 7")
	return first(
		prepared,
		tx.Rollback(ctx),
		// What was prepared in a transaction outlives its rollback.
		wantValue(ctx, conn, 7, "inside"),
		conn.Deallocate(ctx, "inside"),
		wantState(execAll(ctx, conn, "execute inside"), "26000"),
		wantState(func() error { _, err := conn.Prepare(ctx, "bad", "selec"); return err }(), "42601"),
		func() error { _, err := conn.Prepare(ctx, "bad", "select 8"); return err }(),
		wantValue(ctx, conn, 8, "bad"),
	)
}

func preparedEvicted(ctx context.Context) error {
	// More texts than the cache holds: pgx deallocates the oldest ones.
	conn, err := connect(ctx, func(c *pgx.ConnConfig) { c.StatementCacheCapacity = 4 })
	if err != nil {
		return err
	}
	for turn := range 3 {
		for n := range 10 {
			if err := wantValue(ctx, conn, turn+n, fmt.Sprintf("select $1::int + %d", n), turn); err != nil {
				return err
			}
		}
	}
	return nil
}

func preparedUnknown(ctx context.Context) error {
	conn, err := connect(ctx)
	if err != nil {
		return err
	}
	unknown := conn.PgConn().ExecPrepared(ctx, "drv_pgx_unknown", nil, nil, nil).Read()
	_, described := conn.PgConn().Prepare(ctx, "known", "select $1::int + 1", nil)
	return first(
		wantState(unknown.Err, "26000"),
		described,
		wantValue(ctx, conn, 1, "select $1::int", 1),
		conn.DeallocateAll(ctx),
		wantState(conn.PgConn().ExecPrepared(ctx, "known", [][]byte{[]byte("1")}, nil, nil).Read().Err, "26000"),
		// pgx has emptied its own cache too.
		wantValue(ctx, conn, 2, "select $1::int", 2),
		execAll(ctx, conn, "discard all"),
		conn.DeallocateAll(ctx),
		wantValue(ctx, conn, 3, "select $1::int", 3),
	)
}

func queryExecModes(ctx context.Context) error {
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		err := inParallel(8, func(number int) error {
			conn, err := connect(ctx, func(c *pgx.ConnConfig) { c.DefaultQueryExecMode = mode })
			if err != nil {
				return err
			}
			for turn := range 10 {
				if err := wantValue(ctx, conn, number+turn, "select $1::int + $2::int", number, turn); err != nil {
					return err
				}
			}
			return wantValue(ctx, conn, "x", "select $1::text", "x")
		})
		if err != nil {
			return fmt.Errorf("%s: %w", mode, err)
		}
	}
	return nil
}

func driverPool(ctx context.Context) error {
	config, err := pgxpool.ParseConfig("application_name=drv_pgx pool_max_conns=20")
	if err != nil {
		return err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	return inParallel(60, func(number int) error {
		for turn := range 5 {
			var got int
			if err := pool.QueryRow(ctx, "select $1::int * 1000 + $2::int", number, turn).Scan(&got); err != nil {
				return err
			}
			if got != number*1000+turn {
				return fmt.Errorf("task %d got %d", number, got)
			}
		}
		return nil
	})
}

// schemaChange: pgx asks for a statement's columns once. It drops its statement when PostgreSQL refuses it (0A000), and
// gives that error to its caller once; a row of another shape than it was told is never right.
func schemaChange(ctx context.Context) error {
	const query = "select * from drv_pgx_shape where id = $1"
	other, err := connect(ctx)
	if err != nil {
		return err
	}
	conns, err := connectAll(ctx, 8)
	if err != nil {
		return err
	}
	read := func(conn *pgx.Conn) (string, error) {
		rows, err := conn.Query(ctx, query, 1)
		if err != nil {
			return "", err
		}
		maps, err := pgx.CollectRows(rows, pgx.RowToMap)
		return fmt.Sprint(maps), err
	}
	allSee := func(want string) error {
		for number, conn := range conns {
			got, err := read(conn)
			if err != nil {
				if err := wantState(err, "0A000"); err != nil {
					return fmt.Errorf("client %d: %w", number, err)
				}
				if got, err = read(conn); err != nil {
					return fmt.Errorf("client %d, second time: %w", number, err)
				}
			}
			if got != want {
				return fmt.Errorf("client %d: wanted %s, got %s", number, want, got)
			}
		}
		return nil
	}
	alter := func(change string) error { return execAll(ctx, other, "alter table drv_pgx_shape "+change) }
	return first(
		execAll(ctx, other, "drop table if exists drv_pgx_shape", "create table drv_pgx_shape (id int, v int)",
			"insert into drv_pgx_shape values (1, 10)"),
		allSee("[map[id:1 v:10]]"),
		allSee("[map[id:1 v:10]]"),
		alter("add column extra text default 'more'"),
		allSee("[map[extra:more id:1 v:10]]"),
		alter("alter column v type text using 'v' || v"),
		allSee("[map[extra:more id:1 v:v10]]"),
		alter("drop column extra"),
		allSee("[map[id:1 v:v10]]"),
		execAll(ctx, other, "drop table drv_pgx_shape"),
		func() error { _, err := read(conns[0]); return wantState(err, "42P01") }(),
	)
}

func typesAndNulls(ctx context.Context) error {
	conn, err := connect(ctx)
	if err != nil {
		return err
	}
	words := "ünïcødé \\ ' \""
	for turn := range 3 {
		var null *string
		var yes bool
		var big int64
		var text string
		var bytes []byte
		var list []*int32
		one, three := int32(1), int32(3)
		err := conn.QueryRow(ctx, "select $1::text, $2::bool, $3::int8, $4::text, $5::bytea, $6::int4[]",
			nil, true, int64(1)<<40, words, []byte{0, 255, 0}, []*int32{&one, nil, &three},
		).Scan(&null, &yes, &big, &text, &bytes, &list)
		if err != nil {
			return err
		}
		good := null == nil && yes && big == int64(1)<<40 && text == words && string(bytes) == "\x00\xff\x00" &&
			len(list) == 3 && *list[0] == 1 && list[1] == nil && *list[2] == 3
		if !good {
			return fmt.Errorf("turn %d: %v %v %v %q %v %v", turn, null, yes, big, text, bytes, list)
		}
	}
	if err := wantState(conn.QueryRow(ctx, "select $1::int", "not a number").Scan(new(int)), "22P02"); err != nil {
		return err
	}
	return wantValue(ctx, conn, "usable", "select 'usable'")
}
