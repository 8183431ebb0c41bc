/*
 * checks.h
 *		What every file of libpq checks shares: how a check reports, and short
 *		forms of the libpq calls that all of them make.
 *
 * A check is a function that returns true, or writes its reason with EXPECT
 * and returns false. Connections opened with session() are closed when the
 * check ends, however it ends: one left in a transaction would keep a server.
 */
#ifndef CHECKS_H
#define CHECKS_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <libpq-fe.h>

#define WHY_SIZE 512

typedef struct Reason
{
	char		text[WHY_SIZE];
} Reason;

typedef bool (*CheckFn) (Reason *why);

typedef struct Check
{
	const char *name;
	CheckFn		run;
} Check;

#define EXPECT(condition, ...) \
	do { \
		if (!(condition)) \
		{ \
			int used_ = snprintf(why->text, WHY_SIZE, "%s:%d: ", __FILE_NAME__, __LINE__); \
			snprintf(why->text + used_, WHY_SIZE - used_, __VA_ARGS__); \
			return false; \
		} \
	} while (0)

/* For helpers that have written their reason already. */
#define TRY(call) \
	do { \
		if (!(call)) \
			return false; \
	} while (0)

extern const Check statement_checks[];
extern const Check transaction_checks[];
extern const Check transfer_checks[];
extern const Check pipeline_checks[];
extern const Check cancel_checks[];

/* A connection from the PG* environment, NULL with a reason if it fails. */
extern PGconn *session(Reason *why);

/* Runs SQL by the simple protocol; any error is the reason. */
extern bool run_sql(PGconn *conn, const char *sql, Reason *why);

/* As run_sql, and the single value that comes back must be "expected". */
extern bool expect_value(PGconn *conn, const char *sql, const char *expected, Reason *why);

/* Runs SQL that must fail with this SQLSTATE. */
extern bool expect_error(PGconn *conn, const char *sql, const char *sqlstate, Reason *why);

/* Judges a result that the caller has; clears it in either case. */
extern bool result_is(PGresult *result, ExecStatusType status, Reason *why);
extern bool result_value(PGresult *result, const char *expected, Reason *why);
extern bool result_error(PGresult *result, const char *sqlstate, Reason *why);

extern bool prepare(PGconn *conn, const char *name, const char *sql, Reason *why);

/* PQexecPrepared with up to four text parameters; unused ones are NULL. */
extern PGresult *exec_prepared(PGconn *conn, const char *name, int count, const char *a, const char *b);

extern void pause_ms(int ms);

#endif
