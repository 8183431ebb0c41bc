/*
 * decoding.c
 *		Places in the log at which logical decoding can begin.
 *
 * Decoding begins at a record of the transactions that are running, which the
 * background writer and checkpoints write: every 15 seconds, where something was
 * written at all.  A standby's fresh copy of a slot lacks snapshots of decoding, and
 * needs up to three such records before its subscriber loses nothing by a failover
 * to it.  So they are written more often for a minute, where a slot has the output
 * plugin "sluice", and a walsender has begun: a standby is started anew to take a
 * copy.  Not always, since whoever decodes them writes a file to the disk for each.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "gate.h"
#include "replication/slot.h"
#include "replication/walsender_private.h"
#include "storage/lwlock.h"
#include "storage/standby.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* Patroni looks at its node's slots as often. */
#define WRITE_EVERY_MS	2000

/* The time for Patroni to advance a fresh copy, behind the start of its server. */
#define FRESH_MS		60000

/* Whether a walsender is there that was not when this was called before. */
static bool
has_new_walsender(void)
{
	static pid_t *known = NULL;
	bool		has = false;

	if (known == NULL)
		known = MemoryContextAllocZero(TopMemoryContext, sizeof(pid_t) * Max(max_wal_senders, 1));
	for (int i = 0; i < max_wal_senders; i++)
	{
		WalSnd	   *walsender = &WalSndCtl->walsnds[i];
		pid_t		pid;

		SpinLockAcquire(&walsender->mutex);
		pid = walsender->pid;
		SpinLockRelease(&walsender->mutex);
		has |= pid != 0 && pid != known[i];
		known[i] = pid;
	}
	return has;
}

static bool
has_slot(void)
{
	bool		has = false;

	LWLockAcquire(ReplicationSlotControlLock, LW_SHARED);
	for (int i = 0; i < max_replication_slots && !has; i++)
	{
		ReplicationSlot *slot = &ReplicationSlotCtl->replication_slots[i];

		if (!slot->in_use)
			continue;
		SpinLockAcquire(&slot->mutex);
		has = strcmp(NameStr(slot->data.plugin), "sluice") == 0;
		SpinLockRelease(&slot->mutex);
	}
	LWLockRelease(ReplicationSlotControlLock);
	return has;
}

/* The time after which decoding_write_begin() is to be called again, ms; 0: never. */
int
decoding_write_every_ms(void)
{
	return XLogLogicalInfoActive() ? WRITE_EVERY_MS : 0;
}

/* Writes such a record where it is time for one, and there is something new behind the last. */
void
decoding_write_begin(void)
{
	static TimestampTz written = 0;
	static TimestampTz began = 0;
	static XLogRecPtr last = InvalidXLogRecPtr;
	TimestampTz now;

	if (!XLogLogicalInfoActive() || RecoveryInProgress())
		return;
	now = GetCurrentTimestamp();
	if (now >= written && !TimestampDifferenceExceeds(written, now, WRITE_EVERY_MS))
		return;
	written = now;
	if (has_new_walsender())
		began = now;
	if (began == 0 || TimestampDifferenceExceeds(began, now, FRESH_MS))
		return;
	if (GetLastImportantRecPtr() > last && has_slot())
		last = LogStandbySnapshot();
}
