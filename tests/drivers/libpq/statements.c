/*
 * statements.c
 *		Prepared statements: whose they are, how long they live, what ends them.
 */
#include "checks.h"

#include <pthread.h>

#define CLIENTS 30
#define ROUNDS 30

/* Every client gives the same names to other texts: a name is the client's own. */
static const char *const texts[] = {
	"select 'a' || $1::int",
	"select 'b' || ($1::int + 1)",
	"select 'c' || ($1::int * 2)::text",
};

static void
expected_of(int text, int argument, char *out, size_t size)
{
	static const char letters[] = "abc";
	int			values[] = {argument, argument + 1, argument * 2};

	snprintf(out, size, "%c%d", letters[text], values[text]);
}

typedef struct Client
{
	int			number;
	bool		good;
	Reason		why;
} Client;

static bool
client_rounds(int number, Reason *why)
{
	PGconn	   *conn = session(why);

	if (conn == NULL)
		return false;
	for (int i = 0; i < 3; i++)
	{
		char		name[8];

		snprintf(name, sizeof(name), "s%d", i);
		TRY(prepare(conn, name, texts[(number + i) % 3], why));
	}
	for (int round = 0; round < ROUNDS; round++)
	{
		bool		block = round % 3 == 0;

		if (block)
			TRY(run_sql(conn, "begin", why));
		for (int i = 0; i < 3; i++)
		{
			int			argument = number * 1000 + round;
			char		name[8];
			char		text[16];
			char		expected[32];

			snprintf(name, sizeof(name), "s%d", i);
			snprintf(text, sizeof(text), "%d", argument);
			expected_of((number + i) % 3, argument, expected, sizeof(expected));
			TRY(result_value(exec_prepared(conn, name, 1, text, NULL), expected, why));
		}
		if (block)
			TRY(run_sql(conn, round % 2 ? "commit" : "rollback", why));
	}
	return true;
}

static void *
client_main(void *argument)
{
	Client	   *client = argument;

	client->good = client_rounds(client->number, &client->why);
	return NULL;
}

static bool
many_clients(Reason *why)
{
	pthread_t	threads[CLIENTS];
	Client		clients[CLIENTS];

	for (int i = 0; i < CLIENTS; i++)
	{
		clients[i] = (Client) {.number = i};
		if (pthread_create(&threads[i], NULL, client_main, &clients[i]) != 0)
			abort();
	}
	for (int i = 0; i < CLIENTS; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < CLIENTS; i++)
		EXPECT(clients[i].good, "client %d: %s", i, clients[i].why.text);
	return true;
}

static bool
survives_rollback(Reason *why)
{
	PGconn	   *conn = session(why);

	TRY(conn);
	TRY(run_sql(conn, "begin", why));
	TRY(prepare(conn, "kept", "select $1::int + 40", why));
	TRY(run_sql(conn, "rollback", why));
	TRY(result_value(exec_prepared(conn, "kept", 1, "2", NULL), "42", why));
	return true;
}

static bool
unnamed_survives(Reason *why)
{
	PGconn	   *one = session(why);
	PGconn	   *two = session(why);

	TRY(one && two);
	TRY(prepare(one, "", "select 'one' || $1::text", why));
	TRY(prepare(two, "", "select 'two' || $1::text", why));
	for (int i = 0; i < 5; i++)
	{
		TRY(result_value(exec_prepared(one, "", 1, "x", NULL), "onex", why));
		TRY(result_value(exec_prepared(two, "", 1, "y", NULL), "twoy", why));
	}
	/* A simple query ends the unnamed statement (protocol, "Simple Query"). */
	TRY(expect_value(one, "select 1", "1", why));
	TRY(result_error(exec_prepared(one, "", 1, "x", NULL), "26000", why));
	TRY(result_value(exec_prepared(two, "", 1, "z", NULL), "twoz", why));
	return true;
}

static bool
unknown_statement(Reason *why)
{
	PGconn	   *one = session(why);
	PGconn	   *two = session(why);

	TRY(one && two);
	TRY(prepare(one, "mine", "select 1", why));
	TRY(result_error(exec_prepared(two, "mine", 0, NULL, NULL), "26000", why));
	TRY(result_error(PQdescribePrepared(two, "mine"), "26000", why));
	TRY(result_value(exec_prepared(one, "mine", 0, NULL, NULL), "1", why));
	TRY(expect_value(two, "select 'usable'", "usable", why));

	/* Within a transaction it ends the transaction, as any error does. */
	TRY(run_sql(two, "begin", why));
	TRY(result_error(exec_prepared(two, "mine", 0, NULL, NULL), "26000", why));
	EXPECT(PQtransactionStatus(two) == PQTRANS_INERROR, "status %d", (int) PQtransactionStatus(two));
	TRY(expect_error(two, "select 1", "25P02", why));
	TRY(run_sql(two, "rollback", why));
	return true;
}

static bool
name_taken_and_free(Reason *why)
{
	PGconn	   *conn = session(why);

	TRY(conn);
	/* A Parse that fails leaves the name free. */
	TRY(result_error(PQprepare(conn, "n", "selec 1", 0, NULL), "42601", why));
	TRY(result_error(PQprepare(conn, "n", "select * from drv_libpq_no_such", 0, NULL), "42P01", why));
	TRY(prepare(conn, "n", "select 'first'", why));
	TRY(result_error(PQprepare(conn, "n", "select 'second'", 0, NULL), "42P05", why));
	TRY(result_error(PQprepare(conn, "n", "select 'first'", 0, NULL), "42P05", why));
	TRY(result_value(exec_prepared(conn, "n", 0, NULL, NULL), "first", why));
	return true;
}

static bool
deallocate(Reason *why)
{
	PGconn	   *one = session(why);
	PGconn	   *two = session(why);

	TRY(one && two);
	TRY(prepare(one, "d1", "select 'd' || $1::int", why));
	TRY(prepare(two, "d1", "select 'd' || $1::int", why));
	TRY(run_sql(one, "DEALLOCATE d1", why));
	TRY(result_error(exec_prepared(one, "d1", 1, "1", NULL), "26000", why));
	TRY(result_value(exec_prepared(two, "d1", 1, "1", NULL), "d1", why));
	TRY(expect_error(one, "deallocate d1", "26000", why));

	/* Free again, for another text; names are folded as identifiers are. */
	TRY(prepare(one, "d1", "select 'again'", why));
	TRY(result_value(exec_prepared(one, "d1", 0, NULL, NULL), "again", why));
	TRY(prepare(one, "Upper", "select 'upper'", why));
	TRY(expect_error(one, "deallocate Upper", "26000", why));
	TRY(run_sql(one, "deallocate prepare \"Upper\"", why));
	TRY(result_error(exec_prepared(one, "Upper", 0, NULL, NULL), "26000", why));

	TRY(run_sql(one, "deallocate all", why));
	TRY(result_error(exec_prepared(one, "d1", 0, NULL, NULL), "26000", why));
	TRY(result_value(exec_prepared(two, "d1", 1, "2", NULL), "d2", why));
	return true;
}

static bool
discard_all(Reason *why)
{
	PGconn	   *one = session(why);
	PGconn	   *two = session(why);

	TRY(one && two);
	TRY(prepare(one, "s", "select 'one'", why));
	TRY(prepare(two, "s", "select 'two'", why));
	TRY(run_sql(one, "DISCARD ALL", why));
	TRY(result_error(exec_prepared(one, "s", 0, NULL, NULL), "26000", why));
	TRY(result_value(exec_prepared(two, "s", 0, NULL, NULL), "two", why));
	TRY(prepare(one, "s", "select 'new'", why));
	TRY(result_value(exec_prepared(one, "s", 0, NULL, NULL), "new", why));
	TRY(run_sql(one, "begin", why));
	TRY(expect_error(one, "discard all", "25001", why));
	TRY(run_sql(one, "rollback", why));
	TRY(result_value(exec_prepared(one, "s", 0, NULL, NULL), "new", why));
	return true;
}

static bool
describe(Reason *why)
{
	PGconn	   *conn = session(why);
	PGresult   *result;

	TRY(conn);
	TRY(prepare(conn, "shape", "select $1::int8 as big, $2::text as words", why));
	result = PQdescribePrepared(conn, "shape");
	EXPECT(PQresultStatus(result) == PGRES_COMMAND_OK, "%s", PQresultErrorMessage(result));
	EXPECT(PQnparams(result) == 2 && PQparamtype(result, 0) == 20 && PQparamtype(result, 1) == 25,
		   "%d parameters of types %u, %u", PQnparams(result), PQparamtype(result, 0), PQparamtype(result, 1));
	EXPECT(PQnfields(result) == 2 && strcmp(PQfname(result, 1), "words") == 0 && PQftype(result, 0) == 20,
		   "%d columns", PQnfields(result));
	PQclear(result);

	TRY(run_sql(conn, "begin; declare shown cursor for select 1 as only", why));
	result = PQdescribePortal(conn, "shown");
	EXPECT(PQresultStatus(result) == PGRES_COMMAND_OK && PQnfields(result) == 1 &&
		   strcmp(PQfname(result, 0), "only") == 0, "portal: %s", PQresultErrorMessage(result));
	PQclear(result);
	TRY(expect_value(conn, "fetch all from shown", "1", why));
	TRY(run_sql(conn, "commit", why));
	return true;
}

static bool
same_text_other_types(Reason *why)
{
	PGconn	   *one = session(why);
	PGconn	   *two = session(why);
	Oid			int4 = 23;
	Oid			text = 25;

	TRY(one && two);
	TRY(result_is(PQprepare(one, "t", "select pg_typeof($1)::text", 1, &int4), PGRES_COMMAND_OK, why));
	TRY(result_is(PQprepare(two, "t", "select pg_typeof($1)::text", 1, &text), PGRES_COMMAND_OK, why));
	for (int i = 0; i < 3; i++)
	{
		TRY(result_value(exec_prepared(one, "t", 1, "5", NULL), "integer", why));
		TRY(result_value(exec_prepared(two, "t", 1, "5", NULL), "text", why));
	}
	return true;
}

/*
 * After a change of the result's shape PostgreSQL refuses the old statement
 * (0A000); a pool may heal it, since libpq asks for the shape with each
 * execution. Nothing else is right, and a statement prepared anew must work.
 */
static bool
after_change(PGconn *conn, const char *name, const char *sql, int columns, const char *last, Reason *why)
{
	PGresult   *result = exec_prepared(conn, name, 1, "1", NULL);

	if (PQresultStatus(result) != PGRES_TUPLES_OK)
	{
		char		drop[64];

		TRY(result_error(result, "0A000", why));
		snprintf(drop, sizeof(drop), "deallocate %s", name);
		TRY(run_sql(conn, drop, why));
		TRY(prepare(conn, name, sql, why));
		result = exec_prepared(conn, name, 1, "1", NULL);
	}
	EXPECT(PQresultStatus(result) == PGRES_TUPLES_OK, "%s", PQresultErrorMessage(result));
	EXPECT(PQntuples(result) == 1 && PQnfields(result) == columns, "%d rows of %d columns",
		   PQntuples(result), PQnfields(result));
	EXPECT(strcmp(PQgetvalue(result, 0, columns - 1), last) == 0, "last column is \"%s\"",
		   PQgetvalue(result, 0, columns - 1));
	PQclear(result);
	return true;
}

static bool
schema_change(Reason *why)
{
	static const char sql[] = "select * from drv_libpq_shape where id = $1";
	PGconn	   *sessions[6];
	PGconn	   *other = session(why);

	TRY(other);
	TRY(run_sql(other, "drop table if exists drv_libpq_shape; create table drv_libpq_shape (id int, v int);"
				"insert into drv_libpq_shape values (1, 10)", why));
	for (int i = 0; i < 6; i++)
	{
		TRY(sessions[i] = session(why));
		TRY(prepare(sessions[i], "shape", sql, why));
		TRY(prepare(sessions[i], "steady", "select v::text from drv_libpq_shape where id = $1", why));
		for (int n = 0; n < 3; n++)
			TRY(result_value(exec_prepared(sessions[i], "shape", 1, "1", NULL), "1", why));
		TRY(result_value(exec_prepared(sessions[i], "steady", 1, "1", NULL), "10", why));
	}

	TRY(run_sql(other, "alter table drv_libpq_shape add column extra text default 'more'", why));
	for (int i = 0; i < 6; i++)
		TRY(after_change(sessions[i], "shape", sql, 3, "more", why));
	TRY(run_sql(other, "alter table drv_libpq_shape alter column extra drop default, alter column extra type int using 7", why));
	for (int i = 0; i < 6; i++)
		TRY(after_change(sessions[i], "shape", sql, 3, "7", why));

	/* A statement whose shape stays must go on without a word. */
	TRY(run_sql(other, "alter table drv_libpq_shape drop column extra", why));
	TRY(run_sql(other, "alter table drv_libpq_shape alter column v type bigint", why));
	for (int i = 0; i < 6; i++)
		TRY(result_value(exec_prepared(sessions[i], "steady", 1, "1", NULL), "10", why));

	/* In a transaction the error ends the transaction, or there is none. */
	TRY(run_sql(sessions[0], "begin", why));
	if (result_error(exec_prepared(sessions[0], "shape", 1, "1", NULL), "0A000", why))
		TRY(expect_error(sessions[0], "select 1", "25P02", why));
	else
		TRY(expect_value(sessions[0], "select 1", "1", why));
	TRY(run_sql(sessions[0], "rollback", why));
	TRY(after_change(sessions[0], "shape", sql, 2, "10", why));
	TRY(run_sql(other, "drop table drv_libpq_shape", why));
	return true;
}

static bool
bind_errors(Reason *why)
{
	PGconn	   *conn = session(why);

	TRY(conn);
	TRY(prepare(conn, "b", "select $1::int + 1", why));
	TRY(result_error(exec_prepared(conn, "b", 1, "not a number", NULL), "22P02", why));
	TRY(result_error(exec_prepared(conn, "b", 0, NULL, NULL), "08P01", why));
	TRY(result_value(exec_prepared(conn, "b", 1, "1", NULL), "2", why));
	TRY(result_value(exec_prepared(conn, "b", 1, NULL, NULL), "NULL", why));
	return true;
}

const Check statement_checks[] = {
	{"prepared_30_clients_same_names", many_clients},
	{"prepared_survives_rollback", survives_rollback},
	{"prepared_unnamed_survives", unnamed_survives},
	{"prepared_unknown", unknown_statement},
	{"prepared_name_taken_and_free", name_taken_and_free},
	{"prepared_deallocate", deallocate},
	{"prepared_discard_all", discard_all},
	{"prepared_describe", describe},
	{"prepared_same_text_other_types", same_text_other_types},
	{"prepared_bind_errors", bind_errors},
	{"schema_change", schema_change},
	{NULL, NULL}
};
