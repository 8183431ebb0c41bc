/*
 * catalog.c
 *		A count of the catalog's changes, by which a pool's sessions learn of those
 *		that others made.
 *
 * A pool's knowledge of statements and types, from a session's answers, holds
 * until somebody changes the catalog.  The setting "sluice.catalog" is a number
 * that grows with each transaction that did so in this database (and now and then
 * with one of another database), and is reported to the client as
 * "sluice.session" is.
 *
 * It grows before the change can be seen, and again after: who has seen the
 * number before the change and looks after it, sees the number grow.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "common/hashfn.h"
#include "compat.h"
#include "gate.h"
#include "tcop/utility.h"
#include "utils/lsyscache.h"

#define CATALOG_SETTING "sluice.catalog"

/* The setting's variable, for guc.c; its value is never looked at. */
static char *catalog_text = NULL;

/* Whether this transaction changed the catalog. */
static bool has_changed = false;

/*
 * Whether one has that is not quite at its end: others hear of its changes only
 * behind the callbacks, and so its number grows once more when it is reported.
 */
static bool is_unsettled = false;

/* The count when the setting was last flagged. */
static uint64 flagged_at = 0;

static pg_atomic_uint64 *
count_of_database(void)
{
	static pg_atomic_uint64 *count = NULL;

	if (count == NULL)
		count = &sluice_shared->catalog[murmurhash32(MyDatabaseId) % CATALOG_COUNTS];
	return count;
}

static void
raise_count(void)
{
	if (sluice_shared != NULL)
		(void) pg_atomic_fetch_add_u64(count_of_database(), 1);
}

/* Has the count reported if it is not the one that was. */
static void
look_at_count(void)
{
	uint64		now;

	if (!sluice_has_client())
		return;
	now = pg_atomic_read_u64(count_of_database());
	if (now != flagged_at)
	{
		flagged_at = now;
		sluice_flag_for_report(CATALOG_SETTING);
	}
}

/* Whether a name is that of a temporary relation, which exists or is to be made. */
static bool
is_temporary(const RangeVar *name, bool exists)
{
	Oid			schema;
	Oid			id;

	if (name->relpersistence == RELPERSISTENCE_TEMP ||
		(name->schemaname && strcmp(name->schemaname, "pg_temp") == 0))
		return true;
	if (!exists)
		return false;
	/* RangeVarGetRelid() may fail, for the rights to a schema or another database's name: that is PostgreSQL's to say. */
	if (name->schemaname == NULL)
		id = RelnameGetRelid(name->relname);
	else
	{
		schema = get_namespace_oid(name->schemaname, true);
		id = OidIsValid(schema) ? get_relname_relid(name->relname, schema) : InvalidOid;
	}
	return OidIsValid(id) && get_rel_persistence(id) == RELPERSISTENCE_TEMP;
}

static bool
drops_only_temporary(const DropStmt *command)
{
	ListCell   *cell;

	switch (command->removeType)
	{
		case OBJECT_TABLE:
		case OBJECT_SEQUENCE:
		case OBJECT_VIEW:
		case OBJECT_INDEX:
			break;
		default:
			return false;
	}
	foreach(cell, command->objects)
	{
		/* A name of more parts is an error. */
		if (list_length(lfirst(cell)) > 3 || !is_temporary(makeRangeVarFromNameList(lfirst(cell)), true))
			return false;
	}
	return true;
}

/* Whether ALTER TABLE stays with its table. */
static bool
alters_only_itself(const AlterTableStmt *command)
{
	ListCell   *cell;

	foreach(cell, command->cmds)
	{
		AlterTableType type = lfirst_node(AlterTableCmd, cell)->subtype;

		if (type == AT_AddInherit || type == AT_DropInherit)
			return false;
	}
	return true;
}

/* Whether DDL is about what no other session sees. */
static bool
is_about_temporary(const Node *command)
{
	switch (nodeTag(command))
	{
		case T_CreateStmt:
			/* A parent knows of its children. */
			return ((const CreateStmt *) command)->inhRelations == NIL &&
				is_temporary(((const CreateStmt *) command)->relation, false);
		case T_CreateTableAsStmt:
			return is_temporary(((const CreateTableAsStmt *) command)->into->rel, false);
		case T_CreateSeqStmt:
			return is_temporary(((const CreateSeqStmt *) command)->sequence, false);
		case T_AlterSeqStmt:
			return is_temporary(((const AlterSeqStmt *) command)->sequence, true);
		case T_ViewStmt:
			return is_temporary(((const ViewStmt *) command)->view, false);
		case T_IndexStmt:
			return is_temporary(((const IndexStmt *) command)->relation, true);
		case T_AlterTableStmt:
			return alters_only_itself((const AlterTableStmt *) command) &&
				is_temporary(((const AlterTableStmt *) command)->relation, true);
		case T_DropStmt:
			return drops_only_temporary((const DropStmt *) command);
		default:
			return false;
	}
}

/* Whether EXPLAIN makes a table: with ANALYZE, whose value is PostgreSQL's to read. */
static bool
makes_table(const ExplainStmt *command)
{
	const Query *query = (const Query *) command->query;
	ListCell   *cell;

	if (!IsA(query, Query) || query->utilityStmt == NULL || !IsA(query->utilityStmt, CreateTableAsStmt))
		return false;
	foreach(cell, command->options)
	{
		if (strcmp(lfirst_node(DefElem, cell)->defname, "analyze") == 0)
			return true;
	}
	return false;
}

/* Whether a utility command that is about to run changes the catalog. */
bool
catalog_before_utility(Node *command)
{
	bool		changes;

	switch (nodeTag(command))
	{
		case T_TransactionStmt:
			{
				TransactionStmtKind kind = ((TransactionStmt *) command)->kind;

				if (kind == TRANS_STMT_BEGIN || kind == TRANS_STMT_START)
					look_at_count();
				/* Nobody knows any more what was prepared. */
				changes = kind == TRANS_STMT_COMMIT_PREPARED;
				if (changes)
					raise_count();
				break;
			}
		case T_VariableSetStmt:
		case T_VariableShowStmt:
		case T_CopyStmt:
		case T_CallStmt:
		case T_DoStmt:
		case T_FetchStmt:
		case T_PrepareStmt:
			/* A statement of a PREPARE is seen where it runs. */
		case T_ExecuteStmt:
			return false;
		case T_ExplainStmt:
			changes = makes_table((ExplainStmt *) command);
			break;
		default:
			changes = GetCommandLogLevel(command) == LOGSTMT_DDL && !is_about_temporary(command);
			break;
	}
	has_changed |= changes;
	return changes;
}

/*
 * A utility command has changed the catalog. It may have done so in several
 * transactions, of which the last one is under way.
 */
void
catalog_after_change(void)
{
	has_changed = true;
}

void
catalog_at_end(XactEvent event)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
			if (has_changed)
				raise_count();
			break;
		case XACT_EVENT_COMMIT:
			if (has_changed)
			{
				raise_count();
				is_unsettled = true;
			}
			/* FALLTHROUGH */
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			has_changed = false;
			look_at_count();
			break;
		default:
			break;
	}
}

static const char *
show_catalog(void)
{
	static char text[32];

	if (sluice_shared == NULL)
		return "0";
	if (is_unsettled)
		raise_count();
	is_unsettled = false;
	snprintf(text, sizeof(text), UINT64_FORMAT, pg_atomic_read_u64(count_of_database()));
	return text;
}

void
catalog_define_setting(void)
{
	sluice_define_reported(CATALOG_SETTING, "How often the catalog of this database has changed.",
						   &catalog_text, show_catalog);
}
