/*
 * retain.c
 *		Several transactions per admission, while others wait.
 *
 * A process that is woken after a long wait finds its memory gone from the
 * caches, and its transaction takes a good deal more CPU time for it.  So an
 * admitted session may run up to "sluice.transactions_per_admission"
 * transactions: at the end of one, if other sessions wait, it retains its slot.
 * If its next transaction is of the same class, and begins before the slot has
 * been taken away, it is admitted without queueing.
 *
 * Sessions with a retained slot are in a list of their gate, oldest first.  All
 * may retain theirs for RETAIN_US, so that is also the order in which they
 * expire.  There is no timer in idle sessions: the watcher, one of the waiters
 * (queue.c), sleeps no longer than until the first slot expires, and releases it
 * on behalf of its session.  A session that retains its slot wakes the watcher if
 * that sleeps for longer.  Slots are retained only while others wait: the last
 * one to leave the queue releases them all.
 *
 * A client that did not return in time has left a slot unused meanwhile.  Its
 * session does not retain its slot at the next end of a transaction, and if it is
 * late again after that, at the next two, four, ..., MISSES_MAX.
 *
 * A retained slot is in use, and counted in Gate.running, so the limit is kept.
 * But no transaction has it: it is in no GateBackend.held.
 *
 * A session that has a slot of a role's or database's gate does not retain any,
 * since that would have to include those; nor does a superuser with a reserved
 * slot.
 *
 * Locks: the lists, and the list links of a backend, change under the gate's
 * lock.  That decides whether a slot is reused by its session or taken away.
 */
#include "postgres.h"

#include "access/xact.h"
#include "compat.h"
#include "gate.h"
#include "storage/latch.h"

/*
 * Time for which a slot is retained, us.  A client with hundreds of connections
 * takes some ms to return to this one, and more on a busy machine.
 */
#define RETAIN_US		INT64CONST(20000)

/*
 * Time after admission during which a slot may be retained, us.  This is for
 * short transactions: nobody is to wait for eight long ones.
 */
#define ADMISSION_US	INT64CONST(1000000)

/* Maximum number of transactions after which a late session retains nothing. */
#define MISSES_MAX		16

/* Transactions since this session's admission, and the time of that. */
static int	transactions = 0;
static TimestampTz admitted_at = 0;

/* The gate whose slot this session has retained, or -1; and since when. */
static int	retained_gate = -1;
static TimestampTz retained_since = 0;

/* After how many transactions nothing is retained, and how many are left. */
static int	misses = 0;
static int	skips_left = 0;

/* This session has been admitted, after a wait or without one. */
void
retain_begin(bool has_waited)
{
	transactions = 1;
	/* Without a wait that is close enough, and costs nothing. */
	admitted_at = has_waited ? GetCurrentTimestamp() : GetCurrentStatementStartTimestamp();
}

/* Whether a time is over, or the clock has been set back. */
static bool
has_elapsed(TimestampTz since, int64 us, TimestampTz now)
{
	return now - since >= us || now < since;
}

static void
join_list(Gate *gate, TimestampTz now)
{
	int			me = SLUICE_MY_PROC_NUMBER;
	GateBackend *backend = gate_backend(me);

	backend->retained_since = now;
	backend->next = -1;
	backend->previous = gate->retained_tail;
	if (gate->retained_tail >= 0)
		gate_backend(gate->retained_tail)->next = me;
	else
		gate->retained_head = me;
	gate->retained_tail = me;
}

static void
leave_list(Gate *gate, GateBackend *backend)
{
	if (backend->previous >= 0)
		gate_backend(backend->previous)->next = backend->next;
	else
		gate->retained_head = backend->next;
	if (backend->next >= 0)
		gate_backend(backend->next)->previous = backend->previous;
	else
		gate->retained_tail = backend->previous;
	backend->next = backend->previous = -1;
	backend->retained_since = 0;
}

static void
release_retained(Gate *gate, GateBackend *backend)
{
	leave_list(gate, backend);
	pg_atomic_fetch_sub_u32(&gate->running, 1);
}

/* Releases the retained slots that have expired. Caller holds the gate's lock. */
void
retain_release_expired(Gate *gate, TimestampTz now)
{
	if (gate->retained_head < 0)
		return;
	while (gate->retained_head >= 0 &&
		   has_elapsed(gate_backend(gate->retained_head)->retained_since, RETAIN_US, now))
		release_retained(gate, gate_backend(gate->retained_head));
	gate_wake_head_locked(gate);
}

/* Releases all retained slots: nobody waits any more. Caller holds the gate's lock. */
void
retain_release_all(Gate *gate)
{
	while (gate->retained_head >= 0)
		release_retained(gate, gate_backend(gate->retained_head));
}

/*
 * Time until the next retained slot expires, in ms; -1 if there is none. Caller
 * holds the gate's lock.
 */
long
retain_ms_left(const Gate *gate, TimestampTz now)
{
	TimestampTz since;

	if (gate->retained_head < 0)
		return -1;
	since = gate_backend(gate->retained_head)->retained_since;
	return TimestampDifferenceMilliseconds(now, since + RETAIN_US);
}

/*
 * Wakes the watcher if it sleeps for longer than a slot may be retained. Caller
 * holds the gate's lock.
 */
void
retain_wake_watcher(Gate *gate)
{
	if (gate->watcher < 0 || gate->is_watched)
		return;
	gate->is_watched = true;
	SetLatch(&GetPGProcByNumber(gate->watcher)->procLatch);
}

/* Whether this session retains nothing this time, since its client was late. */
static bool
skip_retention(void)
{
	if (skips_left == 0)
		return false;
	skips_left--;
	return true;
}

/* The client has returned: takes note whether that was in time. */
static void
note_return(void)
{
	if (GetCurrentStatementStartTimestamp() - retained_since < RETAIN_US)
		misses = 0;
	else
		misses = Min(Max(2 * misses, 1), MISSES_MAX);
	skips_left = misses;
}

/*
 * A transaction with a slot of this gate has ended.  Retains the slot for the
 * next transaction, if this session may run another one; returns whether it did.
 */
bool
retain_slot(int number)
{
	Gate	   *gate = &sluice_shared->gates[number];
	TimestampTz now;
	bool		retains;

	if (transactions >= sluice_transactions_per_admission ||
		pg_atomic_read_u32(&gate->waiting) == 0 || skip_retention())
		return false;
	LWLockAcquire(lock_of(number), LW_EXCLUSIVE);
	now = GetCurrentTimestamp();
	retain_release_expired(gate, now);
	/* The limit may have been lowered below the number of slots in use. */
	retains = pg_atomic_read_u32(&gate->waiting) > 0 &&
		pg_atomic_read_u32(&gate->running) <= pg_atomic_read_u32(&gate->limit) &&
		!has_elapsed(admitted_at, ADMISSION_US, now);
	if (retains)
	{
		join_list(gate, now);
		retained_gate = number;
		retained_since = now;
		retain_wake_watcher(gate);
	}
	LWLockRelease(lock_of(number));
	return retains;
}

/*
 * Reuses the retained slot, if there still is one and it is of the wanted gate;
 * returns whether it did.  Otherwise, as always with -1, releases what is left.
 */
bool
retain_reuse(int wanted)
{
	int			number = retained_gate;
	GateBackend *backend = gate_backend(SLUICE_MY_PROC_NUMBER);
	Gate	   *gate;
	bool		is_reused = false;

	if (number < 0)
		return false;
	retained_gate = -1;
	note_return();
	gate = &sluice_shared->gates[number];
	LWLockAcquire(lock_of(number), LW_EXCLUSIVE);
	if (backend->retained_since != 0)
	{
		is_reused = number == wanted &&
			pg_atomic_read_u32(&gate->running) <= pg_atomic_read_u32(&gate->limit);
		if (is_reused)
		{
			leave_list(gate, backend);
			gate->reuses++;
			transactions++;
		}
		else
		{
			release_retained(gate, backend);
			gate_wake_head_locked(gate);
		}
	}
	LWLockRelease(lock_of(number));
	return is_reused;
}
