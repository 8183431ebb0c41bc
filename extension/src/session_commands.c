/*
 * session_commands.c
 *		The commands of a session that may leave something, noted before they run.
 *
 * Also what uses a sequence without a call of a function that could be seen: an
 * identity column.
 */
#include "postgres.h"

#include "access/relation.h"
#include "catalog/namespace.h"
#include "catalog/pg_authid.h"
#include "commands/prepare.h"
#include "compat.h"
#include "executor/executor.h"
#include "gate.h"
#include "miscadmin.h"
#include "session.h"
#include "utils/acl.h"
#include "utils/rel.h"

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

	if (session_notes.has_sequence || (statement->commandType == CMD_SELECT && !statement->hasModifyingCTE))
		return;
	found = uses_identity(statement->planTree);
	if (statement->hasModifyingCTE)
	{
		foreach(cell, statement->subplans)
			found |= lfirst(cell) != NULL && uses_identity(lfirst(cell));
	}
	if (found)
		session_notes.has_sequence = session_notes.used_sequence = true;
}

/* A custom setting is made where it is looked for, also to be kept with a function, a role or a database. */
static void
note_custom(const VariableSetStmt *command)
{
	if (command->name && strchr(command->name, GUC_QUALIFIER_SEPARATOR))
		session_note_custom(command->name);
}

/* The options of a function. */
static void
note_options(const List *options)
{
	ListCell   *cell;

	foreach(cell, options)
	{
		const DefElem *option = lfirst_node(DefElem, cell);

		if (strcmp(option->defname, "set") == 0)
			note_custom(castNode(VariableSetStmt, option->arg));
	}
}

/* The language of a DO, or NULL for PL/pgSQL. */
static const char *
language_of(const DoStmt *command)
{
	ListCell   *cell;

	foreach(cell, command->args)
	{
		const DefElem *argument = lfirst_node(DefElem, cell);

		if (strcmp(argument->defname, "language") == 0)
			return strVal(argument->arg);
	}
	return NULL;
}

static void
note_set(const VariableSetStmt *command)
{
	/* It sows when it is set, and what was sown stays when it is not any more. */
	if (command->name && pg_strcasecmp(command->name, "seed") == 0)
		session_notes.has_seed = session_notes.may_have_changed = true;
	note_custom(command);
	/* A setting that goes with the transaction is not held by the session. */
	if (command->is_local ||
		(command->kind == VAR_SET_MULTI && strcmp(command->name, "SESSION CHARACTERISTICS") != 0))
		return;
	session_notes.may_have_changed = true;
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

/* Whether the session's role may not read files or run programs, which COPY says before it looks at its table. */
static bool
is_refused(const CopyStmt *command)
{
	return command->filename != NULL &&
		!has_privs_of_role(GetUserId(), command->is_program ? ROLE_PG_EXECUTE_SERVER_PROGRAM : ROLE_PG_READ_SERVER_FILES);
}

/*
 * Whether COPY will make values of an identity column.  The table is kept, under the
 * lock that COPY takes next: a weaker one would have to be raised then, which is a
 * deadlock with whoever waits for this one.
 */
static bool
copies_identity(const CopyStmt *command)
{
	Relation	table;
	Oid			id;
	bool		found = false;
	ListCell   *cell;

	if (!command->is_from || command->relation == NULL || is_refused(command))
		return false;
	id = RangeVarGetRelid(command->relation, RowExclusiveLock, true);
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
		session_notes.deallocations++;
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
		case T_CreateFunctionStmt:
			note_options(((const CreateFunctionStmt *) command)->options);
			break;
		case T_AlterFunctionStmt:
			note_options(((const AlterFunctionStmt *) command)->actions);
			break;
		case T_AlterRoleSetStmt:
			note_custom(((const AlterRoleSetStmt *) command)->setstmt);
			break;
		case T_AlterDatabaseSetStmt:
			note_custom(((const AlterDatabaseSetStmt *) command)->setstmt);
			break;
		case T_PrepareStmt:
			session_note_prepared(((const PrepareStmt *) command)->name);
			break;
		case T_DeclareCursorStmt:
			{
				const DeclareCursorStmt *declare = (const DeclareCursorStmt *) command;

				if (declare->options & CURSOR_OPT_HOLD)
					session_note_cursor(declare->portalname);
				break;
			}
		case T_ListenStmt:
			session_notes.may_listen = session_notes.may_have_changed = true;
			break;
		case T_DeallocateStmt:
			note_deallocate((const DeallocateStmt *) command);
			session_notes.may_have_changed = true;
			break;
		case T_UnlistenStmt:
		case T_ClosePortalStmt:
			session_notes.may_have_changed = true;
			break;
		case T_DiscardStmt:
			{
				DiscardMode target = ((const DiscardStmt *) command)->target;

				note->forgets_sequences = target == DISCARD_ALL || target == DISCARD_SEQUENCES;
				session_notes.may_have_changed = true;
				break;
			}
		case T_DoStmt:
			if (session_language_keeps(language_of((const DoStmt *) command)))
				session_note_kept();
			break;
		case T_LoadStmt:
			note->libraries = EstimateLibraryStateSpace();
			break;
		case T_AlterTableStmt:
			if (adds_identity((const AlterTableStmt *) command))
				session_notes.has_sequence = session_notes.used_sequence = true;
			break;
		case T_CopyStmt:
			if (!session_notes.has_sequence && copies_identity((const CopyStmt *) command))
				session_notes.has_sequence = session_notes.used_sequence = true;
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
		session_notes.has_library = session_notes.may_have_changed = true;
	/* A cursor of this transaction may use one yet. */
	if (note->forgets_sequences && !session_notes.used_sequence)
		session_notes.has_sequence = false;
}
