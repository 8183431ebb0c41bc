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

/* Names of which all are looked up at first, to forget those that are not there. */
#define NAMES_MIN	64

/* Names under which there may be a statement or a cursor. */
typedef struct Names
{
	HTAB	   *table;
	long		too_many;		/* when all are to be looked up */
} Names;

static Names prepared_names = {NULL, NAMES_MIN};
static Names cursor_names = {NULL, NAMES_MIN};

/* Whether there was any when the report was made. */
static bool is_reported_prepared = false;
static bool is_reported_cursor = false;

static void
note_name(Names *names, const char *what, const char *name)
{
	char		key[NAMEDATALEN];

	if (names->table == NULL)
	{
		HASHCTL		control = {0};

		control.keysize = NAMEDATALEN;
		control.entrysize = NAMEDATALEN;
		names->table = hash_create(what, 16, &control, HASH_ELEM | HASH_STRINGS);
	}
	strlcpy(key, name, NAMEDATALEN);
	(void) hash_search(names->table, key, HASH_ENTER, NULL);
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
 * Whether any of these exists; forgets those that do not, if they won't by the end of
 * the transaction: those before it, and all once there are too many, or a session that
 * keeps one would gather the names of all others that it ever had.
 */
static bool
any_exists(Names *names, bool (*exists) (const char *name), bool forgets)
{
	bool		forgets_all = forgets && names->table != NULL && hash_get_num_entries(names->table) >= names->too_many;
	bool		found = false;
	HASH_SEQ_STATUS status;
	char	   *name;

	if (names->table == NULL)
		return false;
	hash_seq_init(&status, names->table);
	while ((name = hash_seq_search(&status)) != NULL)
	{
		if (exists(name))
		{
			found = true;
			if (!forgets_all)
			{
				hash_seq_term(&status);
				break;
			}
		}
		else if (forgets)
			(void) hash_search(names->table, name, HASH_REMOVE, NULL);
	}
	if (forgets_all)
		names->too_many = Max(2 * hash_get_num_entries(names->table), NAMES_MIN);
	return found;
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
	is_reported_prepared = any_exists(&prepared_names, is_prepared_by_sql, !is_inside);
	is_reported_cursor = any_exists(&cursor_names, is_held_cursor, !is_inside);
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
	return (is_reported_prepared && !any_exists(&prepared_names, is_prepared_by_sql, true)) ||
		(is_reported_cursor && !any_exists(&cursor_names, is_held_cursor, true));
}
