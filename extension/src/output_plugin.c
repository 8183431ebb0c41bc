/*
 * output_plugin.c
 *		Logical replication that does not run ahead of synchronous standbys.
 *
 * PostgreSQL's walsenders give subscribers what is on the primary's own disk.  A
 * transaction whose client still waits for a standby is at the subscriber then, and
 * where the primary is lost it is nowhere else: the subscriber has rows that never
 * were, and it asks the next primary to begin behind them, so that what that one
 * writes up to there is never sent.  (From 17 on, "synchronized_standby_slots" has
 * slots that are made for failover wait, for all of the standbys that it lists.)
 *
 * Here the plugin "sluice" is PostgreSQL's "pgoutput", which ends a transaction only
 * when a commit would not wait for its standbys any more.  Its words are pgoutput's,
 * so subscribers take a slot that has it like any other.
 *
 * A slot that was copied from another server lacks the snapshots of decoding that are
 * in that one's files.  Decoding finds a consistent point by itself then, but perhaps
 * behind where the subscriber is, where transactions are open for long; PostgreSQL
 * leaves out what has committed up to there, and says nothing.  Here that is an error.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "compat.h"
#include "fmgr.h"
#include "gate.h"
#include "postmaster/interrupt.h"
#include "replication/logical.h"
#include "replication/output_plugin.h"
#include "replication/snapbuild.h"
#include "replication/syncrep.h"
#include "replication/walsender.h"
#include "replication/walsender_private.h"
#include "storage/latch.h"
#include "utils/timestamp.h"

/*
 * The time that standbys have, and the interval at which it is looked.  Then the
 * walsender ends, and its subscriber comes again: one that waits does not see that
 * the server is shut down.
 */
#define CONFIRMATION_MS_MAX	10000
#define LOOK_AGAIN_MS		5

/* pgoutput's own. */
static OutputPluginCallbacks pgoutput;

/* A decoding that has begun: from where on it has to be consistent, and how it reads the log. */
static struct
{
	LogicalDecodingContext *context;
	XLogRecPtr	start;
	XLogPageReadCB page_read;
}			beginning;

extern PGDLLEXPORT void _PG_output_plugin_init(OutputPluginCallbacks *callbacks);

/* Whether the standbys that commits wait for have flushed the log up to there. */
static bool
is_confirmed(XLogRecPtr end)
{
	bool		is;

	if (!durability_waits_for_standbys())
		return true;
	LWLockAcquire(SyncRepLock, LW_SHARED);
	is = end <= WalSndCtl->lsn[SYNC_REP_WAIT_FLUSH];
	LWLockRelease(SyncRepLock);
	return is;
}

/* Whether this process sends to one of those that commits wait for. */
static bool
is_synchronous_standby(void)
{
	return am_walsender && MyWalSnd != NULL && MyWalSnd->sync_standby_priority > 0;
}

/* What walsenders do themselves wherever they wait: the standbys to wait for may have changed. */
static void
reload_configuration(void)
{
	if (!am_walsender || !ConfigReloadPending)
		return;
	ConfigReloadPending = false;
	ProcessConfigFile(PGC_SIGHUP);
	SyncRepInitConfig();
}

static void
await_standbys(XLogRecPtr end)
{
	TimestampTz began;

	/* What a standby decodes has come from its primary, and a subscriber that commits wait for waits for none. */
	if (RecoveryInProgress() || is_synchronous_standby() || is_confirmed(end))
		return;
	began = GetCurrentTimestamp();
	do
	{
		if (TimestampDifferenceExceeds(began, GetCurrentTimestamp(), CONFIRMATION_MS_MAX))
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("no synchronous standby has confirmed the transaction that ends at %X/%X",
							LSN_FORMAT_ARGS(end)),
					 errdetail("The output plugin \"sluice\" sends what survives the loss of this server."),
					 errhint("Commits wait for the same standbys: see pg_stat_replication.")));
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, LOOK_AGAIN_MS,
						 WAIT_EVENT_SYNC_REP);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		reload_configuration();
	} while (!is_confirmed(end));
}

/*
 * Where the subscriber is, from which on all has to be sent.  Nothing tells but
 * whether something before a place is skipped.
 */
static XLogRecPtr
start_of(const LogicalDecodingContext *context)
{
	XLogRecPtr	low = 0;
	XLogRecPtr	high = PG_UINT64_MAX;

	while (low < high)
	{
		XLogRecPtr	middle = low + (high - low) / 2;

		if (SnapBuildXactNeedsSkip(context->snapshot_builder, middle))
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/*
 * Reads the log for a decoding that is not consistent yet.  It asks for more when it
 * has done with the record before, as it has to for each one that ends behind what it
 * was given: so nothing more is given than it wants.
 */
static int
read_until_consistent(XLogReaderState *reader, XLogRecPtr page, int wanted, XLogRecPtr record, char *buffer)
{
	const LogicalDecodingContext *context = beginning.context;
	int			count;

	if (SnapBuildCurrentState(context->snapshot_builder) == SNAPBUILD_CONSISTENT)
		reader->routine.page_read = beginning.page_read;
	else if (reader->EndRecPtr > beginning.start)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("replication slot \"%s\" would leave out what was committed from %X/%X on",
						NameStr(context->slot->data.name), LSN_FORMAT_ARGS(beginning.start)),
				 errdetail("It was copied from another server while transactions were open, and can be read here only from a position after their end."),
				 errhint("Another server may have it whole. If none has, make the slot anew, and its subscription with copy_data.")));
	count = beginning.page_read(reader, page, wanted, record, buffer);
	/* A page without more than its short header is taken for none; no record ends within a long one. */
	return Min(count, Max(wanted, (int) SizeOfXLogLongPHD));
}

static void
startup(LogicalDecodingContext *context, OutputPluginOptions *options, bool is_new)
{
	pgoutput.startup_cb(context, options, is_new);
	if (is_new || SnapBuildCurrentState(context->snapshot_builder) == SNAPBUILD_CONSISTENT)
		return;
	beginning.context = context;
	beginning.start = start_of(context);
	beginning.page_read = context->reader->routine.page_read;
	context->reader->routine.page_read = read_until_consistent;
}

/* A callback at the end of a transaction, or of its first half: pgoutput's, once the standbys have that. */
#define BEHIND_STANDBYS(name) \
static void \
name(LogicalDecodingContext *context, ReorderBufferTXN *transaction, XLogRecPtr at) \
{ \
	await_standbys(transaction->end_lsn); \
	pgoutput.name##_cb(context, transaction, at); \
}

BEHIND_STANDBYS(commit)
BEHIND_STANDBYS(prepare)
BEHIND_STANDBYS(commit_prepared)
BEHIND_STANDBYS(stream_prepare)
BEHIND_STANDBYS(stream_commit)

static void
rollback_prepared(LogicalDecodingContext *context, ReorderBufferTXN *transaction, XLogRecPtr prepared,
				  TimestampTz prepared_at)
{
	await_standbys(transaction->end_lsn);
	pgoutput.rollback_prepared_cb(context, transaction, prepared, prepared_at);
}

/* One that is of no transaction stands for itself. */
static void
message(LogicalDecodingContext *context, ReorderBufferTXN *transaction, XLogRecPtr at, bool is_of_transaction,
		const char *prefix, Size size, const char *text)
{
	if (!is_of_transaction)
		await_standbys(context->reader->EndRecPtr);
	pgoutput.message_cb(context, transaction, at, is_of_transaction, prefix, size, text);
}

/* Puts a callback in the place of pgoutput's, where it has one. */
#define INSTEAD_OF(name) \
	do { \
		if (pgoutput.name##_cb != NULL) \
			callbacks->name##_cb = name; \
	} while (0)

void
_PG_output_plugin_init(OutputPluginCallbacks *callbacks)
{
	LogicalOutputPluginInit init;

	init = (LogicalOutputPluginInit) load_external_function("pgoutput", "_PG_output_plugin_init", true, NULL);
	init(&pgoutput);
	*callbacks = pgoutput;
	callbacks->startup_cb = startup;
	/* That of 14 knows no transactions that are prepared. */
	INSTEAD_OF(commit);
	INSTEAD_OF(prepare);
	INSTEAD_OF(commit_prepared);
	INSTEAD_OF(rollback_prepared);
	INSTEAD_OF(stream_prepare);
	INSTEAD_OF(stream_commit);
	INSTEAD_OF(message);
}
