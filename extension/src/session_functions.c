/*
 * session_functions.c
 *		The functions that a session calls, as far as they may leave something.
 *
 * The hook on access to objects shows a function before it runs, and what is
 * created, changed and dropped.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/transam.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_language.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "compat.h"
#include "gate.h"
#include "session.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
#include "utils/varlena.h"

static object_access_hook_type previous_object_access = NULL;
static needs_fmgr_hook_type previous_needs_fmgr = NULL;
static fmgr_hook_type previous_fmgr = NULL;

/*
 * A function that is not built in, and what it comes down to: a built-in one by
 * another name, or C, which may change settings by itself; or nothing that
 * is not seen anyway.
 */
typedef struct KnownFunction
{
	Oid			function;
	Oid			builtin;		/* or InvalidOid */
	bool		is_ours;		/* the extension's own, which a pool may call */
	bool		is_c;
	bool		is_c_trigger;	/* which may use a sequence, as autoinc() does */
	bool		sows;			/* has a seed while it runs, which stays */
	bool		keeps;			/* may keep what no command takes away */
} KnownFunction;

/* Functions in C that keep something in the session, by the beginnings of their names. */
static const struct
{
	const char *library;
	const char *name;
}			keeping[] = {
	{"dblink", "dblink_connect"},
	{"isn", "isn_weak"},
};

/* Languages of which it is said that their functions keep nothing. */
static char *stateless_languages = NULL;

static HTAB *known_functions = NULL;

static void
forget_functions(Datum arg, int cache, uint32 hash)
{
	if (known_functions != NULL)
		hash_destroy(known_functions);
	known_functions = NULL;
}

/*
 * The custom settings that a function has while it runs leave their names, too.
 * Returns whether a seed is among the others.
 */
static bool
note_settings_of(HeapTuple function)
{
	bool		sows = false;
	bool		is_null;
	Datum		config = SysCacheGetAttr(PROCOID, function, Anum_pg_proc_proconfig, &is_null);
	Datum	   *settings;
	int			count;

	if (is_null)
		return false;
	deconstruct_array(DatumGetArrayTypeP(config), TEXTOID, -1, false, TYPALIGN_INT, &settings, NULL, &count);
	for (int i = 0; i < count; i++)
	{
		char	   *setting = TextDatumGetCString(settings[i]);
		char	   *end = strchr(setting, '=');

		if (end != NULL)
			*end = '\0';
		if (strchr(setting, GUC_QUALIFIER_SEPARATOR))
			session_note_custom(setting);
		sows |= pg_strcasecmp(setting, "seed") == 0;
	}
	return sows;
}

/* The library of a C function, without its folder. */
static const char *
library_of(HeapTuple function)
{
	bool		is_null;
	Datum		binary = SysCacheGetAttr(PROCOID, function, Anum_pg_proc_probin, &is_null);
	const char *path = is_null ? "" : TextDatumGetCString(binary);
	const char *separator = last_dir_separator(path);

	return separator == NULL ? path : separator + 1;
}

/* Whether a C function is of one of the libraries whose triggers use no sequence. */
static bool
is_harmless(HeapTuple function)
{
	static const char *const libraries[] = {"moddatetime", "insert_username", "refint", "lo", "tcn"};
	const char *name = library_of(function);

	for (int i = 0; i < lengthof(libraries); i++)
	{
		if (strcmp(name, libraries[i]) == 0)
			return true;
	}
	return false;
}

/*
 * Whether the functions of a language may keep values in the session, as PL/Perl's
 * %_SHARED and PL/Python's GD do.
 */
bool
session_language_keeps(const char *language)
{
	char	   *list;
	List	   *names = NIL;
	ListCell   *cell;

	if (language == NULL || strcmp(language, "plpgsql") == 0 || strcmp(language, "sql") == 0)
		return false;
	list = pstrdup(stateless_languages == NULL ? "" : stateless_languages);
	(void) SplitIdentifierString(list, ',', &names);
	foreach(cell, names)
	{
		if (strcmp(lfirst(cell), language) == 0)
			return false;
	}
	return true;
}

static bool
keeps(HeapTuple function)
{
	const FormData_pg_proc *row = (Form_pg_proc) GETSTRUCT(function);

	if (row->prolang == INTERNALlanguageId)
		return false;
	if (row->prolang != ClanguageId)
		return session_language_keeps(get_language_name(row->prolang, true));
	for (int i = 0; i < lengthof(keeping); i++)
	{
		if (strncmp(NameStr(row->proname), keeping[i].name, strlen(keeping[i].name)) == 0 &&
			strcmp(library_of(function), keeping[i].library) == 0)
			return true;
	}
	return false;
}

static KnownFunction *
known_function(Oid function)
{
	static bool is_told = false;
	KnownFunction *known;
	bool		found;
	bool		keeps_something;
	HeapTuple	tuple;

	if (known_functions != NULL)
	{
		known = hash_search(known_functions, &function, HASH_FIND, NULL);
		if (known != NULL)
			return known;
	}
	if (!is_told)
		CacheRegisterSyscacheCallback(PROCOID, forget_functions, (Datum) 0);
	is_told = true;

	/* A look into the catalog may have all forgotten. */
	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	keeps_something = HeapTupleIsValid(tuple) && keeps(tuple);
	if (known_functions == NULL)
	{
		HASHCTL		control = {0};

		control.keysize = sizeof(Oid);
		control.entrysize = sizeof(KnownFunction);
		known_functions = hash_create("sluice functions", 64, &control, HASH_ELEM | HASH_BLOBS);
	}
	known = hash_search(known_functions, &function, HASH_ENTER, &found);
	known->builtin = InvalidOid;
	known->is_ours = known->is_c = known->is_c_trigger = known->sows = false;
	known->keeps = keeps_something;
	if (HeapTupleIsValid(tuple))
	{
		Form_pg_proc row = (Form_pg_proc) GETSTRUCT(tuple);
		bool		is_null;
		Datum		source = SysCacheGetAttr(PROCOID, tuple, Anum_pg_proc_prosrc, &is_null);

		if (!is_null && row->prolang == INTERNALlanguageId)
			known->builtin = fmgr_internal_function(TextDatumGetCString(source));
		else if (!is_null && row->prolang == ClanguageId)
		{
			/* The functions that the pool calls are not to cost it anything. */
			known->is_ours = strncmp(TextDatumGetCString(source), "sluice_", 7) == 0;
			known->is_c = !known->is_ours;
		}
		known->is_c_trigger = known->is_c && row->prorettype == TRIGGEROID && !is_harmless(tuple);
		known->sows = note_settings_of(tuple);
		ReleaseSysCache(tuple);
	}
	return known;
}

/* Notes what a function leaves behind of which no other hook hears. */
static void
note_unseen(const KnownFunction *known)
{
	if (known->is_c_trigger)
		session_notes.has_sequence = session_notes.used_sequence = true;
	if (known->sows)
		session_notes.has_seed = session_notes.may_have_changed = true;
	if (known->keeps)
		session_note_kept();
}

/* What a function keeps, no command takes away. */
void
session_note_kept(void)
{
	if (!session_notes.has_kept)
		session_notes.has_kept = session_notes.may_have_changed = true;
}

/* A function is about to run; one that may leave something behind is noted. */
static void
note_function(Oid function)
{
	if (function >= FirstNormalObjectId)
	{
		const KnownFunction *known = known_function(function);

		session_notes.may_have_changed |= known->is_c;
		note_unseen(known);
		function = known->builtin;
	}
	switch (function)
	{
		case F_SET_CONFIG:
			session_notes.called_set_config = true;
			break;
		case F_NEXTVAL:
		case F_SETVAL_REGCLASS_INT8:
		case F_SETVAL_REGCLASS_INT8_BOOL:
			session_notes.has_sequence = session_notes.used_sequence = true;
			return;
		case F_SETSEED:
			session_notes.has_seed = true;
			break;
		case SLUICE_F_BACKUP_START:
		case F_PG_REPLICATION_ORIGIN_SESSION_SETUP:
			session_notes.has_kept = true;
			break;
		case F_PG_ADVISORY_LOCK_INT8:
		case F_PG_ADVISORY_LOCK_SHARED_INT8:
		case F_PG_TRY_ADVISORY_LOCK_INT8:
		case F_PG_TRY_ADVISORY_LOCK_SHARED_INT8:
		case F_PG_ADVISORY_LOCK_INT4_INT4:
		case F_PG_ADVISORY_LOCK_SHARED_INT4_INT4:
		case F_PG_TRY_ADVISORY_LOCK_INT4_INT4:
		case F_PG_TRY_ADVISORY_LOCK_SHARED_INT4_INT4:
		case F_PG_ADVISORY_UNLOCK_INT8:
		case F_PG_ADVISORY_UNLOCK_SHARED_INT8:
		case F_PG_ADVISORY_UNLOCK_INT4_INT4:
		case F_PG_ADVISORY_UNLOCK_SHARED_INT4_INT4:
		case F_PG_ADVISORY_UNLOCK_ALL:
			session_notes.may_lock = true;
			break;
		default:
			return;
	}
	session_notes.may_have_changed = true;
}

static void
at_object_access(ObjectAccessType access, Oid class, Oid object, int part, void *arg)
{
	if (previous_object_access)
		previous_object_access(access, class, object, part, arg);
	switch (access)
	{
		case OAT_FUNCTION_EXECUTE:
			/* The protocol's FunctionCall passes no other hook. */
			gate_check_block();
			note_function(object);
			outcome_after_command();
			break;
		case OAT_DROP:
			session_notes.changed_objects = true;
			session_forget_temporary(class, object);
			break;
		case OAT_POST_CREATE:
		case OAT_POST_ALTER:
			session_notes.changed_objects = true;
			break;
		default:
			break;
	}
}

/* Notes that a function is looked up for a call, unless it is PostgreSQL's own. */
static void
note_call(Oid function)
{
	const KnownFunction *known;

	if (function < FirstNormalObjectId)
		return;
	known = known_function(function);
	/* That alone is no change of what the session holds: what the function does, the other hooks see. */
	if (!session_notes.has_called_function && !known->is_ours)
		session_notes.has_called_function = session_notes.called_first_function = true;
	note_unseen(known);
}

/*
 * Each function that is not built in is asked about when it is looked up, be it
 * a trigger's, of which the hook on access to objects hears nothing.
 */
static bool
at_lookup(Oid function)
{
	note_call(function);
	return previous_needs_fmgr != NULL && previous_needs_fmgr(function);
}

/* Those with a setting, or the rights of their owner, are not; but their calls are. */
static void
at_call(FmgrHookEventType event, FmgrInfo *function, Datum *private)
{
	if (event == FHET_START)
		note_call(function->fn_oid);
	if (previous_fmgr != NULL)
		previous_fmgr(event, function, private);
}

static bool
is_list_of_languages(char **value, void **extra, GucSource source)
{
	List	   *names = NIL;
	bool		is_list = SplitIdentifierString(pstrdup(*value), ',', &names);

	if (!is_list)
		GUC_check_errdetail("A list of names with commas between them is wanted.");
	return is_list;
}

static void
take_languages(const char *value, void *extra)
{
	forget_functions((Datum) 0, PROCOID, 0);
}

void
session_define_languages(void)
{
	DefineCustomStringVariable("sluice.stateless_languages",
							   "Procedural languages whose functions keep nothing in the session.",
							   "Those of others tie a client of the pool to its server; of SQL and PL/pgSQL it is known.",
							   &stateless_languages, "", PGC_SIGHUP, GUC_LIST_INPUT,
							   is_list_of_languages, take_languages, NULL);
}

void
session_watch_functions(void)
{
	previous_needs_fmgr = needs_fmgr_hook;
	needs_fmgr_hook = at_lookup;
	previous_fmgr = fmgr_hook;
	fmgr_hook = at_call;
	previous_object_access = object_access_hook;
	object_access_hook = at_object_access;
}
