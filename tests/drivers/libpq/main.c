/*
 * main.c
 *		Runs every check in turn, one line of output each.
 */
#include "checks.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

#define SESSIONS_MAX 256

/* Sessions of the check that runs now; session() is called from threads too. */
static PGconn *open_sessions[SESSIONS_MAX];
static int	open_count;
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;

/* Notices of "drop table if exists" are no news; the notices check sets its own receiver. */
static void
drop_notice(void *argument, const char *message)
{
	(void) argument;
	(void) message;
}

PGconn *
session(Reason *why)
{
	PGconn	   *conn = PQconnectdb("application_name=drv_libpq connect_timeout=60");

	if (PQstatus(conn) != CONNECTION_OK)
	{
		snprintf(why->text, WHY_SIZE, "connect: %s", PQerrorMessage(conn));
		PQfinish(conn);
		return NULL;
	}
	PQsetNoticeProcessor(conn, drop_notice, NULL);
	pthread_mutex_lock(&open_lock);
	if (open_count == SESSIONS_MAX)
		abort();				/* a check of ours opens too many */
	open_sessions[open_count++] = conn;
	pthread_mutex_unlock(&open_lock);
	return conn;
}

static void
close_sessions(void)
{
	while (open_count > 0)
		PQfinish(open_sessions[--open_count]);
}

bool
result_is(PGresult *result, ExecStatusType status, Reason *why)
{
	bool		good = result != NULL && PQresultStatus(result) == status;

	if (!good)
		snprintf(why->text, WHY_SIZE, "wanted %s, got %s: %s", PQresStatus(status),
				 result ? PQresStatus(PQresultStatus(result)) : "no result",
				 result ? PQresultErrorMessage(result) : "");
	PQclear(result);
	return good;
}

bool
result_value(PGresult *result, const char *expected, Reason *why)
{
	const char *got;
	bool		good;

	if (result == NULL || PQresultStatus(result) != PGRES_TUPLES_OK)
		return result_is(result, PGRES_TUPLES_OK, why);
	if (PQntuples(result) != 1)
		got = "not one row";
	else
		got = PQgetisnull(result, 0, 0) ? "NULL" : PQgetvalue(result, 0, 0);
	good = strcmp(got, expected) == 0;
	if (!good)
		snprintf(why->text, WHY_SIZE, "wanted value \"%.100s\", got \"%.100s\"", expected, got);
	PQclear(result);
	return good;
}

bool
result_error(PGresult *result, const char *sqlstate, Reason *why)
{
	const char *got = result ? PQresultErrorField(result, PG_DIAG_SQLSTATE) : NULL;
	bool		good = got != NULL && strcmp(got, sqlstate) == 0;

	if (!good)
		snprintf(why->text, WHY_SIZE, "wanted error %s, got %s: %s", sqlstate,
				 got ? got : (result ? PQresStatus(PQresultStatus(result)) : "no result"),
				 result ? PQresultErrorMessage(result) : "");
	PQclear(result);
	return good;
}

bool
run_sql(PGconn *conn, const char *sql, Reason *why)
{
	PGresult   *result = PQexec(conn, sql);

	if (PQresultStatus(result) == PGRES_TUPLES_OK)
	{
		PQclear(result);
		return true;
	}
	return result_is(result, PGRES_COMMAND_OK, why);
}

bool
expect_value(PGconn *conn, const char *sql, const char *expected, Reason *why)
{
	return result_value(PQexec(conn, sql), expected, why);
}

bool
expect_error(PGconn *conn, const char *sql, const char *sqlstate, Reason *why)
{
	return result_error(PQexec(conn, sql), sqlstate, why);
}

bool
prepare(PGconn *conn, const char *name, const char *sql, Reason *why)
{
	return result_is(PQprepare(conn, name, sql, 0, NULL), PGRES_COMMAND_OK, why);
}

PGresult *
exec_prepared(PGconn *conn, const char *name, int count, const char *a, const char *b)
{
	const char *values[2] = {a, b};

	return PQexecPrepared(conn, name, count, values, NULL, NULL, 0);
}

void
pause_ms(int ms)
{
	struct timespec wait = {ms / 1000, (ms % 1000) * 1000000L};

	nanosleep(&wait, NULL);
}

/* Returns how many of the checks failed. */
static int
run_all(const Check *check)
{
	int			failed = 0;

	for (; check->name != NULL; check++)
	{
		Reason		why = {"no reason given"};
		bool		good = check->run(&why);

		close_sessions();
		if (good)
			printf("ok %s\n", check->name);
		else
		{
			why.text[strcspn(why.text, "\n")] = '\0';
			printf("not ok %s: %s\n", check->name, why.text);
			failed++;
		}
		fflush(stdout);
	}
	return failed;
}

int
main(void)
{
	int			failed = 0;

	signal(SIGPIPE, SIG_IGN);
	failed += run_all(statement_checks);
	failed += run_all(transaction_checks);
	failed += run_all(transfer_checks);
	failed += run_all(pipeline_checks);
	failed += run_all(cancel_checks);
	return failed == 0 ? 0 : 1;
}
