/*
 * durability.c
 *		What an acknowledged commit is worth.
 *
 * Where standbys are synchronous, a client takes COMMIT for the word that another
 * server has its transaction.  PostgreSQL lets that go in two ways, which are shut
 * here.
 *
 * A session chooses its own "synchronous_commit".  A database, a role or the whole
 * server may have a floor, "sluice.synchronous_commit_floor": a command that takes
 * the setting below it fails, and no transaction that has an id commits below it,
 * however the session came there (a startup option, ALTER ROLE, a function).
 *
 * A cancel ends the wait for a standby, when the transaction has been committed
 * here: the client gets a warning that few of them look at, and COMMIT.  Here a
 * cancel that comes while a transaction commits comes too late, as one does that
 * comes a moment afterwards.  pg_terminate_backend() still ends the session, which
 * acknowledges nothing.
 */
#include "postgres.h"

#include "access/xact.h"
#include "compat.h"
#include "gate.h"
#include "replication/walsender.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "tcop/pquery.h"
#include "tcop/tcopprot.h"

/* As PostgreSQL has them for "synchronous_commit". */
static const struct config_enum_entry levels[] = {
	{"off", SYNCHRONOUS_COMMIT_OFF, false},
	{"local", SYNCHRONOUS_COMMIT_LOCAL_FLUSH, false},
	{"remote_write", SYNCHRONOUS_COMMIT_REMOTE_WRITE, false},
	{"on", SYNCHRONOUS_COMMIT_ON, false},
	{"remote_apply", SYNCHRONOUS_COMMIT_REMOTE_APPLY, false},
	{NULL, 0, false}
};

static int	lowest_level = SYNCHRONOUS_COMMIT_OFF;

/* Whether a cancel ends a commit's wait for standbys, as it does without Sluice. */
static bool cancels_waiting_commits = false;

/* Whether this process has its own handler of cancels. */
static bool handles_cancels = false;

/* Whether a transaction commits, up to where its standbys have it. */
static volatile sig_atomic_t is_committing = false;

/* Whether a cancel has come meanwhile. */
static volatile sig_atomic_t was_cancelled = false;

static bool
serves_client(void)
{
	return MyBackendType == B_BACKEND && !am_walsender;
}

static const char *
level_name(int level)
{
	const struct config_enum_entry *entry;

	for (entry = levels; entry->name != NULL; entry++)
	{
		if (entry->val == level)
			return entry->name;
	}
	return "unknown";
}

static void
raise_below_floor(const char *message)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg(message, level_name(synchronous_commit), level_name(lowest_level)),
			 errdetail("\"sluice.synchronous_commit_floor\" is \"%s\" for this role and database.",
					   level_name(lowest_level)),
			 errhint("The levels, from the lowest to the highest: off, local, remote_write, on, remote_apply.")));
}

/* A command has run, before which "synchronous_commit" was that. */
void
durability_after_command(int before)
{
	if (likely(synchronous_commit >= lowest_level) || synchronous_commit >= before || !serves_client())
		return;
	raise_below_floor("\"synchronous_commit\" can't be \"%s\" here, where its floor is \"%s\"");
}

/* Something is about to be committed. */
static void
check_floor(void)
{
	if (unlikely(synchronous_commit < lowest_level) && serves_client())
		raise_below_floor("the transaction would commit with \"synchronous_commit\" at \"%s\", below its floor, \"%s\"");
}

/*
 * A cancel.  What commits may still wait for a lock, as for that of NOTIFY, which is
 * held by one that waits for its standbys: that wait may be cancelled, and then
 * nothing has been committed.
 */
static void
handle_cancel(SIGNAL_ARGS)
{
	if (is_committing && !cancels_waiting_commits && MyProc != NULL && MyProc->waitStatus != PROC_WAIT_STATUS_WAITING)
		was_cancelled = true;
	else
		StatementCancelHandler(postgres_signal_arg);
}

/* From here on a cancel is too late.  One that has come is not. */
static void
begin_commit(void)
{
	if (!serves_client())
		return;
	if (!handles_cancels)
	{
		pqsignal(SIGINT, handle_cancel);
		handles_cancels = true;
	}
	was_cancelled = false;
	is_committing = true;
	CHECK_FOR_INTERRUPTS();
}

/* The commit is done, or has failed.  A command that goes on behind it, as a procedure may, is cancelled then. */
static void
end_commit(void)
{
	if (!is_committing)
		return;
	is_committing = false;
	if (was_cancelled && ActivePortal != NULL)
	{
		QueryCancelPending = true;
		InterruptPending = true;
		SetLatch(MyLatch);
	}
	was_cancelled = false;
}

/* Second halves of transactions that were prepared are committed by commands. */
static bool
ends_prepared(const Node *command)
{
	TransactionStmtKind kind;

	if (!IsA(command, TransactionStmt))
		return false;
	kind = ((const TransactionStmt *) command)->kind;
	return kind == TRANS_STMT_COMMIT_PREPARED || kind == TRANS_STMT_ROLLBACK_PREPARED;
}

void
durability_before_utility(const Node *command)
{
	if (!ends_prepared(command))
		return;
	check_floor();
	begin_commit();
}

void
durability_at_end(XactEvent event)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PRE_PREPARE:
			/* What has no id is not committed, and waits for nobody. */
			if (!TransactionIdIsValid(GetTopTransactionIdIfAny()))
				break;
			check_floor();
			begin_commit();
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			end_commit();
			break;
		default:
			break;
	}
}

void
durability_define_settings(void)
{
	DefineCustomEnumVariable("sluice.synchronous_commit_floor",
							 "The lowest \"synchronous_commit\" with which transactions are committed.",
							 "For ALTER DATABASE, ALTER ROLE and the configuration file.",
							 &lowest_level, SYNCHRONOUS_COMMIT_OFF, levels, PGC_SUSET, 0,
							 NULL, NULL, NULL);
	DefineCustomBoolVariable("sluice.cancel_waiting_commits",
							 "Whether a cancel ends a commit's wait for its standbys, and acknowledges it nevertheless.",
							 NULL,
							 &cancels_waiting_commits, false, PGC_SUSET, 0,
							 NULL, NULL, NULL);
}
