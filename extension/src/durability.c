/*
 * durability.c
 *		What an acknowledged commit is worth.
 *
 * Where standbys are synchronous, a client takes COMMIT for the word that another
 * server has its transaction.  PostgreSQL lets that go in four ways, which are shut
 * here.
 *
 * A session chooses its own "synchronous_commit".  A database, a role or the whole
 * server may have a floor, "sluice.synchronous_commit_floor": a command that takes
 * the setting below it fails, and no transaction that has an id commits below it,
 * however the session came there (a startup option, ALTER ROLE, a function).  Going
 * back to what the session began with is no fault of a command.
 *
 * A cancel ends the wait for a standby, when the transaction has been committed
 * here: the client gets a warning that few of them look at, and COMMIT.  Here a
 * cancel that comes while a transaction commits comes too late, as one does that
 * comes a moment afterwards.  pg_terminate_backend() still ends the session, which
 * acknowledges nothing.
 *
 * Commits wait for the standbys that the checkpointer knows of.  While it writes a
 * checkpoint it may be late to read a configuration that sessions have read, and
 * Patroni, which then counts on commits that have waited for nobody.  Here they wait
 * for the checkpointer first.
 *
 * And where standbys are to be waited for whatever comes, PostgreSQL may not know of
 * them: a line of its configuration that it can't read keeps it from all the others,
 * and a new primary goes on as the standby that it was, which waits for nobody.  With
 * "sluice.synchronous_standbys_required" nothing is committed then.
 */
#include "postgres.h"

#include "access/xact.h"
#include "compat.h"
#include "gate.h"
#include "postmaster/interrupt.h"
#include "replication/syncrep.h"
#include "replication/walsender.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "tcop/pquery.h"
#include "tcop/tcopprot.h"
#include "tcop/utility.h"
#include "utils/timestamp.h"

/* As PostgreSQL has them for "synchronous_commit". */
static const struct config_enum_entry levels[] = {
	{"off", SYNCHRONOUS_COMMIT_OFF, false},
	{"local", SYNCHRONOUS_COMMIT_LOCAL_FLUSH, false},
	{"remote_write", SYNCHRONOUS_COMMIT_REMOTE_WRITE, false},
	{"on", SYNCHRONOUS_COMMIT_ON, false},
	{"remote_apply", SYNCHRONOUS_COMMIT_REMOTE_APPLY, false},
	{NULL, 0, false}
};

/* How long a commit waits for standbys to be named, as a new primary's are a moment after its promotion. */
#define STANDBYS_NAMED_MS_MAX	5000
#define LOOK_AGAIN_MS			20

#define COMMIT_BELOW_FLOOR \
	"the transaction would commit with \"synchronous_commit\" at \"%s\", below its floor, \"%s\""

static int	lowest_level = SYNCHRONOUS_COMMIT_OFF;

/* Whether nothing is committed that waits for standbys, where none are named. */
static bool requires_standbys = false;

/* Whether a cancel ends a commit's wait for standbys, as it does without Sluice. */
static bool cancels_waiting_commits = false;

/* Whether this process has its own handler of cancels. */
static bool handles_cancels = false;

/* Whether a transaction commits, up to where its standbys have it. */
static volatile sig_atomic_t is_committing = false;

/* Whether a cancel has come meanwhile. */
static volatile sig_atomic_t was_cancelled = false;

/* When the message came in which a cancel was too late for its commit, or 0. */
static TimestampTz message_cancelled = 0;

/* Where the WAL of this transaction ended behind a DISCARD ALL that is all of it. */
static XLogRecPtr discarded_at = InvalidXLogRecPtr;

/* Whether this process runs a client's SQL, which it may also send for "replication=database". */
static bool
serves_client(void)
{
	return MyBackendType == B_BACKEND || am_db_walsender;
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

static int
level_named(const char *name)
{
	const struct config_enum_entry *entry;

	for (entry = levels; entry->name != NULL; entry++)
	{
		if (strcmp(entry->name, name) == 0)
			return entry->val;
	}
	return SYNCHRONOUS_COMMIT_OFF;
}

/* The floor, for the extension's own transactions. */
int
durability_floor(void)
{
	return lowest_level;
}

static void
raise_below_floor(const char *message)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg(message, level_name(synchronous_commit), level_name(lowest_level)),
			 errdetail("\"sluice.synchronous_commit_floor\" is \"%s\" for this role and database.",
					   level_name(lowest_level)),
			 errhint("The levels, from the lowest to the highest: off, local, remote_write, on, remote_apply. "
					 "A session that began below its floor can SET a higher one.")));
}

/* A command has run, before which "synchronous_commit" was that. */
void
durability_after_command(int before)
{
	const char *began;

	if (likely(synchronous_commit >= lowest_level) || synchronous_commit >= before || !serves_client())
		return;
	began = GetConfigOptionResetString("synchronous_commit");
	if (began != NULL && synchronous_commit >= level_named(began))
		return;
	raise_below_floor("\"synchronous_commit\" can't be \"%s\" here, where its floor is \"%s\"");
}

static bool
names_standbys(void)
{
	return SyncRepStandbyNames != NULL && SyncRepStandbyNames[0] != '\0';
}

/* Whether commits wait for standbys, or would if any were named. */
bool
durability_waits_for_standbys(void)
{
	return max_wal_senders > 0 && (requires_standbys || names_standbys());
}

/*
 * Waits until commits wait for the standbys that are named, or are required to be:
 * false if none are named in time.  A checkpointer that is busy learns of them late.
 * A configuration that this session has yet to read may name none any more.
 */
static bool
knows_standbys(void)
{
	TimestampTz began = 0;

	if (max_wal_senders == 0)
		return !requires_standbys;
	while (!sluice_commits_wait())
	{
		if (!names_standbys() || ConfigReloadPending)
		{
			if (!requires_standbys)
				return true;
			if (began == 0)
				began = GetCurrentTimestamp();
			if (TimestampDifferenceExceeds(began, GetCurrentTimestamp(), STANDBYS_NAMED_MS_MAX))
				return false;
		}
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, LOOK_AGAIN_MS,
						 WAIT_EVENT_SYNC_REP);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	return true;
}

/* Something is about to be committed. */
static void
check_commit(void)
{
	if (likely(synchronous_commit >= lowest_level && !requires_standbys && !names_standbys()) || !serves_client())
		return;
	if (synchronous_commit < lowest_level)
		raise_below_floor(COMMIT_BELOW_FLOOR);
	if (synchronous_commit > SYNCHRONOUS_COMMIT_LOCAL_FLUSH && !knows_standbys())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the transaction would be committed on this server alone"),
				 max_wal_senders == 0 ?
				 errdetail("\"sluice.synchronous_standbys_required\" is on, and \"max_wal_senders\" is 0.") :
				 errdetail("\"sluice.synchronous_standbys_required\" is on, and no \"synchronous_standby_names\" are known."),
				 max_wal_senders == 0 ? 0 :
				 errhint("PostgreSQL may not have been able to read its configuration: "
						 "SELECT * FROM pg_file_settings WHERE error IS NOT NULL.")));
}

/*
 * Whether this transaction removes what its session has left, and nothing else: as it
 * ends, or by DISCARD ALL, which can't be part of a longer one.
 */
static bool
only_cleans_up(void)
{
	return proc_exit_inprogress || (discarded_at != InvalidXLogRecPtr && discarded_at == XactLastRecEnd);
}

/* The same of this transaction. What has no id has written nothing that lasts. */
static void
check_own_commit(void)
{
	if (TransactionIdIsValid(GetTopTransactionIdIfAny()) && !only_cleans_up())
		check_commit();
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

static void
cancel(void)
{
	QueryCancelPending = true;
	InterruptPending = true;
	SetLatch(MyLatch);
}

/*
 * The commit is done, or has failed.  A command that goes on behind it, as a procedure
 * may, is cancelled then; else what follows in the same message is, if anything does.
 */
static void
end_commit(void)
{
	if (!is_committing)
		return;
	is_committing = false;
	if (was_cancelled && ActivePortal != NULL)
		cancel();
	else if (was_cancelled)
		message_cancelled = GetCurrentStatementStartTimestamp();
	was_cancelled = false;
}

/*
 * A command is about to run.  It is cancelled in place of a commit before it in the
 * same string, whose answer is on its way by now.
 */
void
durability_before_command(void)
{
	bool		is_same_message;

	if (likely(message_cancelled == 0))
		return;
	is_same_message = message_cancelled == GetCurrentStatementStartTimestamp();
	message_cancelled = 0;
	if (is_same_message)
	{
		cancel();
		CHECK_FOR_INTERRUPTS();
	}
}

/*
 * Whether a command does what no rollback takes back, before it commits: it makes or
 * removes files, or a slot elsewhere.  Refused at its commit, it would leave half of it.
 */
static bool
acts_before_commit(const Node *command)
{
	switch (nodeTag(command))
	{
		case T_CreatedbStmt:
		case T_DropdbStmt:
		case T_CreateTableSpaceStmt:
		case T_DropTableSpaceStmt:
		case T_CreateSubscriptionStmt:
		case T_DropSubscriptionStmt:
		/* To another tablespace, with all its files. */
		case T_AlterDatabaseStmt:
			return true;
		default:
			return false;
	}
}

/*
 * A command is about to run.  Second halves of transactions that were prepared are
 * committed by commands; within a block they only fail, and may do so within a
 * subtransaction that is rolled back alone.
 */
void
durability_before_utility(const Node *command)
{
	TransactionStmtKind kind;

	/* Whatever has become of the commit before. */
	end_commit();
	if (acts_before_commit(command))
	{
		/* PostgreSQL would refuse it next: there is no commit to wait for. */
		PreventCommandIfReadOnly(CreateCommandName(unconstify(Node *, command)));
		check_commit();
	}
	if (!IsA(command, TransactionStmt) || IsTransactionBlock() || IsSubTransaction())
		return;
	kind = ((const TransactionStmt *) command)->kind;
	if (kind == TRANS_STMT_COMMIT_PREPARED || kind == TRANS_STMT_ROLLBACK_PREPARED)
	{
		/*
		 * A read-only transaction may end it, a standby may not: asked here, since it
		 * may be promoted before PostgreSQL asks.  A rollback that is acknowledged and
		 * lost would have the prepared transaction there again.
		 */
		PreventCommandDuringRecovery(kind == TRANS_STMT_COMMIT_PREPARED
									 ? "COMMIT PREPARED" : "ROLLBACK PREPARED");
		check_commit();
		begin_commit();
	}
}

/* DISCARD ALL has succeeded in a transaction that had no id before, so that it was not called by a function. */
void
durability_after_discard_all(void)
{
	discarded_at = XactLastRecEnd;
}

/*
 * COMMIT or PREPARE TRANSACTION has set the block's state, so that an error ends the
 * block.  What others do before the commit, postgres_fdw for one, has not begun.
 */
void
durability_at_commit_command(void)
{
	check_own_commit();
}

void
durability_at_end(XactEvent event)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PRE_PREPARE:
			check_own_commit();
			/* It may still be given an id, by NOTIFY. */
			begin_commit();
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			discarded_at = InvalidXLogRecPtr;
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
	DefineCustomBoolVariable("sluice.synchronous_standbys_required",
							 "Whether nothing is committed while \"synchronous_standby_names\" is empty, but with \"synchronous_commit\" at \"local\" or \"off\".",
							 NULL,
							 &requires_standbys, false, PGC_SIGHUP, 0,
							 NULL, NULL, NULL);
	DefineCustomBoolVariable("sluice.cancel_waiting_commits",
							 "Whether a cancel ends a commit's wait for its standbys, and acknowledges it nevertheless.",
							 NULL,
							 &cancels_waiting_commits, false, PGC_SUSET, 0,
							 NULL, NULL, NULL);
}
