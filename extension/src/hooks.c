/*
 * hooks.c
 *		When a session has to pass a gate, and when it leaves.
 *
 * A transaction block waits at its BEGIN, where it has neither a snapshot nor
 * a lock.  A single statement waits when its executor starts, or its COPY:
 * PostgreSQL offers no place before that at which the statement is known, so
 * it has locked its tables and has its snapshot by then (what that means for
 * deadlocks, see gate.c).  Both leave when their transaction has ended,
 * however it ended, or keep their place for the next one (turns.c).  Who is
 * inside passes freely: statements of a block, nested ones of functions and
 * triggers, cursors.
 *
 * Where a BEGIN stands behind other statements of the same string, these are part
 * of its block: it waits then, with what they have locked, and what they had
 * passed with is given back.
 *
 * A BEGIN does not fail because its wait did.  Nearly all clients send what
 * belongs to a block whatever became of its BEGIN, and would have it run outside
 * of any.  So the block begins, the error is kept, and the block's next statement
 * raises it, which aborts the block as any error does.
 *
 * The following never wait:
 *
 * - utility commands, and what they execute on their way: they are rare, DDL and
 *	 maintenance are what an administrator needs where load is high, and they
 *	 hold strong locks.  Those that are queries by another name do wait: COPY
 *	 (but not of a program), EXECUTE,
 *	 EXPLAIN ANALYZE, CREATE TABLE AS, DECLARE, and what CALL and DO do.
 * - what the planner executes, where it works out immutable functions or estimates
 *	 by stable ones, and EXPLAIN where it prunes partitions: the statement itself
 *	 waits when it is to run, in its own class.
 * - what is no client's: autovacuum, background workers, parallel workers
 *	 (their leader has a place), walsenders, and with them replication and
 *	 logical decoding.
 * - what runs before a session's first command, which are triggers of its login:
 *	 an error there would end the connection.
 * - sessions of exempt roles and databases.
 *
 * Superusers wait as all others do, with some places in reserve
 * ("sluice.superuser_reserved").
 *
 * The same hooks show to session.c and catalog.c what a pool is to be told.
 */
#include "postgres.h"

#include "access/xact.h"
#include "compat.h"
#include "executor/executor.h"
#include "gate.h"
#include "libpq/libpq-be.h"
#include "optimizer/planner.h"
#include "replication/walsender.h"
#include "tcop/utility.h"

PG_MODULE_MAGIC;

void		_PG_init(void);

static shmem_request_hook_type previous_shmem_request = NULL;
static shmem_startup_hook_type previous_shmem_startup = NULL;
static ProcessUtility_hook_type previous_ProcessUtility = NULL;
static planner_hook_type previous_planner = NULL;
static ExecutorStart_hook_type previous_ExecutorStart = NULL;

/*
 * Whether this transaction has passed its gates, or has none to pass. What it
 * holds does not tell: a gate may have had no limit then. Nor does
 * IsTransactionBlock(), which is also true of several statements in one string.
 */
static bool has_passed = false;

/* The class with which it has, if it has. */
static GateClass passed_class;

/*
 * Whether a block has begun by COMMIT AND CHAIN or ROLLBACK AND CHAIN, and not
 * by a BEGIN. It waits at its first statement.
 */
static bool is_chained = false;

/* By which event a block that is to be chained will end, if one is. */
static int	chains_at = -1;

/*
 * The error by which this block's wait at its BEGIN ended, until it is raised, in
 * memory of the transaction; or NULL.
 */
static ErrorData *begin_error = NULL;

/* The depth of this session in utility commands that don't wait. */
static int	utility_depth = 0;

/* Its depth in commands that make a table of a query's result, or a view. */
static int	into_depth = 0;

/*
 * Its depth in planning, and in starting executors for EXPLAIN alone, which both
 * may call functions.
 */
static int	planner_depth = 0;

/* Whether gates are this session's business. */
static bool
is_concerned(void)
{
	return sluice_shared != NULL && MyBackendType == B_BACKEND &&
		!am_walsender && MyProcPort != NULL && !sluice_is_starting() &&
		!sluice_is_exempt(MyProcPort->user_name, MyProcPort->database_name);
}

static GateClass
class_of(const QueryDesc *query)
{
	const PlannedStmt *plan = query->plannedstmt;

	if (sluice_bigquery_cost > 0 && plan->planTree->total_cost >= sluice_bigquery_cost &&
		gate_has_limit(&sluice_shared->gates[GATE_BIGQUERY]))
		return GATE_BIGQUERY;
	if (plan->commandType == CMD_SELECT && !plan->hasModifyingCTE && plan->rowMarks == NIL &&
		into_depth == 0 && !(query->dest && query->dest->mydest == DestIntoRel))
		return GATE_QUERY;
	return GATE_AUTOCOMMIT;
}

/* Whether what comes now is the first of its transaction that may have to wait. */
static bool
is_outside(void)
{
	return !has_passed && utility_depth == 0 && planner_depth == 0;
}

static void
enter(GateClass class)
{
	if (is_chained)
		class = GATE_TRANSACTION;
	sluice_take_up_reload();
	if (is_concerned())
		gate_enter(class);
	passed_class = class;
	has_passed = true;
}

/*
 * A BEGIN comes behind other statements of the same string, whose transaction
 * becomes the block: gives their place back, and waits for a block's.  They may
 * have locked what others wait for, which ends the wait (deadlock.c).
 */
static void
enter_again(void)
{
	has_passed = false;
	gate_leave_class();
	enter(GATE_TRANSACTION);
}

/*
 * Lets a block in at its BEGIN.  An error of the wait is kept.  It comes out of
 * gate_enter(), which has then given back all that it had taken and holds nothing
 * else that only the end of the transaction would clean up.
 */
static void
enter_block(void)
{
	MemoryContext context = CurrentMemoryContext;

	PG_TRY();
	{
		if (has_passed)
			enter_again();
		else
			enter(GATE_TRANSACTION);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(TopTransactionContext);
		begin_error = CopyErrorData();
		FlushErrorState();
		if (begin_error->context == NULL)
			begin_error->context = pstrdup("waiting at the BEGIN of this transaction block");
		MemoryContextSwitchTo(context);
		/* All that is left to it is to fail. */
		passed_class = GATE_TRANSACTION;
		has_passed = true;
	}
	PG_END_TRY();
}

static void
raise_begin_error(void)
{
	ErrorData  *error = begin_error;

	begin_error = NULL;
	ThrowErrorData(error);
}

/* Something is to run: not in a block that has not been let in. */
void
gate_check_block(void)
{
	if (unlikely(begin_error != NULL))
		raise_begin_error();
}

/*
 * A command comes in a block that has not been let in.  Rolling back is what is
 * left to do anyway.  One that asks for a commit has to fail as well, and the
 * block be over, as where a deferred constraint fails: so it raises the error
 * itself, once it has had the block end.
 */
static bool
ends_block(const Node *command)
{
	if (!IsA(command, TransactionStmt))
		return false;
	switch (((const TransactionStmt *) command)->kind)
	{
		case TRANS_STMT_COMMIT:
		case TRANS_STMT_PREPARE:
		case TRANS_STMT_ROLLBACK:
			return true;
		default:
			return false;
	}
}

static PlannedStmt *
sluice_planner(Query *query, const char *text, int options, ParamListInfo params)
{
	PlannedStmt *plan;

	planner_depth++;
	PG_TRY();
	{
		plan = previous_planner(query, text, options, params);
	}
	PG_FINALLY();
	{
		planner_depth--;
	}
	PG_END_TRY();
	return plan;
}

/* Starts an executor of which EXPLAIN shows the plan, and nothing is run. */
static void
start_explained(QueryDesc *query, int eflags)
{
	planner_depth++;
	PG_TRY();
	{
		previous_ExecutorStart(query, eflags);
	}
	PG_FINALLY();
	{
		planner_depth--;
	}
	PG_END_TRY();
}

static void
sluice_ExecutorStart(QueryDesc *query, int eflags)
{
	gate_check_block();
	gate_note_progress();
	session_before_executor(query->plannedstmt);
	if (eflags & EXEC_FLAG_EXPLAIN_ONLY)
	{
		start_explained(query, eflags);
		return;
	}
	if (is_outside())
		enter(class_of(query));
	previous_ExecutorStart(query, eflags);
}

/* Whether a utility command is a query by another name. */
static bool
is_query(NodeTag command)
{
	switch (command)
	{
		case T_CopyStmt:
		case T_ExecuteStmt:
		case T_ExplainStmt:
		case T_CreateTableAsStmt:
		case T_DeclareCursorStmt:
		case T_CallStmt:
		case T_DoStmt:
			return true;
		default:
			return false;
	}
}

/*
 * Whether a command copies from or to a program, which may be a client of this
 * server.  It would wait for a place that its own COPY has; and what it is fed
 * with, or writes, must not wait once it runs: triggers, defaults.
 */
static bool
is_of_program(const Node *command)
{
	return IsA(command, CopyStmt) && ((const CopyStmt *) command)->is_program;
}

/* Whether a command begins a block, and not within one. */
static bool
begins_block(const Node *command)
{
	TransactionStmtKind kind;

	if (!IsA(command, TransactionStmt))
		return false;
	kind = ((const TransactionStmt *) command)->kind;
	return (kind == TRANS_STMT_BEGIN || kind == TRANS_STMT_START) &&
		(!has_passed || passed_class != GATE_TRANSACTION);
}

/*
 * Whether a COPY waits before anything of it is done.  One of a query waits where
 * that starts, when its class is known.
 */
static bool
waits_as_copy(const Node *command)
{
	return IsA(command, CopyStmt) && ((const CopyStmt *) command)->query == NULL &&
		!is_of_program(command);
}

static void
before_utility(Node *command)
{
	if (begins_block(command))
		enter_block();
	else if (is_outside() && waits_as_copy(command))
		enter(((CopyStmt *) command)->is_from ? GATE_AUTOCOMMIT : GATE_QUERY);
}

/*
 * A command about transactions has succeeded, though what it asks for happens
 * later. A block that had failed before has no end any more to wait for.
 */
static void
after_transaction_command(TransactionStmtKind kind, bool chain, bool had_failed)
{
	if (kind != TRANS_STMT_COMMIT && kind != TRANS_STMT_ROLLBACK)
		chain = false;
	is_chained = chain && had_failed;
	chains_at = -1;
	if (chain && !had_failed)
		chains_at = kind == TRANS_STMT_COMMIT ? XACT_EVENT_COMMIT : XACT_EVENT_ABORT;
}

/* Runs a utility command one level deeper by some count. */
static void
run_deeper(int *depth, PlannedStmt *plan, const char *text, bool read_only_tree,
		   ProcessUtilityContext context, ParamListInfo params,
		   QueryEnvironment *environment, DestReceiver *dest,
		   QueryCompletion *completion)
{
	(*depth)++;
	PG_TRY();
	{
		previous_ProcessUtility(plan, text, read_only_tree, context, params,
								environment, dest, completion);
	}
	PG_FINALLY();
	{
		(*depth)--;
	}
	PG_END_TRY();
}

static void
sluice_ProcessUtility(PlannedStmt *plan, const char *text, bool read_only_tree,
					  ProcessUtilityContext context, ParamListInfo params,
					  QueryEnvironment *environment, DestReceiver *dest,
					  QueryCompletion *completion)
{
	Node	   *command = plan->utilityStmt;
	NodeTag		tag = nodeTag(command);
	UtilityNote note;
	bool		changes_catalog;

	if (!ends_block(command))
		gate_check_block();
	gate_note_progress();
	before_utility(command);
	session_before_utility(command, &note);
	changes_catalog = catalog_before_utility(command);
	if (tag == T_TransactionStmt)
	{
		/* The tree may be gone afterwards. */
		TransactionStmtKind kind = ((TransactionStmt *) command)->kind;
		bool		chain = ((TransactionStmt *) command)->chain;
		bool		had_failed = IsAbortedTransactionBlockState();

		previous_ProcessUtility(plan, text, read_only_tree, context, params,
								environment, dest, completion);
		if (kind == TRANS_STMT_COMMIT || kind == TRANS_STMT_PREPARE)
			gate_check_block();
		after_transaction_command(kind, chain, had_failed);
	}
	else if (tag == T_CreateTableAsStmt)
		run_deeper(&into_depth, plan, text, read_only_tree, context, params,
				   environment, dest, completion);
	else if (is_query(tag) && !is_of_program(command))
		previous_ProcessUtility(plan, text, read_only_tree, context, params,
								environment, dest, completion);
	else
		run_deeper(&utility_depth, plan, text, read_only_tree, context, params,
				   environment, dest, completion);
	session_after_utility(&note);
	if (changes_catalog)
		catalog_after_change();
}

static void
at_end_of_transaction(XactEvent event, void *arg)
{
	session_at_end(event);
	catalog_at_end(event);
	switch (event)
	{
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			gate_leave();
			has_passed = false;
			begin_error = NULL;
			is_chained = chains_at == (int) event;
			chains_at = -1;
			break;
		default:
			break;
	}
}

static void
request_shared_memory(void)
{
	if (previous_shmem_request)
		previous_shmem_request();
	RequestAddinShmemSpace(sluice_shared_size());
	RequestNamedLWLockTranche("sluice_gate", GATES + 1);
}

static void
start_shared_memory(void)
{
	bool		found;

	if (previous_shmem_startup)
		previous_shmem_startup();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	sluice_shared = ShmemInitStruct("sluice", sluice_shared_size(), &found);
	sluice_shared_init(found);
	LWLockRelease(AddinShmemInitLock);
	if (!found)
	{
		/* The first sessions do not wait for the keeper. */
		sluice_forget_searches();
		sluice_publish_settings(true);
	}
}

void
_PG_init(void)
{
	if (!process_shared_preload_libraries_in_progress)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("sluice must be loaded when the server starts"),
				 errhint("Add \"sluice\" to \"shared_preload_libraries\", and restart the server.")));

	sluice_define_settings();
	sluice_register_keeper();

	SLUICE_ON_SHMEM_REQUEST(previous_shmem_request, request_shared_memory);
	previous_shmem_startup = shmem_startup_hook;
	shmem_startup_hook = start_shared_memory;
	previous_ProcessUtility = ProcessUtility_hook ? ProcessUtility_hook : standard_ProcessUtility;
	ProcessUtility_hook = sluice_ProcessUtility;
	previous_planner = planner_hook ? planner_hook : standard_planner;
	planner_hook = sluice_planner;
	previous_ExecutorStart = ExecutorStart_hook ? ExecutorStart_hook : standard_ExecutorStart;
	ExecutorStart_hook = sluice_ExecutorStart;
	session_init();
	RegisterXactCallback(at_end_of_transaction, NULL);
}
