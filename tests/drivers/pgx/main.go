// Checks of pgx v5 through whatever server the PG* environment names. By default pgx prepares every statement under
// a name made from its text, describes it once, and keeps it for the connection's life.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A check that hangs must fail under its own name, before the harness gives up on the whole program.
const checkTimeMax = 120 * time.Second

type check struct {
	name string
	run  func(context.Context) error
}

var checks = []check{
	{"prepared_30_clients_cached", preparedManyClients},
	{"prepared_by_name", preparedByName},
	{"prepared_evicted", preparedEvicted},
	{"prepared_unknown_and_deallocate", preparedUnknown},
	{"query_exec_modes", queryExecModes},
	{"driver_pool", driverPool},
	{"schema_change", schemaChange},
	{"commit_rollback", commitRollback},
	{"nested_transactions", nestedTransactions},
	{"errors", errorsAndAfter},
	{"left_in_transaction", leftInTransaction},
	{"batch", batches},
	{"batch_error", batchError},
	{"pipeline", pipeline},
	{"copy_in_out", copyInOut},
	{"copy_fails", copyFails},
	{"large_values", largeValues},
	{"notices", notices},
	{"types_and_nulls", typesAndNulls},
	{"cancel_only_that_query", cancelOnlyThatQuery},
	{"cancel_by_context", cancelByContext},
	{"rows_closed_early", rowsClosedEarly},
}

func main() {
	failed := false
	for _, c := range checks {
		if len(os.Args) > 1 && os.Args[1] != c.name {
			continue
		}
		began := time.Now()
		if err := runOne(c); err != nil {
			failed = true
			fmt.Printf("not ok %s: %s\n", c.name, strings.ReplaceAll(err.Error(), "\n", " "))
		} else {
			fmt.Printf("ok %s\n", c.name)
		}
		if os.Getenv("DRIVERS_TIMES") != "" {
			fmt.Fprintf(os.Stderr, "# %s %.2f s\n", c.name, time.Since(began).Seconds())
		}
	}
	if failed {
		os.Exit(1)
	}
}

func runOne(c check) (err error) {
	ctx, stop := context.WithTimeout(context.Background(), checkTimeMax)
	defer stop()
	// Connections of this check end with it, however it ends.
	defer closeAll()
	defer func() {
		if problem := recover(); problem != nil {
			err = fmt.Errorf("panic: %v", problem)
		}
	}()
	return c.run(ctx)
}

// expect makes a check's assertions one line each.
func expect(condition bool, format string, args ...any) error {
	if condition {
		return nil
	}
	return fmt.Errorf(format, args...)
}

func wantState(err error, state string) error {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		return fmt.Errorf("wanted SQLSTATE %s, got %v", state, err)
	}
	return expect(pgErr.Code == state, "wanted SQLSTATE %s, got %s: %s", state, pgErr.Code, pgErr.Message)
}

func valueOf[T comparable](ctx context.Context, conn *pgx.Conn, sql string, args ...any) (T, error) {
	var got T
	err := conn.QueryRow(ctx, sql, args...).Scan(&got)
	return got, err
}

func wantValue[T comparable](ctx context.Context, conn *pgx.Conn, want T, sql string, args ...any) error {
	got, err := valueOf[T](ctx, conn, sql, args...)
	if err != nil {
		return fmt.Errorf("%.60s: %w", sql, err)
	}
	return expect(got == want, "%.60s: wanted %v, got %v", sql, want, got)
}

func execAll(ctx context.Context, conn *pgx.Conn, statements ...string) error {
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%.60s: %w", sql, err)
		}
	}
	return nil
}

// first gives the first error, so that a row of expectations reads as one.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
