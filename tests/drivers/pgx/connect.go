package main

import (
	"context"
	"sync"

	"github.com/jackc/pgx/v5"
)

var open struct {
	sync.Mutex
	conns []*pgx.Conn
}

// connect takes the address from the environment, as pgx does by itself.
func connect(ctx context.Context, change ...func(*pgx.ConnConfig)) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig("application_name=drv_pgx connect_timeout=60")
	if err != nil {
		return nil, err
	}
	for _, f := range change {
		f(config)
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err == nil {
		open.Lock()
		open.conns = append(open.conns, conn)
		open.Unlock()
	}
	return conn, err
}

func connectAll(ctx context.Context, count int) ([]*pgx.Conn, error) {
	conns := make([]*pgx.Conn, count)
	for i := range conns {
		conn, err := connect(ctx)
		if err != nil {
			return nil, err
		}
		conns[i] = conn
	}
	return conns, nil
}

func closeAll() {
	open.Lock()
	defer open.Unlock()
	for _, conn := range open.conns {
		_ = conn.Close(context.Background())
	}
	open.conns = nil
}

// inParallel runs f for 0..count and gives the first error.
func inParallel(count int, f func(number int) error) error {
	results := make(chan error, count)
	for number := range count {
		go func() { results <- f(number) }()
	}
	var found error
	for range count {
		if err := <-results; err != nil && found == nil {
			found = err
		}
	}
	return found
}
