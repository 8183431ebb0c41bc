/*
 * commits.c
 *		Where the last commit of a session ends in the WAL, told to its client.
 *
 * A pool that leads readers to standbys has to know how far a standby must have
 * replayed before a client finds there what it has written.  "sluice.commit_lsn"
 * says it: the end of the last commit record that this session has written.  It is
 * reported before ReadyForQuery (ParameterStatus) when it has changed, to sessions
 * that begin with "sluice.report_commits".
 *
 * Only a transaction that has an id counts, and COMMIT PREPARED.  One that has
 * none may have written to the WAL as well, as when a query prunes a page; nobody
 * flushes that, and a standby might get it much later.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "compat.h"
#include "gate.h"

#define COMMIT_SETTING "sluice.commit_lsn"

/* Whether commits are reported at all. */
static bool reports_commits = false;

/* The setting's variable, for guc.c; its value is never looked at. */
static char *commit_text = NULL;

/* The end of the last commit record. */
static XLogRecPtr last_commit = InvalidXLogRecPtr;

/* Whether the transaction that is under way has committed a prepared one. */
static bool has_committed_prepared = false;

/* COMMIT PREPARED has run; its own transaction has no id. */
void
commits_after_prepared(void)
{
	has_committed_prepared = true;
}

void
commits_at_end(XactEvent event)
{
	bool		has_written = has_committed_prepared;

	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT && event != XACT_EVENT_PREPARE)
		return;
	has_committed_prepared = false;
	if (!reports_commits || event != XACT_EVENT_COMMIT)
		return;
	has_written = has_written || TransactionIdIsValid(GetTopTransactionIdIfAny());
	if (!has_written || !sluice_has_client())
		return;
	/* Its record is written by now, and this is behind it. */
	last_commit = XactLastCommitEnd;
	sluice_flag_for_report(COMMIT_SETTING);
}

static const char *
show_commit(void)
{
	static char text[32];

	snprintf(text, sizeof(text), "%X/%X", LSN_FORMAT_ARGS(last_commit));
	return text;
}

void
commits_define_settings(void)
{
	DefineCustomBoolVariable("sluice.report_commits",
							 "Tells the client where each of its commits ends in the WAL.",
							 "For connection pools, which set it for their connections.",
							 &reports_commits, false, PGC_BACKEND, GUC_NO_SHOW_ALL | GUC_NOT_IN_SAMPLE,
							 NULL, NULL, NULL);
	sluice_define_reported(COMMIT_SETTING, "The end of this session's last commit in the WAL.",
						   &commit_text, show_commit);
}
