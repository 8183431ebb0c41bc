package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const large = 6 << 20

func batches(ctx context.Context) error {
	return inParallel(clients, func(number int) error {
		conn, err := connect(ctx)
		if err != nil {
			return err
		}
		for turn := range 4 {
			batch := &pgx.Batch{}
			for i := range 40 {
				want := number*1000 + turn*100 + i
				batch.Queue(fmt.Sprintf("select $1::int + %d", i%4), want-i%4).QueryRow(func(row pgx.Row) error {
					var got int
					if err := row.Scan(&got); err != nil {
						return err
					}
					return expect(got == want, "wanted %d, got %d", want, got)
				})
			}
			if err := conn.SendBatch(ctx, batch).Close(); err != nil {
				return fmt.Errorf("client %d: %w", number, err)
			}
		}
		return nil
	})
}

func batchError(ctx context.Context) error {
	conn, err := connect(ctx)
	if err != nil {
		return err
	}
	if err := execAll(ctx, conn, "drop table if exists drv_pgx_batch", "create table drv_pgx_batch (id int primary key)"); err != nil {
		return err
	}
	send := func(ids ...int) error {
		batch := &pgx.Batch{}
		for _, id := range ids {
			batch.Queue("insert into drv_pgx_batch values ($1)", id)
		}
		return conn.SendBatch(ctx, batch).Close()
	}
	// A batch is one transaction; a statement that can't be prepared stops it before anything ran.
	bad := &pgx.Batch{}
	bad.Queue("insert into drv_pgx_batch values ($1)", 100)
	bad.Queue("selec 1")
	return first(
		send(1, 2, 3),
		wantState(send(4, 5, 1, 6), "23505"),
		wantValue(ctx, conn, 3, "select count(*) from drv_pgx_batch"),
		wantState(conn.SendBatch(ctx, bad).Close(), "42601"),
		wantValue(ctx, conn, 3, "select count(*) from drv_pgx_batch"),
		send(4, 5),
		wantValue(ctx, conn, 5, "select count(*) from drv_pgx_batch"),
		execAll(ctx, conn, "drop table drv_pgx_batch"))
}

// pipeline is pgconn's own: several Syncs under way at once.
func pipeline(ctx context.Context) error {
	conn, err := connect(ctx)
	if err != nil {
		return err
	}
	pipe := conn.PgConn().StartPipeline(ctx)
	pipe.SendPrepare("drv_add", "select $1::int + 1", nil)
	for i := range 50 {
		pipe.SendQueryPrepared("drv_add", [][]byte{fmt.Append(nil, i)}, nil, nil)
		if i == 25 {
			pipe.SendQueryParams("select 1 / 0", nil, nil, nil, nil)
			pipe.SendQueryPrepared("drv_add", [][]byte{[]byte("0")}, nil, nil)
		}
		if err := pipe.Sync(); err != nil {
			return err
		}
	}
	var rows []string
	syncs, failures := 0, 0
	for {
		result, err := pipe.GetResults()
		if err != nil {
			failures++
			if err := wantState(err, "22012"); err != nil {
				return err
			}
			continue
		}
		if result == nil {
			break
		}
		switch result := result.(type) {
		case *pgconn.PipelineSync:
			syncs++
		case *pgconn.ResultReader:
			read := result.Read()
			for _, row := range read.Rows {
				rows = append(rows, string(row[0]))
			}
			if read.Err != nil {
				failures++
				if err := wantState(read.Err, "22012"); err != nil {
					return err
				}
			}
		}
	}
	if err := pipe.Close(); err != nil {
		return err
	}
	return first(
		expect(len(rows) == 50 && rows[49] == "50", "%d rows: %v", len(rows), rows),
		expect(failures == 1 && syncs == 50, "%d failures, %d syncs", failures, syncs),
		wantValue(ctx, conn, "usable", "select 'usable'"))
}

func copyInOut(ctx context.Context) error {
	conn, err := connect(ctx)
	if err != nil {
		return err
	}
	if err := execAll(ctx, conn, "drop table if exists drv_pgx_copy", "create table drv_pgx_copy (id int, v text)"); err != nil {
		return err
	}
	rows := make([][]any, 20000)
	for i := range rows {
		rows[i] = []any{i, fmt.Sprintf("row %d", i)}
	}
	rows[7][1] = nil
	count, err := conn.CopyFrom(ctx, pgx.Identifier{"drv_pgx_copy"}, []string{"id", "v"}, pgx.CopyFromRows(rows))
	if err != nil {
		return err
	}
	var out bytes.Buffer
	_, err = conn.PgConn().CopyTo(ctx, &out, "copy (select * from drv_pgx_copy order by id) to stdout")
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if err := first(err,
		expect(count == 20000 && len(lines) == 20000, "%d rows in, %d out", count, len(lines)),
		expect(lines[7] == "7\t\\N" && lines[19999] == "19999\trow 19999", "%q %q", lines[7], lines[len(lines)-1])); err != nil {
		return err
	}
	tag, err := conn.PgConn().CopyFrom(ctx, &out, "copy drv_pgx_copy from stdin")
	return first(err, expect(tag.RowsAffected() == 20000, "%d rows back in", tag.RowsAffected()),
		wantValue(ctx, conn, 40000, "select count(*) from drv_pgx_copy"),
		execAll(ctx, conn, "drop table drv_pgx_copy"))
}

type failingReader struct{ left int }

func (r *failingReader) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, errors.New("gave up")
	}
	r.left--
	return copy(p, "1\n"), nil
}

func copyFails(ctx context.Context) error {
	conn, err := connect(ctx)
	if err != nil {
		return err
	}
	if err := execAll(ctx, conn, "drop table if exists drv_pgx_copy2", "create table drv_pgx_copy2 (id int)"); err != nil {
		return err
	}
	_, gaveUp := conn.PgConn().CopyFrom(ctx, &failingReader{left: 100}, "copy drv_pgx_copy2 from stdin")
	_, refused := conn.PgConn().CopyFrom(ctx, strings.NewReader(strings.Repeat("1\nno number\n", 100000)), "copy drv_pgx_copy2 from stdin")
	_, noTable := conn.CopyFrom(ctx, pgx.Identifier{"drv_pgx_no_such"}, []string{"id"}, pgx.CopyFromRows([][]any{{1}}))
	return first(
		expect(gaveUp != nil, "no error"),
		wantState(refused, "22P02"),
		wantState(noTable, "42P01"),
		wantValue(ctx, conn, 0, "select count(*) from drv_pgx_copy2"),
		execAll(ctx, conn, "drop table drv_pgx_copy2"))
}

func largeValues(ctx context.Context) error {
	conn, err := connect(ctx)
	if err != nil {
		return err
	}
	sent := make([]byte, large)
	for i := range sent {
		sent[i] = byte(i*7 + i/4096)
	}
	words := strings.Repeat("abcdefghijklm", large/13)
	for range 2 {
		var back []byte
		if err := conn.QueryRow(ctx, "select $1::bytea", sent).Scan(&back); err != nil {
			return err
		}
		if err := first(expect(bytes.Equal(sent, back), "bytes came back changed"),
			wantValue(ctx, conn, words, "select $1::text", words),
			wantValue(ctx, conn, len(words), "select length('"+words+"')")); err != nil {
			return fmt.Errorf("%.200s", err)
		}
	}
	return nil
}
