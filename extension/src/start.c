/*
 * start.c
 *		Settings that a session shall have started with.
 *
 * A client brings settings with its StartupMessage, and a session that a pool
 * hands to it should be as one that it had begun itself: these settings are in
 * force, and RESET goes back to them.  sluice_set_start() makes it so.  It gives a
 * setting the source of a client's request, for which PostgreSQL also changes
 * what RESET goes back to.
 *
 * PostgreSQL has no way back from there: a source is only followed by a higher
 * one.  So what was before is kept here, and put back with its own source, under
 * which later changes of the configuration reach it again.
 *
 * Neither goes with its transaction: what a session started with can't depend on
 * whether a transaction commits.  That is why a setting that was changed in the
 * transaction under way is refused, and so is a call from where PostgreSQL undoes
 * all settings, as in what an index or a materialized view computes.
 */
#include "postgres.h"

#include "compat.h"
#include "gate.h"
#include "postmaster/interrupt.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(sluice_set_start);

/* What a setting started with before it was given something else. */
typedef struct Origin
{
	char	   *name;			/* a library that defines it replaces the setting */
	char	   *value;
	GucSource	source;
	GucContext	context;
	TimestampTz loaded;			/* when the configuration had last been read */
} Origin;

static List *origins = NIL;

static Origin *
origin_of(const char *name)
{
	ListCell   *cell;

	foreach(cell, origins)
	{
		Origin	   *origin = lfirst(cell);

		if (pg_strcasecmp(origin->name, name) == 0)
			return origin;
	}
	return NULL;
}

/* Keeps what a setting started with. */
static void
keep_origin(struct config_generic *setting)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
	Origin	   *origin = palloc(sizeof(Origin));

	origin->name = pstrdup(setting->name);
	origin->value = pstrdup(sluice_setting_text(setting, true));
	origin->source = setting->reset_source;
	origin->context = setting->reset_scontext;
	origin->loaded = PgReloadTime;
	origins = lappend(origins, origin);
	MemoryContextSwitchTo(old);
}

static void
forget_origin(Origin *origin)
{
	origins = list_delete_ptr(origins, origin);
	pfree(origin->name);
	pfree(origin->value);
	pfree(origin);
}

/* Who may set a setting: as set_config() has it. */
static GucContext
own_context(void)
{
	return superuser() ? PGC_SUSET : PGC_USERSET;
}

/*
 * Refuses what SET would refuse: a client's request may do more. It gives a name
 * that is new a setting, as SET does.
 */
static void
check_set(const char *name, const char *value)
{
	(void) set_config_option(name, value, own_context(), PGC_S_SESSION,
							 GUC_ACTION_SET, false, ERROR, false);
}

/* Refuses what has no start that could be changed, or not now. */
static void
check_start(const struct config_generic *setting)
{
	static const char *const refused[] = {
		"role", "session_authorization", "seed",
		"transaction_isolation", "transaction_read_only", "transaction_deferrable"
	};
	bool		is_refused = setting->reset_source > PGC_S_CLIENT;

	for (int i = 0; i < lengthof(refused); i++)
		is_refused |= strcmp(setting->name, refused[i]) == 0;
	if (is_refused)
		ereport(ERROR,
				(errcode(ERRCODE_CANT_CHANGE_RUNTIME_PARAM),
				 errmsg("parameter \"%s\" is not one that a session starts with", setting->name)));
	if (setting->stack != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("parameter \"%s\" has been set in this transaction", setting->name)));
}

static void
set_start(const char *name, const char *value)
{
	struct config_generic *setting;

	check_set(name, value);
	setting = sluice_find_setting(name);
	if (setting == NULL)
		elog(ERROR, "there is no parameter \"%s\"", name);
	check_start(setting);
	if (origin_of(name) == NULL)
		keep_origin(setting);
	(void) set_config_option(name, value, own_context(), PGC_S_CLIENT,
							 GUC_ACTION_SET, true, ERROR, false);
}

static void
put_back(Origin *origin)
{
	struct config_generic *setting = sluice_find_setting(origin->name);
	GucSource	source = setting->source;
	GucSource	reset_source = setting->reset_source;

	check_start(setting);
	check_set(setting->name, origin->value);

	/*
	 * A source has to fall before another value is let in. It never falls to
	 * that of what was built in, for which guc.c keeps another list; the next
	 * one is the same to all who ask.
	 */
	setting->reset_source = Max(origin->source, PGC_S_DYNAMIC_DEFAULT);
	if (setting->source == PGC_S_CLIENT)
		setting->source = setting->reset_source;
	if (set_config_option(setting->name, origin->value, origin->context, setting->reset_source,
						  GUC_ACTION_SET, true, WARNING, false) == 0)
	{
		setting->source = source;
		setting->reset_source = reset_source;
		ereport(ERROR,
				(errcode(ERRCODE_CANT_CHANGE_RUNTIME_PARAM),
				 errmsg("parameter \"%s\" could not be put back to what it started with", setting->name)));
	}

	/* What the files say since then did not get through. */
	if (origin->loaded != PgReloadTime)
		ConfigReloadPending = true;
	forget_origin(origin);
}

/*
 * sluice_set_start(name text, value text) returns void
 *
 * Without a value, back to what the session really started with; without a name
 * as well, so all of them.
 */
Datum
sluice_set_start(PG_FUNCTION_ARGS)
{
	if (InLocalUserIdChange() || InSecurityRestrictedOperation())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("cannot set what a session starts with within a security-restricted operation")));
	if (PG_ARGISNULL(0) && !PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("a value needs the name of a parameter")));
	if (PG_ARGISNULL(0))
	{
		while (origins != NIL)
			put_back(llast(origins));
	}
	else
	{
		char	   *name = text_to_cstring(PG_GETARG_TEXT_PP(0));

		if (!PG_ARGISNULL(1))
			set_start(name, text_to_cstring(PG_GETARG_TEXT_PP(1)));
		else
		{
			Origin	   *origin = origin_of(name);

			if (origin != NULL)
				put_back(origin);
		}
	}
	PG_RETURN_VOID();
}
