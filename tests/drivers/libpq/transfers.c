/*
 * transfers.c
 *		Bulk data: COPY both ways, large values, rows one at a time, large objects.
 */
#include "checks.h"

#include <libpq/libpq-fs.h>

#define LARGE (8 * 1024 * 1024)
#define COPY_ROWS 50000

static bool
send_rows(PGconn *conn, int rows, Reason *why)
{
	char		line[64];

	for (int i = 0; i < rows; i++)
	{
		int			length = snprintf(line, sizeof(line), "%d\trow %d\n", i, i);

		EXPECT(PQputCopyData(conn, line, length) == 1, "row %d: %s", i, PQerrorMessage(conn));
	}
	return true;
}

/* The end of a COPY: its own result, then no more. */
static bool
copy_end(PGconn *conn, const char *sqlstate, Reason *why)
{
	PGresult   *result = PQgetResult(conn);

	if (sqlstate == NULL)
		TRY(result_is(result, PGRES_COMMAND_OK, why));
	else
		TRY(result_error(result, sqlstate, why));
	result = PQgetResult(conn);
	EXPECT(result == NULL, "a result too many: %s", PQresStatus(PQresultStatus(result)));
	return true;
}

static bool
read_copy(PGconn *conn, int *rows, long *sum, Reason *why)
{
	char	   *line;
	int			length;

	*rows = 0;
	*sum = 0;
	while ((length = PQgetCopyData(conn, &line, 0)) > 0)
	{
		(*rows)++;
		*sum += atol(line);
		PQfreemem(line);
	}
	EXPECT(length == -1, "%s", PQerrorMessage(conn));
	return true;
}

static bool
copy(Reason *why)
{
	PGconn	   *conn = session(why);
	int			rows;
	long		sum;

	TRY(conn);
	TRY(run_sql(conn, "drop table if exists drv_libpq_copy; create table drv_libpq_copy (id int, v text)", why));
	TRY(result_is(PQexec(conn, "copy drv_libpq_copy from stdin"), PGRES_COPY_IN, why));
	TRY(send_rows(conn, COPY_ROWS, why));
	EXPECT(PQputCopyEnd(conn, NULL) == 1, "%s", PQerrorMessage(conn));
	TRY(copy_end(conn, NULL, why));
	TRY(expect_value(conn, "select count(*) || ' ' || max(v) from drv_libpq_copy", "50000 row 9999", why));

	TRY(result_is(PQexec(conn, "copy drv_libpq_copy to stdout"), PGRES_COPY_OUT, why));
	TRY(read_copy(conn, &rows, &sum, why));
	EXPECT(rows == COPY_ROWS && sum == (long) COPY_ROWS * (COPY_ROWS - 1) / 2, "%d rows, sum %ld", rows, sum);
	TRY(copy_end(conn, NULL, why));

	/* By the extended protocol too: the Sync comes before the data. */
	TRY(result_is(PQexecParams(conn, "copy drv_libpq_copy from stdin", 0, NULL, NULL, NULL, NULL, 0), PGRES_COPY_IN, why));
	TRY(send_rows(conn, 10, why));
	EXPECT(PQputCopyEnd(conn, NULL) == 1, "%s", PQerrorMessage(conn));
	TRY(copy_end(conn, NULL, why));
	TRY(expect_value(conn, "select count(*) from drv_libpq_copy", "50010", why));
	TRY(run_sql(conn, "drop table drv_libpq_copy", why));
	return true;
}

static bool
copy_fails(Reason *why)
{
	PGconn	   *conn = session(why);

	TRY(conn);
	TRY(run_sql(conn, "drop table if exists drv_libpq_cpf; create table drv_libpq_cpf (id int, v text)", why));
	/* The client gives up. */
	TRY(result_is(PQexec(conn, "copy drv_libpq_cpf from stdin"), PGRES_COPY_IN, why));
	TRY(send_rows(conn, 100, why));
	EXPECT(PQputCopyEnd(conn, "gave up") == 1, "%s", PQerrorMessage(conn));
	TRY(copy_end(conn, "57014", why));
	/* The server gives up while much more data is under way. */
	TRY(result_is(PQexec(conn, "copy drv_libpq_cpf from stdin"), PGRES_COPY_IN, why));
	EXPECT(PQputCopyData(conn, "no number\tx\n", 12) == 1, "%s", PQerrorMessage(conn));
	TRY(send_rows(conn, COPY_ROWS, why));
	EXPECT(PQputCopyEnd(conn, NULL) == 1, "%s", PQerrorMessage(conn));
	TRY(copy_end(conn, "22P02", why));
	EXPECT(PQtransactionStatus(conn) == PQTRANS_IDLE, "status %d", (int) PQtransactionStatus(conn));
	TRY(expect_value(conn, "select count(*) from drv_libpq_cpf", "0", why));
	/* In a transaction, the table's other rows go with it. */
	TRY(run_sql(conn, "begin; insert into drv_libpq_cpf values (1, 'x')", why));
	TRY(result_is(PQexec(conn, "copy drv_libpq_cpf from stdin"), PGRES_COPY_IN, why));
	EXPECT(PQputCopyEnd(conn, "gave up") == 1, "%s", PQerrorMessage(conn));
	TRY(copy_end(conn, "57014", why));
	EXPECT(PQtransactionStatus(conn) == PQTRANS_INERROR, "status %d", (int) PQtransactionStatus(conn));
	TRY(run_sql(conn, "rollback", why));
	TRY(expect_value(conn, "select count(*) from drv_libpq_cpf", "0", why));
	TRY(run_sql(conn, "drop table drv_libpq_cpf", why));
	return true;
}

static bool
large_values(Reason *why)
{
	PGconn	   *conn = session(why);
	char	   *sent = malloc(LARGE + 1);
	PGresult   *result;

	TRY(conn);
	for (int i = 0; i < LARGE; i++)
		sent[i] = 'a' + (i * 7 + i / 4096) % 26;
	sent[LARGE] = '\0';
	result = PQexecParams(conn, "select $1::text", 1, NULL, (const char *const[]){sent}, NULL, NULL, 0);
	EXPECT(PQresultStatus(result) == PGRES_TUPLES_OK, "%s", PQresultErrorMessage(result));
	EXPECT(PQgetlength(result, 0, 0) == LARGE && memcmp(PQgetvalue(result, 0, 0), sent, LARGE) == 0,
		   "came back changed, %d bytes", PQgetlength(result, 0, 0));
	PQclear(result);

	TRY(prepare(conn, "big", "select length($1), md5($1) = md5($2)", why));
	for (int i = 0; i < 2; i++)
	{
		char		length[16];

		snprintf(length, sizeof(length), "%d", LARGE);
		TRY(result_value(exec_prepared(conn, "big", 2, sent, sent), length, why));
	}
	free(sent);

	/* A statement whose text is itself large. */
	sent = malloc(LARGE + 64);
	memcpy(sent, "select length('", 15);
	memset(sent + 15, 'x', LARGE / 4);
	strcpy(sent + 15 + LARGE / 4, "')");
	TRY(expect_value(conn, sent, "2097152", why));
	TRY(prepare(conn, "long", sent, why));
	TRY(result_value(exec_prepared(conn, "long", 0, NULL, NULL), "2097152", why));
	free(sent);
	return true;
}

static bool
row_by_row(Reason *why)
{
	PGconn	   *conn = session(why);
	PGresult   *result;
	int			rows = 0;

	TRY(conn);
	EXPECT(PQsendQueryParams(conn, "select i, repeat('x', 100) from generate_series(1, 20000) i",
							 0, NULL, NULL, NULL, NULL, 0) == 1, "%s", PQerrorMessage(conn));
	EXPECT(PQsetSingleRowMode(conn) == 1, "no single-row mode");
	while ((result = PQgetResult(conn)) != NULL && PQresultStatus(result) == PGRES_SINGLE_TUPLE)
	{
		rows++;
		EXPECT(atoi(PQgetvalue(result, 0, 0)) == rows, "row %d is %s", rows, PQgetvalue(result, 0, 0));
		PQclear(result);
	}
	TRY(result_is(result, PGRES_TUPLES_OK, why));
	EXPECT(PQgetResult(conn) == NULL, "a result too many");
	EXPECT(rows == 20000, "%d rows", rows);

	/* An error after rows have been sent. */
	rows = 0;
	EXPECT(PQsendQuery(conn, "select 1/(15000 - i) from generate_series(1, 20000) i") == 1, "%s", PQerrorMessage(conn));
	EXPECT(PQsetSingleRowMode(conn) == 1, "no single-row mode");
	while ((result = PQgetResult(conn)) != NULL && PQresultStatus(result) == PGRES_SINGLE_TUPLE)
	{
		rows++;
		PQclear(result);
	}
	TRY(result_error(result, "22012", why));
	EXPECT(PQgetResult(conn) == NULL, "a result too many");
	EXPECT(rows == 14999, "%d rows before the error", rows);
	return true;
}

/* Large objects go by FunctionCall messages. */
static bool
large_object(Reason *why)
{
	PGconn	   *conn = session(why);
	char		data[32 * 1024];
	char		back[32 * 1024];
	Oid			object;
	int			handle;

	TRY(conn);
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (char) (i * 31);
	TRY(run_sql(conn, "begin", why));
	object = lo_create(conn, 0);
	EXPECT(object != InvalidOid, "lo_create: %s", PQerrorMessage(conn));
	handle = lo_open(conn, object, INV_READ | INV_WRITE);
	EXPECT(handle >= 0, "lo_open: %s", PQerrorMessage(conn));
	EXPECT(lo_write(conn, handle, data, sizeof(data)) == (int) sizeof(data), "lo_write: %s", PQerrorMessage(conn));
	EXPECT(lo_lseek(conn, handle, 0, SEEK_SET) == 0, "lo_lseek: %s", PQerrorMessage(conn));
	EXPECT(lo_read(conn, handle, back, sizeof(back)) == (int) sizeof(back), "lo_read: %s", PQerrorMessage(conn));
	EXPECT(memcmp(data, back, sizeof(data)) == 0, "came back changed");
	TRY(run_sql(conn, "commit", why));
	/* A function call outside a transaction, and one that fails. */
	EXPECT(lo_unlink(conn, object) == 1, "lo_unlink: %s", PQerrorMessage(conn));
	EXPECT(lo_unlink(conn, object) == -1, "lo_unlink of nothing succeeded");
	TRY(expect_value(conn, "select 'usable'", "usable", why));
	return true;
}

static bool
types_and_nulls(Reason *why)
{
	PGconn	   *conn = session(why);
	const unsigned char bytes[] = {0, 1, 2, 0xff, 0};
	const unsigned char number[] = {0, 0, 1, 0};
	const char *values[] = {(const char *) bytes, (const char *) number, NULL};
	const int	lengths[] = {sizeof(bytes), sizeof(number), 0};
	const int	formats[] = {1, 1, 1};
	PGresult   *result;

	TRY(conn);
	TRY(prepare(conn, "bin", "select $1::bytea, $2::int4, $3::text", why));
	result = PQexecPrepared(conn, "bin", 3, values, lengths, formats, 1);
	EXPECT(PQresultStatus(result) == PGRES_TUPLES_OK, "%s", PQresultErrorMessage(result));
	EXPECT(PQgetlength(result, 0, 0) == sizeof(bytes) && memcmp(PQgetvalue(result, 0, 0), bytes, sizeof(bytes)) == 0,
		   "bytea changed");
	EXPECT(memcmp(PQgetvalue(result, 0, 1), number, 4) == 0, "int4 changed");
	EXPECT(PQgetisnull(result, 0, 2), "NULL changed");
	PQclear(result);
	/* The same statement in text format: formats belong to the execution. */
	result = PQexecPrepared(conn, "bin", 3, (const char *const[]){"\\x01", "256", ""}, NULL, NULL, 0);
	EXPECT(PQresultStatus(result) == PGRES_TUPLES_OK, "%s", PQresultErrorMessage(result));
	EXPECT(strcmp(PQgetvalue(result, 0, 1), "256") == 0 && !PQgetisnull(result, 0, 2), "text format changed");
	PQclear(result);
	return true;
}

const Check transfer_checks[] = {
	{"copy_in_out", copy},
	{"copy_fails", copy_fails},
	{"large_values", large_values},
	{"row_by_row", row_by_row},
	{"large_object_function_calls", large_object},
	{"types_and_nulls", types_and_nulls},
	{NULL, NULL}
};
