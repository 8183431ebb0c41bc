/*
 * transactions.c
 *		Transactions, savepoints, errors, notices, and what a closed session leaves.
 */
#include "checks.h"

static bool
commit_and_rollback(Reason *why)
{
	PGconn	   *one = session(why);
	PGconn	   *two = session(why);

	TRY(one && two);
	TRY(run_sql(one, "drop table if exists drv_libpq_tx; create table drv_libpq_tx (id int primary key)", why));
	TRY(run_sql(one, "begin", why));
	EXPECT(PQtransactionStatus(one) == PQTRANS_INTRANS, "status %d", (int) PQtransactionStatus(one));
	TRY(run_sql(one, "insert into drv_libpq_tx values (1)", why));
	TRY(expect_value(two, "select count(*) from drv_libpq_tx", "0", why));
	TRY(run_sql(one, "commit", why));
	EXPECT(PQtransactionStatus(one) == PQTRANS_IDLE, "status %d", (int) PQtransactionStatus(one));
	TRY(expect_value(two, "select count(*) from drv_libpq_tx", "1", why));

	TRY(run_sql(one, "begin", why));
	TRY(run_sql(one, "delete from drv_libpq_tx", why));
	TRY(run_sql(one, "rollback", why));
	TRY(expect_value(two, "select count(*) from drv_libpq_tx", "1", why));

	/* One message, several statements: one transaction. */
	TRY(expect_error(one, "insert into drv_libpq_tx values (2); select 1/0; insert into drv_libpq_tx values (3)",
					 "22012", why));
	TRY(expect_value(two, "select count(*) from drv_libpq_tx", "1", why));
	TRY(run_sql(one, "begin; insert into drv_libpq_tx values (4); commit; begin; insert into drv_libpq_tx values (5)", why));
	TRY(expect_value(two, "select count(*) from drv_libpq_tx", "2", why));
	TRY(run_sql(one, "commit and chain", why));
	EXPECT(PQtransactionStatus(one) == PQTRANS_INTRANS, "after chain: %d", (int) PQtransactionStatus(one));
	TRY(run_sql(one, "rollback", why));
	TRY(expect_value(two, "select count(*) from drv_libpq_tx", "3", why));
	TRY(run_sql(one, "drop table drv_libpq_tx", why));
	return true;
}

static bool
savepoints(Reason *why)
{
	PGconn	   *conn = session(why);

	TRY(conn);
	TRY(run_sql(conn, "drop table if exists drv_libpq_sp; create table drv_libpq_sp (id int primary key)", why));
	TRY(prepare(conn, "put", "insert into drv_libpq_sp values ($1)", why));
	TRY(run_sql(conn, "begin", why));
	TRY(result_is(exec_prepared(conn, "put", 1, "1", NULL), PGRES_COMMAND_OK, why));
	TRY(run_sql(conn, "savepoint a", why));
	TRY(result_error(exec_prepared(conn, "put", 1, "1", NULL), "23505", why));
	EXPECT(PQtransactionStatus(conn) == PQTRANS_INERROR, "status %d", (int) PQtransactionStatus(conn));
	TRY(result_error(exec_prepared(conn, "put", 1, "2", NULL), "25P02", why));
	TRY(run_sql(conn, "rollback to a", why));
	EXPECT(PQtransactionStatus(conn) == PQTRANS_INTRANS, "status %d", (int) PQtransactionStatus(conn));
	/* Statements prepared after the savepoint outlive its rollback. */
	TRY(run_sql(conn, "savepoint b", why));
	TRY(prepare(conn, "count", "select count(*) from drv_libpq_sp", why));
	TRY(run_sql(conn, "rollback to b", why));
	TRY(result_is(exec_prepared(conn, "put", 1, "3", NULL), PGRES_COMMAND_OK, why));
	TRY(run_sql(conn, "release b", why));
	TRY(run_sql(conn, "commit", why));
	TRY(result_value(exec_prepared(conn, "count", 0, NULL, NULL), "2", why));
	TRY(run_sql(conn, "drop table drv_libpq_sp", why));
	return true;
}

static bool
errors(Reason *why)
{
	PGconn	   *conn = session(why);
	PGresult   *result;

	TRY(conn);
	TRY(run_sql(conn, "drop table if exists drv_libpq_err;"
				"create table drv_libpq_err (id int constraint drv_libpq_positive check (id > 0))", why));
	TRY(expect_error(conn, "selec 1", "42601", why));
	TRY(expect_error(conn, "select no_such_column", "42703", why));
	result = PQexec(conn, "insert into drv_libpq_err values (-1)");
	EXPECT(PQresultErrorField(result, PG_DIAG_CONSTRAINT_NAME) != NULL &&
		   strcmp(PQresultErrorField(result, PG_DIAG_CONSTRAINT_NAME), "drv_libpq_positive") == 0,
		   "no constraint name: %s", PQresultErrorMessage(result));
	TRY(result_error(result, "23514", why));
	TRY(result_error(PQexecParams(conn, "select 1/$1::int", 1, NULL, (const char *const[]){"0"}, NULL, NULL, 0), "22012", why));
	TRY(expect_value(conn, "select 'usable'", "usable", why));

	TRY(run_sql(conn, "begin", why));
	TRY(expect_error(conn, "select 1/0", "22012", why));
	TRY(expect_error(conn, "select 1", "25P02", why));
	/* COMMIT of a failed transaction is a rollback, and says so. */
	result = PQexec(conn, "commit");
	EXPECT(strcmp(PQcmdStatus(result), "ROLLBACK") == 0, "commit of a failed transaction: %s", PQcmdStatus(result));
	PQclear(result);
	TRY(expect_value(conn, "select 'usable'", "usable", why));
	result = PQexec(conn, "");
	TRY(result_is(result, PGRES_EMPTY_QUERY, why));
	TRY(run_sql(conn, "drop table drv_libpq_err", why));
	return true;
}

typedef struct Notices
{
	int			count;
	char		last[64];
} Notices;

static void
on_notice(void *argument, const PGresult *result)
{
	Notices    *notices = argument;

	notices->count++;
	snprintf(notices->last, sizeof(notices->last), "%s", PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY));
}

static bool
notices(Reason *why)
{
	PGconn	   *one = session(why);
	PGconn	   *two = session(why);
	Notices		of_one = {0};
	Notices		of_two = {0};

	TRY(one && two);
	PQsetNoticeReceiver(one, on_notice, &of_one);
	PQsetNoticeReceiver(two, on_notice, &of_two);
	TRY(run_sql(one, "do $$ begin for i in 1..20 loop raise notice 'note %', i; end loop; end $$", why));
	EXPECT(of_one.count == 20 && strcmp(of_one.last, "note 20") == 0, "%d notices, last \"%s\"",
		   of_one.count, of_one.last);
	TRY(run_sql(one, "rollback", why));
	EXPECT(of_one.count == 21, "the warning about no transaction is missing");
	TRY(run_sql(two, "select 1", why));
	EXPECT(of_two.count == 0, "the other session got \"%s\"", of_two.last);
	return true;
}

static bool
leaving_rolls_back(Reason *why)
{
	PGconn	   *keeper = session(why);

	TRY(keeper);
	TRY(run_sql(keeper, "drop table if exists drv_libpq_left; create table drv_libpq_left (id int)", why));
	for (int i = 0; i < 10; i++)
	{
		PGconn	   *leaver = PQconnectdb("");

		if (!run_sql(leaver, "begin; insert into drv_libpq_left values (1); lock table drv_libpq_left", why))
		{
			PQfinish(leaver);
			return false;
		}
		PQfinish(leaver);		/* a Terminate in mid-transaction */
	}
	/* Waits on the lock for as long as a leaver still holds it. */
	TRY(run_sql(keeper, "begin; set local lock_timeout = '5s'", why));
	TRY(run_sql(keeper, "lock table drv_libpq_left", why));
	TRY(expect_value(keeper, "select count(*) from drv_libpq_left", "0", why));
	TRY(run_sql(keeper, "commit; drop table drv_libpq_left", why));
	return true;
}

static bool
set_local_ends(Reason *why)
{
	PGconn	   *conn = session(why);

	TRY(conn);
	TRY(run_sql(conn, "begin; set local work_mem = '123kB'", why));
	TRY(expect_value(conn, "select current_setting('work_mem')", "123kB", why));
	TRY(run_sql(conn, "commit", why));
	TRY(expect_value(conn, "select current_setting('work_mem') <> '123kB'", "t", why));
	return true;
}

static bool
parameters(Reason *why)
{
	PGconn	   *conn = session(why);

	TRY(conn);
	EXPECT(PQserverVersion(conn) >= 150000, "server_version gives %d", PQserverVersion(conn));
	EXPECT(PQparameterStatus(conn, "client_encoding") != NULL &&
		   strcmp(PQparameterStatus(conn, "client_encoding"), "UTF8") == 0, "client_encoding is missing");
	EXPECT(PQparameterStatus(conn, "standard_conforming_strings") != NULL &&
		   strcmp(PQparameterStatus(conn, "standard_conforming_strings"), "on") == 0,
		   "standard_conforming_strings is missing");
	EXPECT(PQparameterStatus(conn, "integer_datetimes") != NULL, "integer_datetimes is missing");
	EXPECT(PQbackendPID(conn) != 0, "no backend key");
	return true;
}

const Check transaction_checks[] = {
	{"transaction_commit_rollback", commit_and_rollback},
	{"transaction_savepoints", savepoints},
	{"transaction_errors", errors},
	{"transaction_leaving_rolls_back", leaving_rolls_back},
	{"transaction_set_local_ends", set_local_ends},
	{"notices", notices},
	{"session_parameters", parameters},
	{NULL, NULL}
};
