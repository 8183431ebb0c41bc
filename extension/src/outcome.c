/*
 * outcome.c
 *		The outcome of a transaction whose COMMIT was never answered.
 *
 * A client whose connection is lost behind its COMMIT can't know whether that was
 * done.  A pool can find out, on the server that is the primary then: this one
 * again, or another one that has been promoted.  It needs the transaction's id,
 * and proof that the id means the same transaction there.
 *
 * For that, a block that has an id writes a record into the WAL, and tells its
 * client where ("sluice.transaction", reported before ReadyForQuery).  The record
 * does nothing when it is replayed (XLOG_NOOP); it has a key of this session's and
 * the id.  Whoever has the mark may ask with "sluice.outcome".  There are two cases:
 *
 * - The record is in this server's WAL, at its place.  Then all that the server has
 *	 replayed or written goes back to where the id had been given, so that it was
 *	 not given again; and pg_xact_status() tells what came of it.
 * - Something else is there, or the WAL has never come so far.  Then the history of
 *	 this server forked off before the record, and so before the commit, which
 *	 comes behind it.  The transaction is not there, and will not be.
 *
 * That holds over any number of promotions and crashes in between.  Where the WAL
 * of that place has been removed, the question fails, and nobody guesses.
 *
 * The answer is as durable as a commit, since it is one: the transaction that asks
 * has an id and waits for standbys, with "synchronous_commit" at least at "on".
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "access/xloginsert.h"
#include "access/xlogreader.h"
#include "access/xlogutils.h"
#include "catalog/namespace.h"
#include "catalog/pg_control.h"
#include "compat.h"
#include "gate.h"
#include "replication/walsender.h"
#include "session.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/pg_lsn.h"
#include "utils/xid8.h"

#define TRANSACTION_SETTING "sluice.transaction"
#define OUTCOME_SETTING "sluice.outcome"

/* What the record has, and the mark says. */
typedef struct Mark
{
	char		origin[8];		/* "sluice" */
	uint64		key;
	uint64		system;
	FullTransactionId xid;
} Mark;

/* Whether marks are reported at all. */
static bool reports_transactions = false;

/* The settings' variables, for guc.c. */
static char *transaction_text = NULL;
static char *outcome_text = NULL;

/* The last mark that was made, and where its record is. */
static Mark marked;
static XLogRecPtr marked_at = InvalidXLogRecPtr;

/* The transaction for which the setting was flagged, and whether with a change of the session. */
static TransactionId flagged_xid = InvalidTransactionId;
static bool flagged_change = false;

/*
 * Whether the block may have changed what its session holds, of which nobody could
 * tell afterwards.  What sequences gave is not counted: a pool's client may lose it.
 */
static bool
has_changed_session(void)
{
	Oid			temporary;
	Oid			toast;

	if (session_notes.may_have_changed || session_notes.called_set_config)
		return true;
	GetTempNamespaceState(&temporary, &toast);
	return session_notes.changed_objects && OidIsValid(temporary);
}

/* Whether the transaction that is under way has its mark. */
static bool
is_marked(void)
{
	FullTransactionId xid = GetTopFullTransactionIdIfAny();

	return FullTransactionIdIsValid(xid) && FullTransactionIdEquals(xid, marked.xid);
}

/*
 * A command has run.  Flags the setting when the block has an id for the first
 * time, and when the block has changed its session for the first time since.  What
 * runs in a parallel query can't do so; that query itself is a command as well.
 */
void
outcome_after_command(void)
{
	TransactionId xid;
	bool		has_changed;

	if (!reports_transactions || !SLUICE_HAS_OUTCOMES || sluice_shared == NULL || IsInParallelMode())
		return;
	xid = GetTopTransactionIdIfAny();
	if (!TransactionIdIsValid(xid) || !IsTransactionBlock())
		return;
	has_changed = has_changed_session();
	if (xid == flagged_xid && has_changed == flagged_change && is_marked())
		return;
	if (MyBackendType != B_BACKEND || am_walsender)
		return;
	flagged_xid = xid;
	flagged_change = has_changed;
	sluice_flag_for_report(TRANSACTION_SETTING);
}

static Mark
mark_of(FullTransactionId xid, uint64 system, uint64 key)
{
	Mark		mark = {.origin = "sluice", .key = key, .system = system, .xid = xid};

	return mark;
}

/* Writes a record that does nothing; returns where it begins. */
static XLogRecPtr
write_record(Mark mark)
{
	XLogBeginInsert();
	XLogRegisterData((char *) &mark, sizeof(mark));
	(void) XLogInsert(RM_XLOG_ID, XLOG_NOOP);
	return ProcLastRecPtr;
}

/* A number that nobody can guess. */
static uint64
new_key(void)
{
	uint64		key;

	if (!pg_strong_random(&key, sizeof(key)))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not get random bytes")));
	return key;
}

/*
 * Whether the transaction that is under way can have a mark.  The record names the
 * id of the subtransaction that is open, if it has one, which is higher than the
 * block's; where it has none, replay would not learn that the block's is in use.
 * A transaction that has not written to the WAL need not wait for it at its end,
 * and is not made to.
 */
static bool
can_be_marked(void)
{
	return IsTransactionState() && !IsInParallelMode() && XactLastRecEnd != InvalidXLogRecPtr &&
		TransactionIdIsValid(GetCurrentTransactionIdIfAny());
}

/* The mark of the transaction that is under way, or nothing; never another one's. */
static const char *
show_transaction(void)
{
	static char text[160];

	if (!reports_transactions || IsParallelWorker() || !TransactionIdIsValid(GetTopTransactionIdIfAny()))
		return "";
	if (!is_marked())
	{
		if (!can_be_marked())
			return "";
		marked = mark_of(GetTopFullTransactionId(), GetSystemIdentifier(), new_key());
		marked_at = write_record(marked);
	}
	snprintf(text, sizeof(text),
			 "xid=" UINT64_FORMAT " at=%X/%X system=" UINT64_FORMAT " key=" UINT64_FORMAT "%s",
			 U64FromFullTransactionId(marked.xid), LSN_FORMAT_ARGS(marked_at), marked.system, marked.key,
			 has_changed_session() ? " session=changed" : "");
	return text;
}

/* Reads a mark as it was told, or the part of it that matters. */
static bool
read_mark(const char *text, Mark *mark, XLogRecPtr *at)
{
	uint64		xid;
	uint64		system;
	uint64		key;
	uint32		high;
	uint32		low;
	int			end = 0;

	if (sscanf(text, "xid=" UINT64_FORMAT " at=%X/%X system=" UINT64_FORMAT " key=" UINT64_FORMAT "%n",
			   &xid, &high, &low, &system, &key, &end) != 5 || text[end] != '\0')
		return false;
	*at = ((uint64) high) << 32 | low;
	*mark = mark_of(FullTransactionIdFromU64(xid), system, key);
	/* Records begin at aligned places, behind the head of a page; and never in the very first one, which can't be asked for. */
	return TransactionIdIsNormal(XidFromFullTransactionId(mark->xid)) && *at == MAXALIGN64(*at) && XRecOffIsValid(*at) &&
		*at >= XLOG_BLCKSZ;
}

static bool
check_outcome(char **value, void **extra, GucSource source)
{
	Mark		mark;
	XLogRecPtr	at;

	if (**value == '\0' || read_mark(*value, &mark, &at))
		return true;
	GUC_check_errdetail("It takes what \"%s\" has told, up to the key.", TRANSACTION_SETTING);
	return false;
}

/* Whether the record is in this server's WAL, of which all up to here has been written. */
static bool
is_in_wal(XLogRecPtr at, const Mark *mark)
{
	XLogReaderState *reader = sluice_wal_reader();
	char	   *message;
	bool		found;

	XLogBeginRead(reader, at);
	found = XLogReadRecord(reader, &message) != NULL &&
		XLogRecGetRmid(reader) == RM_XLOG_ID &&
		(XLogRecGetInfo(reader) & ~XLR_INFO_MASK) == XLOG_NOOP &&
		XLogRecGetDataLen(reader) == sizeof(*mark) &&
		memcmp(XLogRecGetData(reader), mark, sizeof(*mark)) == 0;
	XLogReaderFree(reader);
	return found;
}

static const char *
outcome_of(FullTransactionId xid)
{
	LOCAL_FCINFO(call, 1);
	Datum		status;

	/*
	 * Nobody can wait for his own end.  All may write a record into a message, also
	 * with their own id in another epoch, or that of a subtransaction.
	 */
	if (TransactionIdIsCurrentTransactionId(XidFromFullTransactionId(xid)))
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION), errmsg("the transaction is the one that asks")));
	/* One that waits for its standbys is under way, also if its client has gone. */
	XactLockTableWait(XidFromFullTransactionId(xid), NULL, NULL, XLTW_None);
	InitFunctionCallInfoData(*call, NULL, 1, InvalidOid, NULL, NULL);
	call->args[0].value = FullTransactionIdGetDatum(xid);
	call->args[0].isnull = false;
	status = pg_xact_status(call);
	if (call->isnull)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the outcome of transaction " UINT64_FORMAT " is not kept any more", U64FromFullTransactionId(xid))));
	return text_to_cstring(DatumGetTextPP(status));
}

/* Up to this transaction's end. */
static void
raise_synchronous_commit(int level, const char *name)
{
	if (synchronous_commit < level)
		(void) set_config_option("synchronous_commit", name, PGC_USERSET, PGC_S_SESSION,
								 GUC_ACTION_LOCAL, true, 0, false);
}

/* What came of the transaction that was asked for. */
static const char *
show_outcome(void)
{
	Mark		mark;
	XLogRecPtr	at;
	XLogRecPtr	here;

	if (outcome_text == NULL || !read_mark(outcome_text, &mark, &at) || !IsTransactionState() ||
		IsInParallelMode())
		return "";
	PreventCommandDuringRecovery("asking for the outcome of a transaction");
	if (mark.system != GetSystemIdentifier())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the transaction is of another database cluster, with system identifier " UINT64_FORMAT,
						mark.system)));
	if (durability_floor() == SYNCHRONOUS_COMMIT_REMOTE_APPLY)
		raise_synchronous_commit(SYNCHRONOUS_COMMIT_REMOTE_APPLY, "remote_apply");
	else
		raise_synchronous_commit(SYNCHRONOUS_COMMIT_ON, "on");
	(void) GetCurrentTransactionId();
	here = write_record(mark_of(GetTopFullTransactionId(), mark.system, new_key()));
	XLogFlush(XactLastRecEnd);
	if (at >= here || !is_in_wal(at, &mark))
		return "aborted";
	return outcome_of(mark.xid);
}

void
outcome_define_settings(void)
{
	DefineCustomBoolVariable("sluice.report_transactions",
							 "Tells the client of a transaction block that writes what its outcome can be asked by.",
							 "For connection pools, which set it for their connections.",
							 &reports_transactions, false, PGC_BACKEND, GUC_NO_SHOW_ALL | GUC_NOT_IN_SAMPLE,
							 NULL, NULL, NULL);
	sluice_define_reported(TRANSACTION_SETTING, "The mark of this session's last transaction block that has written.",
						   &transaction_text, show_transaction);
	DefineCustomStringVariable(OUTCOME_SETTING,
							   "Set to the mark of a transaction, it shows that one's outcome.",
							   NULL, &outcome_text, "", PGC_USERSET,
							   GUC_NO_SHOW_ALL | GUC_NOT_IN_SAMPLE | GUC_DISALLOW_IN_FILE,
							   check_outcome, NULL, show_outcome);
}
