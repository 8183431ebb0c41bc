/*
 * hooks.c
 *		When a session has to pass a gate, and when it leaves.
 *
 * A transaction block waits at its BEGIN, where it has neither a snapshot nor
 * a lock.  A single statement waits when its executor starts, or its COPY:
 * PostgreSQL offers no place before that at which the statement is known, so
 * it has locked its tables and has its snapshot by then (what that means for
 * deadlocks, see gate.c).  Both leave when their transaction has ended,
 * however it ended.  Who is inside passes freely: statements of a block,
 * nested ones of functions and triggers, cursors.
 *
 * What never waits:
 *
 * - utility commands but COPY: they are rare, and DDL and maintenance are what
 *	 an administrator needs where load is high.  What they execute waits, if it
 *	 goes through the executor: EXECUTE, EXPLAIN ANALYZE, CREATE TABLE AS, what
 *	 CALL and DO do.  PREPARE TRANSACTION, COMMIT PREPARED and ROLLBACK PREPARED
 *	 are among those that never do.
 * - what is no client's: autovacuum, background workers, parallel workers
 *	 (their leader has a place), walsenders, and with them replication and
 *	 logical decoding.
 * - sessions of exempt roles and databases.
 *
 * Superusers wait as all others do, with some places in reserve
 * ("sluice.superuser_reserved").
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "compat.h"
#include "executor/executor.h"
#include "gate.h"
#include "libpq/libpq-be.h"
#include "replication/walsender.h"
#include "tcop/utility.h"

PG_MODULE_MAGIC;

void		_PG_init(void);

#if PG_VERSION_NUM >= 150000
static shmem_request_hook_type previous_shmem_request = NULL;
#endif
static shmem_startup_hook_type previous_shmem_startup = NULL;
static ProcessUtility_hook_type previous_ProcessUtility = NULL;
static ExecutorStart_hook_type previous_ExecutorStart = NULL;

/*
 * Whether this session is in a transaction block that has passed its gate, or
 * was let through without one. IsTransactionBlock() would not do: it is also
 * true of several statements in one string.
 */
static bool in_block = false;

/*
 * Whether the last command about transactions was COMMIT AND CHAIN or ROLLBACK
 * AND CHAIN, so that there is a block that no BEGIN has opened. It waits at its
 * first statement.
 */
static bool is_chained = false;

/* Whether gates are this session's business. */
static bool
is_concerned(void)
{
	return sluice_shared != NULL && MyBackendType == B_BACKEND &&
		!am_walsender && MyProcPort != NULL &&
		!sluice_is_exempt(MyProcPort->user_name, MyProcPort->database_name);
}

static bool
has_limit(GateClass class)
{
	return pg_atomic_read_u32(&sluice_shared->gates[class].limit) > 0;
}

static GateClass
class_of(const QueryDesc *query)
{
	const PlannedStmt *plan = query->plannedstmt;

	if (sluice_bigquery_cost > 0 && plan->planTree->total_cost >= sluice_bigquery_cost &&
		has_limit(GATE_BIGQUERY))
		return GATE_BIGQUERY;
	if (plan->commandType == CMD_SELECT && !plan->hasModifyingCTE && plan->rowMarks == NIL)
		return GATE_QUERY;
	return GATE_AUTOCOMMIT;
}

static void
enter_once(GateClass class)
{
	if (in_block || gate_is_inside() || !is_concerned())
		return;
	gate_enter(is_chained ? GATE_TRANSACTION : class);
	in_block = is_chained;
}

static void
sluice_ExecutorStart(QueryDesc *query, int eflags)
{
	if (!(eflags & EXEC_FLAG_EXPLAIN_ONLY))
		enter_once(class_of(query));
	if (previous_ExecutorStart)
		previous_ExecutorStart(query, eflags);
	else
		standard_ExecutorStart(query, eflags);
}

static void
before_transaction_command(const TransactionStmt *command)
{
	switch (command->kind)
	{
		case TRANS_STMT_BEGIN:
		case TRANS_STMT_START:
			is_chained = false;
			enter_once(GATE_TRANSACTION);
			in_block = true;
			break;
		case TRANS_STMT_COMMIT:
		case TRANS_STMT_ROLLBACK:
			is_chained = command->chain;
			break;
		case TRANS_STMT_PREPARE:
			is_chained = false;
			break;
		default:
			break;
	}
}

static void
sluice_ProcessUtility(PlannedStmt *plan, const char *text, bool read_only_tree,
					  ProcessUtilityContext context, ParamListInfo params,
					  QueryEnvironment *environment, DestReceiver *dest,
					  QueryCompletion *completion)
{
	Node	   *command = plan->utilityStmt;

	if (IsA(command, TransactionStmt))
		before_transaction_command((TransactionStmt *) command);
	else if (IsA(command, CopyStmt))
		enter_once(((CopyStmt *) command)->is_from ? GATE_AUTOCOMMIT : GATE_QUERY);

	if (previous_ProcessUtility)
		previous_ProcessUtility(plan, text, read_only_tree, context, params,
								environment, dest, completion);
	else
		standard_ProcessUtility(plan, text, read_only_tree, context, params,
								environment, dest, completion);
}

static void
at_end_of_transaction(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			gate_leave();
			in_block = false;
			break;
		default:
			break;
	}
}

static void
request_shared_memory(void)
{
#if PG_VERSION_NUM >= 150000
	if (previous_shmem_request)
		previous_shmem_request();
#endif
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
	if (!found)
	{
		/* The first sessions do not wait for the keeper. */
		sluice_publish_limits();
		sluice_publish_secret();
	}
	LWLockRelease(AddinShmemInitLock);
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

#if PG_VERSION_NUM >= 150000
	previous_shmem_request = shmem_request_hook;
	shmem_request_hook = request_shared_memory;
#else
	request_shared_memory();
#endif
	previous_shmem_startup = shmem_startup_hook;
	shmem_startup_hook = start_shared_memory;
	previous_ProcessUtility = ProcessUtility_hook;
	ProcessUtility_hook = sluice_ProcessUtility;
	previous_ExecutorStart = ExecutorStart_hook;
	ExecutorStart_hook = sluice_ExecutorStart;
	RegisterXactCallback(at_end_of_transaction, NULL);
}
