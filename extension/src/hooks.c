/*
 * hooks.c
 *		When a session has to enter a gate, and when it leaves it.
 *
 * A transaction block waits at BEGIN, where it has neither a snapshot nor locks.
 * A single statement waits when its executor starts, or its COPY: there is no
 * earlier hook at which the statement is known, so by then it has locked its
 * tables and taken its snapshot (for the consequences, see deadlock.c).  Both
 * release their slots at the end of their transaction, however it ends, or retain
 * one for the next transaction (retain.c).  Once admitted, a transaction does not
 * wait again: neither statements of a block, nor nested ones of functions and
 * triggers, nor cursors.
 *
 * If a BEGIN follows other statements of the same query string, these become part
 * of its block.  It waits then, with the locks that they have acquired, but
 * without their slot.
 *
 * A BEGIN does not fail if its wait does.  Nearly all clients send the statements
 * of a block without looking at the outcome of BEGIN, and these would be run and
 * committed one by one.  So the block begins, the error is kept, and the block's
 * next statement raises it, which aborts the block as any error would.
 *
 * The following never wait:
 *
 * - utility commands, and the queries that they run: they are rare, an
 *	 administrator needs DDL and maintenance when load is high, and they hold
 *	 strong locks.  Those that run a query of the user's do wait: COPY (except of
 *	 a program), EXECUTE, EXPLAIN ANALYZE, CREATE TABLE AS, DECLARE, and the
 *	 statements of CALL and DO.
 * - what the planner executes, when it simplifies immutable functions or uses
 *	 stable ones for estimates, and EXPLAIN when it prunes partitions: the
 *	 statement itself waits before it runs, in its own class.
 * - processes that do not serve a client: autovacuum, background workers, parallel
 *	 workers (their leader has a slot), and walsenders, and so replication and
 *	 logical decoding.
 * - login event triggers: an error there would end the connection.
 * - sessions of exempt roles and databases.
 *
 * Superusers wait like all others, but have some reserved slots
 * ("sluice.superuser_reserved_slots").
 *
 * session.c, catalog.c, outcome.c and durability.c use the same hooks.
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
static ExecutorRun_hook_type previous_ExecutorRun = NULL;

/*
 * Whether this transaction has been admitted, or need not be.  It may have been
 * without a slot, where there was no limit.  IsTransactionBlock() is no
 * substitute: it is also true of several statements in one query string.
 */
static bool is_admitted = false;

/* Its class, if it has been admitted. */
static GateClass admitted_class;

/*
 * Whether the block was started by COMMIT AND CHAIN or ROLLBACK AND CHAIN rather
 * than by BEGIN.  It waits at its first statement.
 */
static bool is_chained = false;

/* Event at the end of a block that will be chained, or -1. */
static int	chains_at = -1;

/*
 * The error with which this block's wait at BEGIN ended, until it is raised, in
 * TopTransactionContext; or NULL.
 */
static ErrorData *begin_error = NULL;

/* Nesting depth of utility commands that don't wait. */
static int	utility_depth = 0;

/* Nesting depth of commands that create a table or view from a query. */
static int	into_depth = 0;

/*
 * Nesting depth of planning, and of executors started for EXPLAIN only; both may
 * call functions.
 */
static int	planner_depth = 0;

/* Whether this session is subject to gates at all. */
static bool
is_gated(void)
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

/* Whether the current statement is the first of its transaction that may wait. */
static bool
needs_admission(void)
{
	return !is_admitted && utility_depth == 0 && planner_depth == 0;
}

static void
enter(GateClass class)
{
	if (is_chained)
		class = GATE_TRANSACTION;
	sluice_apply_reload();
	if (is_gated())
		gate_enter(class);
	admitted_class = class;
	is_admitted = true;
}

/*
 * A BEGIN follows other statements of the same query string, whose transaction
 * becomes the block: releases their slot, and waits for that of a block.  Others
 * may wait for the locks that they have acquired, which ends the wait (deadlock.c).
 */
static void
reenter_as_block(void)
{
	is_admitted = false;
	gate_leave_class();
	enter(GATE_TRANSACTION);
}

/*
 * Waits for the admission of a block at BEGIN, and keeps an error of the wait.  No
 * more than FlushErrorState() is needed to recover from it, since gate_enter() has
 * released all slots and acquires no resources that need the end of a transaction.
 */
static void
enter_block(void)
{
	MemoryContext context = CurrentMemoryContext;

	PG_TRY();
	{
		if (is_admitted)
			reenter_as_block();
		else
			enter(GATE_TRANSACTION);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(TopTransactionContext);
		begin_error = CopyErrorData();
		FlushErrorState();
		if (begin_error->context == NULL)
			begin_error->context = pstrdup("while waiting for admission at the BEGIN of this transaction block");
		MemoryContextSwitchTo(context);
		/* It will fail at its next statement, and need not wait for that. */
		admitted_class = GATE_TRANSACTION;
		is_admitted = true;
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

/* Something is about to run: must not be in a block that has not been admitted. */
void
gate_check_block(void)
{
	if (unlikely(begin_error != NULL))
		raise_begin_error();
}

/*
 * Whether a command ends a block, even one that has not been admitted.  ROLLBACK
 * needs no error.  COMMIT and PREPARE TRANSACTION have to fail as well, and end the
 * block, as with a deferred constraint: they raise the error when they have set
 * the block's state.
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

/* Starts an executor for EXPLAIN without ANALYZE. */
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
	durability_before_command();
	gate_check_block();
	gate_count_command();
	session_before_executor(query->plannedstmt);
	if (eflags & EXEC_FLAG_EXPLAIN_ONLY)
	{
		start_explained(query, eflags);
		return;
	}
	if (needs_admission())
		enter(class_of(query));
	previous_ExecutorStart(query, eflags);
}

static void
sluice_ExecutorRun(QueryDesc *query, ScanDirection direction, uint64 count SLUICE_EXECUTE_ONCE_PARAMETER)
{
	int			level = synchronous_commit;

	previous_ExecutorRun(query, direction, count SLUICE_EXECUTE_ONCE);
	durability_after_command(level);
	outcome_after_command();
}

/* Whether a utility command runs a query of the user's. */
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
 * server.  That client could wait for the slot of its own COPY; and once it runs,
 * nothing that the COPY executes, such as triggers and defaults, must wait.
 */
static bool
is_of_program(const Node *command)
{
	return IsA(command, CopyStmt) && ((const CopyStmt *) command)->is_program;
}

/* Whether a command begins a block, outside of one. */
static bool
begins_block(const Node *command)
{
	TransactionStmtKind kind;

	if (!IsA(command, TransactionStmt))
		return false;
	kind = ((const TransactionStmt *) command)->kind;
	return (kind == TRANS_STMT_BEGIN || kind == TRANS_STMT_START) &&
		(!is_admitted || admitted_class != GATE_TRANSACTION);
}

/*
 * Whether a COPY waits before it starts.  COPY of a query waits when that query's
 * executor starts, and its class is known.
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
	else if (needs_admission() && waits_as_copy(command))
		enter(((CopyStmt *) command)->is_from ? GATE_AUTOCOMMIT : GATE_QUERY);
}

/*
 * A transaction command has succeeded, though it takes effect only later.  A block
 * that had failed before has already had its XACT_EVENT_ABORT.
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

/* Runs a command for transactions, in a block that has failed. */
static void
run_in_failed_block(PlannedStmt *plan, const char *text, bool read_only_tree,
					ProcessUtilityContext context, ParamListInfo params,
					QueryEnvironment *environment, DestReceiver *dest,
					QueryCompletion *completion)
{
	PG_TRY();
	{
		previous_ProcessUtility(plan, text, read_only_tree, context, params,
								environment, dest, completion);
	}
	PG_CATCH();
	{
		portals_fail_again();
		PG_RE_THROW();
	}
	PG_END_TRY();
}

/* Runs a utility command, with a nesting depth incremented. */
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

/* Whether a command is DISCARD ALL, of a transaction that has not written yet. */
static bool
only_discards(const Node *command)
{
	return IsA(command, DiscardStmt) && ((const DiscardStmt *) command)->target == DISCARD_ALL &&
		!TransactionIdIsValid(GetTopTransactionIdIfAny());
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
	bool		discards = only_discards(command);
	int			level = synchronous_commit;

	durability_before_command();
	if (!ends_block(command))
		gate_check_block();
	gate_count_command();
	before_utility(command);
	durability_before_utility(command);
	session_before_utility(command, &note);
	changes_catalog = catalog_before_utility(command);
	if (tag == T_TransactionStmt)
	{
		/* The tree may be gone afterwards. */
		TransactionStmtKind kind = ((TransactionStmt *) command)->kind;
		bool		chain = ((TransactionStmt *) command)->chain;
		bool		had_failed = IsAbortedTransactionBlockState();

		if (had_failed)
			run_in_failed_block(plan, text, read_only_tree, context, params, environment, dest, completion);
		else
			previous_ProcessUtility(plan, text, read_only_tree, context, params,
									environment, dest, completion);
		if (kind == TRANS_STMT_COMMIT || kind == TRANS_STMT_PREPARE)
		{
			gate_check_block();
			if (!had_failed)
				durability_at_commit_command();
		}
		if (kind == TRANS_STMT_COMMIT_PREPARED)
			commits_after_prepared();
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
	if (discards)
		durability_after_discard_all();
	durability_after_command(level);
	if (changes_catalog)
		catalog_after_change();
	outcome_after_command();
}

static void
at_end_of_transaction(XactEvent event, void *arg)
{
	session_at_end(event);
	catalog_at_end(event);
	configuration_at_end(event);
	durability_at_end(event);
	commits_at_end(event);
	portals_at_end(event);
	switch (event)
	{
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			gate_leave();
			is_admitted = false;
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
		/* The first sessions need not wait for the controller. */
		sluice_reset_searches();
		sluice_publish_settings(true);
	}
}

void
_PG_init(void)
{
	/* pg_upgrade only looks whether the new server has the library; that is configured later. */
	if (!process_shared_preload_libraries_in_progress && IsBinaryUpgrade)
		return;
	if (!process_shared_preload_libraries_in_progress)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("sluice must be loaded when the server starts"),
				 errhint("Add \"sluice\" to \"shared_preload_libraries\", and restart the server.")));

	sluice_define_settings();
	sluice_register_controller();

	SLUICE_ON_SHMEM_REQUEST(previous_shmem_request, request_shared_memory);
	previous_shmem_startup = shmem_startup_hook;
	shmem_startup_hook = start_shared_memory;
	previous_ProcessUtility = ProcessUtility_hook ? ProcessUtility_hook : standard_ProcessUtility;
	ProcessUtility_hook = sluice_ProcessUtility;
	previous_planner = planner_hook ? planner_hook : standard_planner;
	planner_hook = sluice_planner;
	previous_ExecutorStart = ExecutorStart_hook ? ExecutorStart_hook : standard_ExecutorStart;
	ExecutorStart_hook = sluice_ExecutorStart;
	previous_ExecutorRun = ExecutorRun_hook ? ExecutorRun_hook : standard_ExecutorRun;
	ExecutorRun_hook = sluice_ExecutorRun;
	session_init();
	portals_init();
	RegisterXactCallback(at_end_of_transaction, NULL);
}
