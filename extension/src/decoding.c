/*
 * decoding.c
 *		Places in the log at which logical decoding can begin.
 *
 * Decoding begins at a record of the transactions that are running, which the
 * background writer and checkpoints write: every 15 seconds, where something was
 * written at all.  A standby's fresh copy of a slot lacks snapshots of decoding, and
 * needs up to three such records before its subscriber loses nothing by a failover
 * to it.  While a slot has the output plugin "sluice", they are written more often
 * here.  A record is some dozens of bytes, and a few for each transaction.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "gate.h"
#include "replication/slot.h"
#include "storage/lwlock.h"
#include "storage/standby.h"
#include "utils/timestamp.h"

/* Patroni looks at its node's slots as often. */
#define WRITE_EVERY_MS	2000

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
	static XLogRecPtr last = InvalidXLogRecPtr;
	TimestampTz now;

	if (!XLogLogicalInfoActive() || RecoveryInProgress())
		return;
	now = GetCurrentTimestamp();
	if (now >= written && !TimestampDifferenceExceeds(written, now, WRITE_EVERY_MS))
		return;
	written = now;
	if (GetLastImportantRecPtr() > last && has_slot())
		last = LogStandbySnapshot();
}
