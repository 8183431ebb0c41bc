/*
 * cancels.c
 *		A cancel hits the query it was meant for, and no other.
 */
#include "checks.h"

/*
 * Cancels until the query has ended: one that comes before the query has
 * begun is lost by right.
 */
static bool
cancel_until_done(PGconn *conn, Reason *why)
{
	PGcancel   *cancel = PQgetCancel(conn);
	char		problem[256] = "";
	bool		sent = true;

	for (int tries = 0; tries < 50 && sent; tries++)
	{
		pause_ms(60);
		sent = PQcancel(cancel, problem, sizeof(problem));
		pause_ms(20);
		if (PQconsumeInput(conn) == 0 || !PQisBusy(conn))
			break;
	}
	PQfreeCancel(cancel);
	EXPECT(sent, "PQcancel: %s", problem);
	EXPECT(!PQisBusy(conn), "still running after 50 cancels");
	TRY(result_error(PQgetResult(conn), "57014", why));
	EXPECT(PQgetResult(conn) == NULL, "a result too many");
	return true;
}

static bool
only_that_query(Reason *why)
{
	PGconn	   *target = session(why);
	PGconn	   *others[3];

	TRY(target);
	for (int i = 0; i < 3; i++)
	{
		TRY(others[i] = session(why));
		EXPECT(PQsendQuery(others[i], "select 'slept' from pg_sleep(0.6)") == 1, "%s", PQerrorMessage(others[i]));
	}
	EXPECT(PQsendQuery(target, "select pg_sleep(20)") == 1, "%s", PQerrorMessage(target));
	TRY(cancel_until_done(target, why));
	for (int i = 0; i < 3; i++)
	{
		TRY(result_value(PQgetResult(others[i]), "slept", why));
		EXPECT(PQgetResult(others[i]) == NULL, "a result too many");
	}
	TRY(expect_value(target, "select 'usable'", "usable", why));
	return true;
}

static bool
in_transaction(Reason *why)
{
	PGconn	   *conn = session(why);

	TRY(conn);
	TRY(prepare(conn, "sleep", "select pg_sleep($1)", why));
	TRY(run_sql(conn, "begin; savepoint here", why));
	EXPECT(PQsendQueryPrepared(conn, "sleep", 1, (const char *const[]){"20"}, NULL, NULL, 0) == 1,
		   "%s", PQerrorMessage(conn));
	TRY(cancel_until_done(conn, why));
	TRY(expect_error(conn, "select 1", "25P02", why));
	TRY(run_sql(conn, "rollback to here", why));
	TRY(expect_value(conn, "select 'usable'", "usable", why));
	TRY(run_sql(conn, "commit", why));
	return true;
}

/* The canceller's own server has long gone to others. */
static bool
idle_hits_nobody(Reason *why)
{
	PGconn	   *idle = session(why);
	PGconn	   *others[4];
	PGcancel   *cancel;

	TRY(idle);
	TRY(expect_value(idle, "select 1", "1", why));
	for (int i = 0; i < 4; i++)
	{
		TRY(others[i] = session(why));
		EXPECT(PQsendQuery(others[i], "select 'slept' from pg_sleep(0.4)") == 1, "%s", PQerrorMessage(others[i]));
	}
	cancel = PQgetCancel(idle);
	for (int i = 0; i < 5; i++)
	{
		char		problem[256];
		bool		sent;

		pause_ms(30);
		sent = PQcancel(cancel, problem, sizeof(problem));
		EXPECT(sent, "PQcancel: %s", problem);
	}
	PQfreeCancel(cancel);
	for (int i = 0; i < 4; i++)
		TRY(result_value(PQgetResult(others[i]), "slept", why));
	TRY(expect_value(idle, "select 'usable'", "usable", why));
	return true;
}

/* COPY that waits for its client's data can be cancelled too. */
static bool
during_copy(Reason *why)
{
	PGconn	   *conn = session(why);
	PGcancel   *cancel;
	char		problem[256];
	bool		sent;

	TRY(conn);
	TRY(run_sql(conn, "drop table if exists drv_libpq_cancel; create table drv_libpq_cancel (id int)", why));
	TRY(result_is(PQexec(conn, "copy drv_libpq_cancel from stdin"), PGRES_COPY_IN, why));
	EXPECT(PQputCopyData(conn, "1\n", 2) == 1 && PQflush(conn) == 0, "%s", PQerrorMessage(conn));
	cancel = PQgetCancel(conn);
	sent = PQcancel(cancel, problem, sizeof(problem));
	PQfreeCancel(cancel);
	EXPECT(sent, "PQcancel: %s", problem);
	pause_ms(50);
	/* The server sees the cancel with the next data, or has seen it already. */
	(void) PQputCopyData(conn, "2\n", 2);
	(void) PQputCopyEnd(conn, NULL);
	TRY(result_error(PQgetResult(conn), "57014", why));
	EXPECT(PQgetResult(conn) == NULL, "a result too many");
	TRY(expect_value(conn, "select count(*) from drv_libpq_cancel", "0", why));
	TRY(run_sql(conn, "drop table drv_libpq_cancel", why));
	return true;
}

const Check cancel_checks[] = {
	{"cancel_only_that_query", only_that_query},
	{"cancel_in_transaction", in_transaction},
	{"cancel_idle_hits_nobody", idle_hits_nobody},
	{"cancel_during_copy", during_copy},
	{NULL, NULL}
};
