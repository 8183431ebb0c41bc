/*
 * pipelines.c
 *		libpq's pipeline mode: many Syncs, Flush, errors in the middle.
 *
 * What is sent stays below the socket buffers, so that these checks need no
 * event loop.
 */
#include "checks.h"

static bool
send_prepared(PGconn *conn, const char *name, const char *argument, Reason *why)
{
	EXPECT(PQsendQueryPrepared(conn, name, argument != NULL, &argument, NULL, NULL, 0) == 1, "%s", PQerrorMessage(conn));
	return true;
}

static bool
sync_point(PGconn *conn, Reason *why)
{
	EXPECT(PQpipelineSync(conn) == 1, "%s", PQerrorMessage(conn));
	return true;
}

/* In pipeline mode a NULL ends each statement's results. */
static bool
next_value(PGconn *conn, const char *expected, Reason *why)
{
	TRY(result_value(PQgetResult(conn), expected, why));
	EXPECT(PQgetResult(conn) == NULL, "a result too many");
	return true;
}

static bool
next_is(PGconn *conn, ExecStatusType status, Reason *why)
{
	TRY(result_is(PQgetResult(conn), status, why));
	if (status != PGRES_PIPELINE_SYNC)
		EXPECT(PQgetResult(conn) == NULL, "a result too many");
	return true;
}

static bool
many_syncs(Reason *why)
{
	PGconn	   *conn = session(why);

	TRY(conn);
	EXPECT(PQenterPipelineMode(conn) == 1, "%s", PQerrorMessage(conn));
	EXPECT(PQsendPrepare(conn, "add", "select $1::int + 1", 0, NULL) == 1, "%s", PQerrorMessage(conn));
	for (int i = 0; i < 200; i++)
	{
		char		text[16];

		snprintf(text, sizeof(text), "%d", i);
		TRY(send_prepared(conn, "add", text, why));
		if (i % 3 == 0)
			TRY(sync_point(conn, why));
	}
	TRY(sync_point(conn, why));

	TRY(next_is(conn, PGRES_COMMAND_OK, why));
	for (int i = 0; i < 200; i++)
	{
		char		text[16];

		snprintf(text, sizeof(text), "%d", i + 1);
		TRY(next_value(conn, text, why));
		if (i % 3 == 0)
			TRY(next_is(conn, PGRES_PIPELINE_SYNC, why));
	}
	TRY(next_is(conn, PGRES_PIPELINE_SYNC, why));
	EXPECT(PQexitPipelineMode(conn) == 1, "%s", PQerrorMessage(conn));
	TRY(expect_value(conn, "select 'simple again'", "simple again", why));
	return true;
}

static bool
flush_without_sync(Reason *why)
{
	PGconn	   *conn = session(why);
	PGconn	   *other = session(why);

	TRY(conn && other);
	TRY(run_sql(conn, "drop table if exists drv_libpq_flush; create table drv_libpq_flush (id int)", why));
	EXPECT(PQenterPipelineMode(conn) == 1, "%s", PQerrorMessage(conn));
	EXPECT(PQsendPrepare(conn, "put", "insert into drv_libpq_flush values ($1) returning id", 0, NULL) == 1,
		   "%s", PQerrorMessage(conn));
	for (int i = 0; i < 3; i++)
	{
		char		text[16];

		/* The answer must come before any Sync is sent. */
		snprintf(text, sizeof(text), "%d", i);
		TRY(send_prepared(conn, "put", text, why));
		EXPECT(PQsendFlushRequest(conn) == 1 && PQflush(conn) == 0, "%s", PQerrorMessage(conn));
		if (i == 0)
			TRY(next_is(conn, PGRES_COMMAND_OK, why));
		TRY(next_value(conn, text, why));
		/* No Sync yet, so nothing is committed. */
		TRY(expect_value(other, "select count(*) from drv_libpq_flush", "0", why));
	}
	TRY(sync_point(conn, why));
	TRY(next_is(conn, PGRES_PIPELINE_SYNC, why));
	TRY(expect_value(other, "select count(*) from drv_libpq_flush", "3", why));
	EXPECT(PQexitPipelineMode(conn) == 1, "%s", PQerrorMessage(conn));
	TRY(run_sql(conn, "drop table drv_libpq_flush", why));
	return true;
}

static bool
error_in_the_middle(Reason *why)
{
	PGconn	   *conn = session(why);

	TRY(conn);
	TRY(run_sql(conn, "drop table if exists drv_libpq_pipe; create table drv_libpq_pipe (id int primary key)", why));
	TRY(prepare(conn, "put", "insert into drv_libpq_pipe values ($1)", why));
	EXPECT(PQenterPipelineMode(conn) == 1, "%s", PQerrorMessage(conn));

	/* Up to the Sync it is one transaction: the error takes what came before. */
	TRY(send_prepared(conn, "put", "1", why));
	TRY(send_prepared(conn, "put", "1", why));
	TRY(send_prepared(conn, "put", "2", why));
	EXPECT(PQsendPrepare(conn, "never", "select 'never'", 0, NULL) == 1, "%s", PQerrorMessage(conn));
	TRY(sync_point(conn, why));
	/* After the Sync all goes on; the statement that was skipped is not there. */
	TRY(send_prepared(conn, "put", "3", why));
	TRY(sync_point(conn, why));
	TRY(send_prepared(conn, "never", NULL, why));
	TRY(sync_point(conn, why));
	EXPECT(PQsendPrepare(conn, "never", "select 'now'", 0, NULL) == 1, "%s", PQerrorMessage(conn));
	TRY(send_prepared(conn, "never", NULL, why));
	TRY(sync_point(conn, why));

	TRY(next_is(conn, PGRES_COMMAND_OK, why));
	TRY(result_error(PQgetResult(conn), "23505", why));
	EXPECT(PQgetResult(conn) == NULL, "a result too many");
	TRY(next_is(conn, PGRES_PIPELINE_ABORTED, why));
	TRY(next_is(conn, PGRES_PIPELINE_ABORTED, why));
	TRY(next_is(conn, PGRES_PIPELINE_SYNC, why));
	TRY(next_is(conn, PGRES_COMMAND_OK, why));
	TRY(next_is(conn, PGRES_PIPELINE_SYNC, why));
	TRY(result_error(PQgetResult(conn), "26000", why));
	EXPECT(PQgetResult(conn) == NULL, "a result too many");
	TRY(next_is(conn, PGRES_PIPELINE_SYNC, why));
	TRY(next_is(conn, PGRES_COMMAND_OK, why));
	TRY(next_value(conn, "now", why));
	TRY(next_is(conn, PGRES_PIPELINE_SYNC, why));
	EXPECT(PQexitPipelineMode(conn) == 1, "%s", PQerrorMessage(conn));
	TRY(expect_value(conn, "select string_agg(id::text, ',') from drv_libpq_pipe", "3", why));
	TRY(run_sql(conn, "drop table drv_libpq_pipe", why));
	return true;
}

static bool
transaction_over_syncs(Reason *why)
{
	PGconn	   *conn = session(why);

	TRY(conn);
	EXPECT(PQenterPipelineMode(conn) == 1, "%s", PQerrorMessage(conn));
	TRY(PQsendQueryParams(conn, "begin", 0, NULL, NULL, NULL, NULL, 0));
	TRY(sync_point(conn, why));
	TRY(PQsendQueryParams(conn, "select txid_current()::text", 0, NULL, NULL, NULL, NULL, 0));
	TRY(sync_point(conn, why));
	TRY(PQsendQueryParams(conn, "select (txid_current() = txid_current_if_assigned())::text", 0, NULL, NULL, NULL, NULL, 0));
	TRY(PQsendQueryParams(conn, "commit", 0, NULL, NULL, NULL, NULL, 0));
	/* A second transaction in the same segment. */
	TRY(PQsendQueryParams(conn, "select 'after'", 0, NULL, NULL, NULL, NULL, 0));
	TRY(sync_point(conn, why));
	TRY(sync_point(conn, why));

	TRY(next_is(conn, PGRES_COMMAND_OK, why));
	TRY(next_is(conn, PGRES_PIPELINE_SYNC, why));
	EXPECT(PQtransactionStatus(conn) == PQTRANS_INTRANS || PQtransactionStatus(conn) == PQTRANS_ACTIVE,
		   "status %d", (int) PQtransactionStatus(conn));
	TRY(next_is(conn, PGRES_TUPLES_OK, why));
	TRY(next_is(conn, PGRES_PIPELINE_SYNC, why));
	TRY(next_value(conn, "true", why));
	TRY(next_is(conn, PGRES_COMMAND_OK, why));
	TRY(next_value(conn, "after", why));
	TRY(next_is(conn, PGRES_PIPELINE_SYNC, why));
	TRY(next_is(conn, PGRES_PIPELINE_SYNC, why));
	EXPECT(PQexitPipelineMode(conn) == 1, "%s", PQerrorMessage(conn));
	EXPECT(PQtransactionStatus(conn) == PQTRANS_IDLE, "status %d", (int) PQtransactionStatus(conn));
	return true;
}

const Check pipeline_checks[] = {
	{"pipeline_many_syncs", many_syncs},
	{"pipeline_flush_without_sync", flush_without_sync},
	{"pipeline_error_in_the_middle", error_in_the_middle},
	{"pipeline_transaction_over_syncs", transaction_over_syncs},
	{NULL, NULL}
};
