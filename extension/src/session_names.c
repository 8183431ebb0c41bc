/*
 * session_names.c
 *		The statements and cursors that a session holds by names.
 *
 * The names that commands give are noted, for PostgreSQL has no list of its own
 * that could be gone through from here.  Whether there is anything by them is
 * looked up when the report is made.
 */
#include "postgres.h"

#include "access/xact.h"
#include "commands/prepare.h"
#include "session.h"
#include "utils/hsearch.h"
#include "utils/portal.h"

/* Names under which there may be a statement or a cursor. */
static HTAB *prepared_names = NULL;
static HTAB *cursor_names = NULL;

/* Whether there was any when the report was made. */
static bool is_reported_prepared = false;
static bool is_reported_cursor = false;

static void
note_name(HTAB **names, const char *what, const char *name)
{
	char		key[NAMEDATALEN];

	if (*names == NULL)
	{
		HASHCTL		control = {0};

		control.keysize = NAMEDATALEN;
		control.entrysize = NAMEDATALEN;
		*names = hash_create(what, 16, &control, HASH_ELEM | HASH_STRINGS);
	}
	strlcpy(key, name, NAMEDATALEN);
	(void) hash_search(*names, key, HASH_ENTER, NULL);
	session_notes.may_have_changed = true;
}

/* Notes the name of a statement that SQL's PREPARE is about to make. */
void
session_note_prepared(const char *name)
{
	note_name(&prepared_names, "sluice prepared statements", name);
}

/* Notes the name of a cursor WITH HOLD that is about to be declared. */
void
session_note_cursor(const char *name)
{
	note_name(&cursor_names, "sluice cursors", name);
}

/*
 * Whether any of these exists; forgets those before it that do not, if they won't
 * by the end of the transaction.
 */
static bool
any_exists(HTAB *names, bool (*exists) (const char *name), bool forgets)
{
	HASH_SEQ_STATUS status;
	char	   *name;

	if (names == NULL)
		return false;
	hash_seq_init(&status, names);
	while ((name = hash_seq_search(&status)) != NULL)
	{
		if (exists(name))
		{
			hash_seq_term(&status);
			return true;
		}
		if (forgets)
			(void) hash_search(names, name, HASH_REMOVE, NULL);
	}
	return false;
}

static bool
is_prepared_by_sql(const char *name)
{
	PreparedStatement *statement = FetchPreparedStatement(name, false);

	return statement != NULL && statement->from_sql;
}

/* Whether a cursor has outlived its transaction; one of a failed transaction is there until ROLLBACK. */
static bool
is_held_cursor(const char *name)
{
	Portal		portal = GetPortalByName(name);

	return PortalIsValid(portal) && (portal->cursorOptions & CURSOR_OPT_HOLD) &&
		portal->createSubid == InvalidSubTransactionId;
}

/*
 * Looks them up for the report; is_inside says that a transaction is under way,
 * whose end may bring back those that are gone.
 */
void
session_look_up_names(bool is_inside)
{
	is_reported_prepared = any_exists(prepared_names, is_prepared_by_sql, !is_inside);
	is_reported_cursor = any_exists(cursor_names, is_held_cursor, !is_inside);
}

bool
session_has_prepared(void)
{
	return is_reported_prepared;
}

bool
session_has_cursor(void)
{
	return is_reported_cursor;
}

/*
 * Whether a statement or a cursor that is reported is gone. The protocol can
 * close them without a command.
 */
bool
session_any_name_is_gone(void)
{
	return (is_reported_prepared && !any_exists(prepared_names, is_prepared_by_sql, true)) ||
		(is_reported_cursor && !any_exists(cursor_names, is_held_cursor, true));
}
