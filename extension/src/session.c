/*
 * session.c
 *		What a session holds that it did not hold at its start, told to its client.
 *
 * A pool may hand a session to another client only while it holds nothing of the
 * one before.  To know that from statements a pool would have to understand all
 * of SQL, and functions besides.  The server knows: the setting "sluice.session"
 * says it, and is one of those whose changes are sent to the client before
 * ReadyForQuery (ParameterStatus).  docs/session-report.md has the format.
 *
 * PostgreSQL asks for the value when it is about to send it, after the
 * transaction has ended with all that belongs to its end; so nothing has to be
 * foreseen.  It asks when the setting is flagged, which is done at the end of a
 * transaction in which something was done that can change the value.  Hooks see
 * that: on utility commands, on the start of an executor, and on access to
 * objects, by which functions are seen before they run.  A transaction that did
 * nothing of the kind pays for a few branches.
 *
 * What is held is looked up where it is kept, outside of any transaction, and so
 * without a look into the catalog.  What can't be looked up there is found out
 * before (temporary objects, at commit), or noted for good (that a sequence was
 * used, and others).
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/transam.h"
#include "access/xact.h"
#include "catalog/indexing.h"
#include "catalog/namespace.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_depend.h"
#include "catalog/pg_language.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "commands/prepare.h"
#include "common/shortest_dec.h"
#include "compat.h"
#include "executor/executor.h"
#include "gate.h"
#include "lib/stringinfo.h"
#include "replication/walsender.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#define SESSION_SETTING "sluice.session"

/*
 * Bytes that settings may have together before the pin of a library stands for
 * them: what is reported has to fit into memory, and into the pool's.
 */
#define VALUES_MAX	(1024 * 1024)

static object_access_hook_type previous_object_access = NULL;

/* What the setting is made of, for guc.c; its value is never looked at. */
static char *session_text = NULL;

/* Whether this transaction did anything that can change what is held. */
static bool may_have_changed = false;

/* Whether the value was last asked for while a transaction was under way. */
static bool was_asked_inside = false;

/* Whether this transaction called set_config(), or used a sequence. */
static bool called_set_config = false;
static bool used_sequence = false;

/* What can't be looked up: noted when it is done, some of it for good. */
static bool has_sequence = false;
static bool has_seed = false;
static bool has_library = false;

/* Whether there may be any, so that it has to be looked up. */
static bool may_listen = false;
static bool may_lock = false;

/* Names under which there may be a statement or a cursor. */
static HTAB *prepared_names = NULL;
static HTAB *cursor_names = NULL;

/*
 * Names of custom settings that may have been made. RESET and the end of a
 * transaction leave them there without a value, to the session's end.
 */
static List *custom_names = NIL;

/* Whether the temporary schema has objects, as of the last commit. */
static bool has_temporary = false;

/* DEALLOCATEs of statements that the protocol has prepared, or of all. */
static uint32 deallocations = 0;

/* Whether this transaction created, changed or dropped any object. */
static bool changed_objects = false;

/*
 * Objects of the temporary schema at commit, of which those that go with the
 * transaction (ON COMMIT DROP) are about to be dropped.
 */
typedef struct TemporaryObject
{
	Oid			class;
	Oid			object;
} TemporaryObject;

static TemporaryObject *temporary_objects = NULL;
static int	temporary_count = -1;	/* -1: not looked up in this transaction */

/* Whether this process has a client whom it can tell. */
static bool
has_client(void)
{
	return sluice_shared != NULL && MyBackendType == B_BACKEND && !am_walsender;
}

/*
 * Has a setting reported before the next ReadyForQuery, if its value differs by
 * then. The source is one that is not undone with a transaction, and needs no
 * memory of it, so that this may be called at its end.
 */
void
sluice_flag_for_report(const char *setting)
{
	(void) set_config_option(setting, "", PGC_INTERNAL, PGC_S_OVERRIDE,
							 GUC_ACTION_SET, true, LOG, false);
}

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
	may_have_changed = true;
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

/* Notes the name of a custom setting that is made, or about to be. */
static void
note_custom(const char *name)
{
	ListCell   *cell;
	MemoryContext before;

	foreach(cell, custom_names)
	{
		if (pg_strcasecmp(lfirst(cell), name) == 0)
			return;
	}
	before = MemoryContextSwitchTo(TopMemoryContext);
	custom_names = lappend(custom_names, pstrdup(name));
	MemoryContextSwitchTo(before);
	may_have_changed = true;
}

/* Notes the custom settings that have a value now, which the transaction's end may take away. */
static void
note_customs(void)
{
	List	   *changed = sluice_changed_settings();
	ListCell   *cell;

	foreach(cell, changed)
	{
		struct config_generic *setting = lfirst(cell);

		if (setting->flags & GUC_CUSTOM_PLACEHOLDER)
			note_custom(setting->name);
	}
	list_free(changed);
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

/* Whether the session listens. PostgreSQL tells only by a function for SQL. */
static bool
listens(void)
{
	LOCAL_FCINFO(call, 0);
	FmgrInfo	function;
	ReturnSetInfo result = {.type = T_ReturnSetInfo};

	fmgr_info(F_PG_LISTENING_CHANNELS, &function);
	result.econtext = CreateStandaloneExprContext();
	result.allowedModes = SFRM_ValuePerCall;
	result.returnMode = SFRM_ValuePerCall;
	InitFunctionCallInfoData(*call, &function, 0, InvalidOid, NULL, (Node *) &result);
	(void) FunctionCallInvoke(call);
	FreeExprContext(result.econtext, true);
	return result.isDone == ExprMultipleResult;
}

static bool
is_advisory(const PROCLOCK *held)
{
	return held->tag.myLock->tag.locktag_type == LOCKTAG_ADVISORY && held->holdMask != 0;
}

/*
 * Looks up the objects of the temporary schema. Each of them depends on it, by
 * which PostgreSQL itself drops them at the session's end.
 */
static void
look_up_temporary(void)
{
	Oid			schema;
	Oid			toast_schema;
	Relation	depend;
	ScanKeyData key[2];
	SysScanDesc scan;
	HeapTuple	tuple;
	int			room = 16;

	temporary_count = 0;
	GetTempNamespaceState(&schema, &toast_schema);
	if (!OidIsValid(schema))
		return;
	temporary_objects = MemoryContextAlloc(TopTransactionContext, room * sizeof(TemporaryObject));
	/* What the last command did. */
	CommandCounterIncrement();
	depend = table_open(DependRelationId, AccessShareLock);
	ScanKeyInit(&key[0], Anum_pg_depend_refclassid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(NamespaceRelationId));
	ScanKeyInit(&key[1], Anum_pg_depend_refobjid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(schema));
	scan = systable_beginscan(depend, DependReferenceIndexId, true, NULL, 2, key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_depend row = (Form_pg_depend) GETSTRUCT(tuple);

		if (temporary_count == room)
		{
			room *= 2;
			temporary_objects = repalloc(temporary_objects, room * sizeof(TemporaryObject));
		}
		temporary_objects[temporary_count].class = row->classid;
		temporary_objects[temporary_count].object = row->objid;
		temporary_count++;
	}
	systable_endscan(scan);
	table_close(depend, AccessShareLock);
}

/* An object is dropped after they were looked up: by the end of the transaction. */
static void
forget_temporary(Oid class, Oid object)
{
	for (int i = 0; i < temporary_count; i++)
	{
		if (temporary_objects[i].object == object && temporary_objects[i].class == class)
			temporary_objects[i--] = temporary_objects[--temporary_count];
	}
}

/*
 * What a function that is not built in comes down to: to a built-in one by
 * another name, or to C, which may change settings by itself; or to nothing that
 * is not seen anyway.
 */
typedef struct KnownFunction
{
	Oid			function;
	Oid			builtin;		/* or InvalidOid */
	bool		is_c;
} KnownFunction;

static HTAB *known_functions = NULL;

static void
forget_functions(Datum arg, int cache, uint32 hash)
{
	if (known_functions != NULL)
		hash_destroy(known_functions);
	known_functions = NULL;
}

/* The custom settings that a function has while it runs leave their names, too. */
static void
note_customs_of(HeapTuple function)
{
	bool		is_null;
	Datum		config = SysCacheGetAttr(PROCOID, function, Anum_pg_proc_proconfig, &is_null);
	Datum	   *settings;
	int			count;

	if (is_null)
		return;
	deconstruct_array(DatumGetArrayTypeP(config), TEXTOID, -1, false, TYPALIGN_INT, &settings, NULL, &count);
	for (int i = 0; i < count; i++)
	{
		char	   *setting = TextDatumGetCString(settings[i]);
		char	   *end = strchr(setting, '=');

		if (end != NULL)
			*end = '\0';
		if (strchr(setting, GUC_QUALIFIER_SEPARATOR))
			note_custom(setting);
	}
}

static KnownFunction *
known_function(Oid function)
{
	static bool is_told = false;
	KnownFunction *known;
	bool		found;
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
	if (known_functions == NULL)
	{
		HASHCTL		control = {0};

		control.keysize = sizeof(Oid);
		control.entrysize = sizeof(KnownFunction);
		known_functions = hash_create("sluice functions", 64, &control, HASH_ELEM | HASH_BLOBS);
	}
	known = hash_search(known_functions, &function, HASH_ENTER, &found);
	known->builtin = InvalidOid;
	known->is_c = false;
	if (HeapTupleIsValid(tuple))
	{
		Form_pg_proc row = (Form_pg_proc) GETSTRUCT(tuple);
		bool		is_null;
		Datum		source = SysCacheGetAttr(PROCOID, tuple, Anum_pg_proc_prosrc, &is_null);

		if (!is_null && row->prolang == INTERNALlanguageId)
			known->builtin = fmgr_internal_function(TextDatumGetCString(source));
		/* What the pool calls is not to cost it anything. */
		else if (!is_null && row->prolang == ClanguageId)
			known->is_c = strncmp(TextDatumGetCString(source), "sluice_", 7) != 0;
		note_customs_of(tuple);
		ReleaseSysCache(tuple);
	}
	return known;
}

/* A function is about to run; one that may leave something behind is noted. */
static void
note_function(Oid function)
{
	if (function >= FirstNormalObjectId)
	{
		const KnownFunction *known = known_function(function);

		may_have_changed |= known->is_c;
		function = known->builtin;
	}
	switch (function)
	{
		case F_SET_CONFIG:
			called_set_config = true;
			break;
		case F_NEXTVAL:
		case F_SETVAL_REGCLASS_INT8:
		case F_SETVAL_REGCLASS_INT8_BOOL:
			has_sequence = used_sequence = true;
			break;
		case F_SETSEED:
			has_seed = true;
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
			may_lock = true;
			break;
		default:
			return;
	}
	may_have_changed = true;
}

static void
at_object_access(ObjectAccessType access, Oid class, Oid object, int part, void *arg)
{
	if (previous_object_access)
		previous_object_access(access, class, object, part, arg);
	switch (access)
	{
		case OAT_FUNCTION_EXECUTE:
			note_function(object);
			break;
		case OAT_DROP:
			changed_objects = true;
			if (temporary_count > 0)
				forget_temporary(class, object);
			break;
		case OAT_POST_CREATE:
		case OAT_POST_ALTER:
			changed_objects = true;
			break;
		default:
			break;
	}
}

/* The default of an identity column calls no function that could be seen. */
static bool
has_next_value(const List *target_list)
{
	ListCell   *cell;

	foreach(cell, target_list)
	{
		if (IsA(lfirst_node(TargetEntry, cell)->expr, NextValueExpr))
			return true;
	}
	return false;
}

static bool
uses_identity(const Plan *plan)
{
	const ModifyTable *modify;

	if (!IsA(plan, ModifyTable))
		return false;
	modify = (const ModifyTable *) plan;
	if (has_next_value(outerPlan(plan)->targetlist) || has_next_value(modify->onConflictSet))
		return true;
	return sluice_any_merge_action(modify, has_next_value);
}

void
session_before_executor(const PlannedStmt *statement)
{
	bool		found;
	ListCell   *cell;

	if (has_sequence || (statement->commandType == CMD_SELECT && !statement->hasModifyingCTE))
		return;
	found = uses_identity(statement->planTree);
	if (statement->hasModifyingCTE)
	{
		foreach(cell, statement->subplans)
			found |= lfirst(cell) != NULL && uses_identity(lfirst(cell));
	}
	if (found)
		has_sequence = used_sequence = may_have_changed = true;
}

static void
note_set(const VariableSetStmt *command)
{
	/* It sows when it is set, and what was sown stays when it is not any more. */
	if (command->name && pg_strcasecmp(command->name, "seed") == 0)
		has_seed = may_have_changed = true;
	if (command->name && strchr(command->name, GUC_QUALIFIER_SEPARATOR))
		note_custom(command->name);
	/* What goes with the transaction is not held by the session. */
	if (command->is_local ||
		(command->kind == VAR_SET_MULTI && strcmp(command->name, "SESSION CHARACTERISTICS") != 0))
		return;
	may_have_changed = true;
}

/* Whether rows of a table get values of a new identity column. */
static bool
adds_identity(const AlterTableStmt *command)
{
	ListCell   *cell;

	foreach(cell, command->cmds)
	{
		const AlterTableCmd *part = lfirst_node(AlterTableCmd, cell);
		ListCell   *constraint;

		if (part->subtype != AT_AddColumn)
			continue;
		foreach(constraint, ((ColumnDef *) part->def)->constraints)
		{
			if (lfirst_node(Constraint, constraint)->contype == CONSTR_IDENTITY)
				return true;
		}
	}
	return false;
}

/*
 * Whether COPY will make values of an identity column. It keeps the table, which
 * it is about to lock itself.
 */
static bool
copies_identity(const CopyStmt *command)
{
	Relation	table;
	Oid			id;
	bool		found = false;
	ListCell   *cell;

	if (!command->is_from || command->relation == NULL)
		return false;
	id = RangeVarGetRelid(command->relation, AccessShareLock, true);
	if (!OidIsValid(id))
		return false;
	table = relation_open(id, NoLock);
	for (int i = 0; i < RelationGetNumberOfAttributes(table); i++)
	{
		Form_pg_attribute column = TupleDescAttr(RelationGetDescr(table), i);
		bool		is_given = command->attlist == NIL;

		if (column->attisdropped || column->attidentity == '\0')
			continue;
		foreach(cell, command->attlist)
			is_given |= strcmp(strVal(lfirst(cell)), NameStr(column->attname)) == 0;
		/* A value that is given may still ask for the default. */
		foreach(cell, command->options)
			is_given &= strcmp(lfirst_node(DefElem, cell)->defname, "default") != 0;
		found |= !is_given;
	}
	relation_close(table, NoLock);
	return found;
}

/* DEALLOCATE may be said by a function, and mean statements of the protocol. */
static void
note_deallocate(const DeallocateStmt *command)
{
	PreparedStatement *statement = command->name ? FetchPreparedStatement(command->name, false) : NULL;

	if (command->name == NULL || (statement != NULL && !statement->from_sql))
		deallocations++;
}

/* A utility command is about to run. */
void
session_before_utility(const Node *command, UtilityNote *note)
{
	note->libraries = 0;
	note->forgets_sequences = false;
	switch (nodeTag(command))
	{
		case T_VariableSetStmt:
			note_set((const VariableSetStmt *) command);
			break;
		case T_PrepareStmt:
			note_name(&prepared_names, "sluice prepared statements", ((const PrepareStmt *) command)->name);
			break;
		case T_DeclareCursorStmt:
			{
				const DeclareCursorStmt *declare = (const DeclareCursorStmt *) command;

				if (declare->options & CURSOR_OPT_HOLD)
					note_name(&cursor_names, "sluice cursors", declare->portalname);
				break;
			}
		case T_ListenStmt:
			may_listen = may_have_changed = true;
			break;
		case T_DeallocateStmt:
			note_deallocate((const DeallocateStmt *) command);
			may_have_changed = true;
			break;
		case T_UnlistenStmt:
		case T_ClosePortalStmt:
			may_have_changed = true;
			break;
		case T_DiscardStmt:
			{
				DiscardMode target = ((const DiscardStmt *) command)->target;

				note->forgets_sequences = target == DISCARD_ALL || target == DISCARD_SEQUENCES;
				may_have_changed = true;
				break;
			}
		case T_LoadStmt:
			note->libraries = EstimateLibraryStateSpace();
			break;
		case T_AlterTableStmt:
			if (adds_identity((const AlterTableStmt *) command))
				has_sequence = used_sequence = may_have_changed = true;
			break;
		case T_CopyStmt:
			if (!has_sequence && copies_identity((const CopyStmt *) command))
				has_sequence = used_sequence = may_have_changed = true;
			break;
		default:
			break;
	}
}

/* A utility command has succeeded. Its tree may be gone. */
void
session_after_utility(const UtilityNote *note)
{
	/* One that was there before has changed nothing. */
	if (note->libraries > 0 && EstimateLibraryStateSpace() != note->libraries)
		has_library = may_have_changed = true;
	/* A cursor of this transaction may use one yet. */
	if (note->forgets_sequences && !used_sequence)
		has_sequence = false;
}

/* What set_config() sowed by "seed", for it is not known what was set. */
static void
look_for_seed(void)
{
	static struct config_generic *seed = NULL;

	if (seed == NULL)
		seed = sluice_find_setting("seed");
	if (seed != NULL && seed->source == PGC_S_SESSION)
		has_seed = true;
}

static void
at_end_of_subtransaction(SubXactEvent event, SubTransactionId mine, SubTransactionId parent, void *arg)
{
	if (event != SUBXACT_EVENT_ABORT_SUB)
		return;
	if (called_set_config)
	{
		look_for_seed();
		note_customs();
	}
}

/*
 * Whether a statement or a cursor that is reported is gone. The protocol can
 * close them without a command.
 */
static bool is_reported_prepared = false;
static bool is_reported_cursor = false;

static bool
any_is_gone(void)
{
	return (is_reported_prepared && !any_exists(prepared_names, is_prepared_by_sql, true)) ||
		(is_reported_cursor && !any_exists(cursor_names, is_held_cursor, true));
}

void
session_at_end(XactEvent event)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PRE_PREPARE:
			/* What fails for want of memory must fail before the commit. */
			if (called_set_config)
				note_customs();
			if (event == XACT_EVENT_PRE_COMMIT && changed_objects && has_client())
				look_up_temporary();
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			if (event == XACT_EVENT_COMMIT && temporary_count >= 0 &&
				has_temporary != (temporary_count > 0))
			{
				has_temporary = temporary_count > 0;
				may_have_changed = true;
			}
			if (called_set_config)
			{
				look_for_seed();
				if (event == XACT_EVENT_ABORT)
					note_customs();
			}
			if ((may_have_changed || was_asked_inside || any_is_gone()) && has_client())
				sluice_flag_for_report(SESSION_SETTING);
			may_have_changed = was_asked_inside = false;
			called_set_config = used_sequence = changed_objects = false;
			temporary_objects = NULL;
			temporary_count = -1;
			break;
		default:
			break;
	}
}

static void
append_pin(StringInfo report, const char *pin, bool holds)
{
	if (holds)
		appendStringInfo(report, "%s%s", report->len == 0 ? "pins=" : ",", pin);
}

static void
append_hex(StringInfo report, const char *bytes)
{
	static const char digits[] = "0123456789abcdef";

	for (; *bytes != '\0'; bytes++)
	{
		appendStringInfoCharMacro(report, digits[(unsigned char) *bytes >> 4]);
		appendStringInfoCharMacro(report, digits[(unsigned char) *bytes & 0xF]);
	}
}

/* Whether a setting is one that the session has set and another may be given. */
static bool
is_set(const struct config_generic *setting)
{
	static const char *const left_out[] = {
		"transaction_isolation", "transaction_read_only", "transaction_deferrable", "seed"
	};

	if (setting->source != PGC_S_SESSION || setting->context == PGC_INTERNAL ||
		pg_strncasecmp(setting->name, "sluice.", 7) == 0)
		return false;
	for (int i = 0; i < lengthof(left_out); i++)
	{
		if (strcmp(setting->name, left_out[i]) == 0)
			return false;
	}
	return true;
}

/*
 * The value of a setting, or the one that RESET goes back to, as set_config()
 * takes it to bring exactly it about.
 */
const char *
sluice_setting_text(struct config_generic *setting, bool at_reset)
{
	static char buffer[64];

	switch (setting->vartype)
	{
		case PGC_BOOL:
			{
				struct config_bool *conf = (struct config_bool *) setting;

				return (at_reset ? conf->reset_val : *conf->variable) ? "on" : "off";
			}
		case PGC_INT:
			{
				struct config_int *conf = (struct config_int *) setting;

				snprintf(buffer, sizeof(buffer), "%d", at_reset ? conf->reset_val : *conf->variable);
				return buffer;
			}
		case PGC_REAL:
			{
				struct config_real *conf = (struct config_real *) setting;

				double_to_shortest_decimal_buf(at_reset ? conf->reset_val : *conf->variable, buffer);
				return buffer;
			}
		case PGC_ENUM:
			{
				struct config_enum *conf = (struct config_enum *) setting;

				return config_enum_lookup_by_value(conf, at_reset ? conf->reset_val : *conf->variable);
			}
		case PGC_STRING:
			{
				struct config_string *conf = (struct config_string *) setting;
				const char *text = at_reset ? conf->reset_val : *conf->variable;

				/* A role that SET SESSION AUTHORIZATION has put out of force. */
				if (!at_reset && strcmp(setting->name, "role") == 0)
					text = conf->show_hook();
				return text ? text : "";
			}
	}
	return "";
}

static int
compare_names(const ListCell *a, const ListCell *b)
{
	return strcmp(((const struct config_generic *) lfirst(a))->name,
				  ((const struct config_generic *) lfirst(b))->name);
}

/* What was set: "set=", or nothing. False if it is too much. */
static bool
append_settings(StringInfo report)
{
	List	   *changed = sluice_changed_settings();
	List	   *settings = NIL;
	ListCell   *cell;
	Size		size = 0;

	foreach(cell, changed)
	{
		struct config_generic *setting = lfirst(cell);

		if (is_set(setting))
		{
			size += strlen(setting->name) + strlen(sluice_setting_text(setting, false));
			settings = lappend(settings, setting);
		}
	}
	list_free(changed);
	if (size > VALUES_MAX)
		return false;
	list_sort(settings, compare_names);
	foreach(cell, settings)
	{
		struct config_generic *setting = lfirst(cell);

		appendStringInfoString(report, report->len == 0 ? "set=" : ",");
		append_hex(report, setting->name);
		appendStringInfoCharMacro(report, ':');
		append_hex(report, sluice_setting_text(setting, false));
	}
	list_free(settings);
	return true;
}

/* Custom settings that are there without a value of the session's: "made=", or nothing. */
static void
append_made(StringInfo report)
{
	const char *before = "made=";
	ListCell   *cell;

	foreach(cell, custom_names)
	{
		const char *name = lfirst(cell);
		struct config_generic *setting = sluice_find_setting(name);

		if (setting == NULL || (setting->flags & GUC_CUSTOM_PLACEHOLDER) == 0 || is_set(setting))
			continue;
		if (report->len > 0 && *before == 'm')
			appendStringInfoCharMacro(report, ' ');
		appendStringInfoString(report, before);
		append_hex(report, setting->name);
		before = ",";
	}
}

/* What is to be reported. */
static const char *
show_session(void)
{
	StringInfoData report;
	StringInfoData settings;
	bool		is_whole;

	/*
	 * A transaction that has failed has left all behind, and its ROLLBACK is
	 * not heard of; unless only a part of it has failed.
	 */
	was_asked_inside = IsTransactionState() || GetCurrentTransactionNestLevel() > 1;
	is_reported_prepared = any_exists(prepared_names, is_prepared_by_sql, !was_asked_inside);
	is_reported_cursor = any_exists(cursor_names, is_held_cursor, !was_asked_inside);
	may_listen = may_listen && (was_asked_inside | listens());
	/* A lock of a transaction is gone by its end. */
	if (may_lock && !sluice_any_lock(is_advisory) && !was_asked_inside)
		may_lock = false;

	initStringInfo(&settings);
	is_whole = append_settings(&settings);
	initStringInfo(&report);
	append_pin(&report, "temp", has_temporary);
	append_pin(&report, "lock", may_lock);
	append_pin(&report, "listen", may_listen);
	append_pin(&report, "cursor", is_reported_cursor);
	append_pin(&report, "prepare", is_reported_prepared);
	append_pin(&report, "sequence", has_sequence);
	append_pin(&report, "seed", has_seed);
	append_pin(&report, "load", has_library || !is_whole);
	if (report.len > 0 && settings.len > 0)
		appendStringInfoCharMacro(&report, ' ');
	appendBinaryStringInfo(&report, settings.data, settings.len);
	pfree(settings.data);
	append_made(&report);
	if (deallocations > 0)
		appendStringInfo(&report, "%sdeallocated=%u", report.len > 0 ? " " : "", deallocations);
	return report.data;
}

void
session_define_setting(void)
{
	DefineCustomStringVariable(SESSION_SETTING,
							   "What this session holds that it did not hold at its start.",
							   NULL, &session_text, "", PGC_INTERNAL,
							   GUC_REPORT | GUC_NO_SHOW_ALL | GUC_NOT_IN_SAMPLE | GUC_DISALLOW_IN_FILE,
							   NULL, NULL, show_session);
}

void
session_init(void)
{
	previous_object_access = object_access_hook;
	object_access_hook = at_object_access;
	/* What it takes to find them is spared to each session. */
	list_free(sluice_changed_settings());
	RegisterSubXactCallback(at_end_of_subtransaction, NULL);
}
