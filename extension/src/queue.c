/*
 * queue.c
 *		The wait queue of a gate.
 *
 * A session that finds no free slot joins the queue, which is protected by the
 * gate's lock, and sleeps on its latch.  Releasing a slot wakes the head of the
 * queue and nobody else, so a free slot costs one wakeup, however many wait.
 *
 * No wakeup is lost: a waiter increments Gate.waiting and then looks for a free
 * slot; whoever releases a slot does so first, and then looks at Gate.waiting.
 * Both operations are full barriers, so one of the two sees the other.
 *
 * While others wait, a session may retain its slot from one transaction to the
 * next (retain.c).  One waiter, the watcher, releases retained slots when they
 * expire.  At first that is the session that found the queue empty; when it
 * leaves, the watch passes to the tail, which will stay longest.  So watching
 * costs one wakeup per queue of sessions rather than one per session.
 *
 * A wait cannot be part of a deadlock for long: see deadlock.c.
 *
 * Locks: a gate's lock is held for a few instructions only, never together with
 * that of another gate, and acquired after SluiceShared.lock if both are needed.
 */
#include "postgres.h"

#include "compat.h"
#include "gate.h"
#include "libpq/libpq.h"
#include "libpq/libpq-be.h"
#include "port/pg_bitutils.h"
#include "storage/latch.h"
#include "utils/guc.h"
#include "utils/wait_event.h"

/* Wakes the head of the queue if a slot is free. Caller holds the gate's lock. */
void
gate_wake_head_locked(Gate *gate)
{
	GateBackend *backend;

	if (gate->head < 0)
		return;
	backend = gate_backend(gate->head);
	if (!backend->is_woken && (!gate_has_limit(gate) || gate_has_free_slot(gate)))
	{
		backend->is_woken = true;
		SetLatch(&GetPGProcByNumber(gate->head)->procLatch);
	}
}

/* Wakes the head of the queue if a slot is free. */
void
gate_wake_head(int number)
{
	Gate	   *gate = &sluice_shared->gates[number];

	if (pg_atomic_read_u32(&gate->waiting) == 0)
		return;
	LWLockAcquire(lock_of(number), LW_EXCLUSIVE);
	gate_wake_head_locked(gate);
	LWLockRelease(lock_of(number));
}

/* Wakes the first waiting superuser: a reserved slot has been released. */
void
gate_wake_superuser(int number)
{
	Gate	   *gate = &sluice_shared->gates[number];

	if (pg_atomic_read_u32(&gate->waiting) == 0)
		return;
	LWLockAcquire(lock_of(number), LW_EXCLUSIVE);
	for (int at = gate->head; at >= 0; at = gate_backend(at)->next)
	{
		if (gate_backend(at)->is_superuser)
		{
			SetLatch(&GetPGProcByNumber(at)->procLatch);
			break;
		}
	}
	LWLockRelease(lock_of(number));
}

/* Wakes all waiters of all gates, since settings that concern them have changed. */
void
gate_wake_all(void)
{
	for (int number = 0; number < GATES; number++)
	{
		Gate	   *gate = &sluice_shared->gates[number];

		if (pg_atomic_read_u32(&gate->waiting) == 0)
			continue;
		LWLockAcquire(lock_of(number), LW_SHARED);
		for (int at = gate->head; at >= 0; at = gate_backend(at)->next)
			SetLatch(&GetPGProcByNumber(at)->procLatch);
		LWLockRelease(lock_of(number));
	}
}

static void
update_head_since(Gate *gate)
{
	pg_atomic_write_u64(&gate->head_since,
						gate->head < 0 ? 0 : (uint64) gate_backend(gate->head)->since);
}

/* Caller holds the gate's lock. */
static void
join_queue(Gate *gate, int number, bool is_superuser)
{
	int			me = SLUICE_MY_PROC_NUMBER;
	GateBackend *mine = gate_my_backend;

	mine->since = GetCurrentTimestamp();
	mine->is_superuser = is_superuser;
	mine->is_woken = false;
	mine->next = -1;
	mine->previous = gate->tail;
	if (gate->tail >= 0)
		gate_backend(gate->tail)->next = me;
	else
		gate->head = gate->watcher = me;
	gate->tail = me;
	mine->waits_for = number;
	update_head_since(gate);
	pg_atomic_fetch_add_u32(&gate->waiting, 1);
}

/* The watcher leaves the queue. Caller holds the gate's lock. */
static void
pass_watch(Gate *gate)
{
	gate->watcher = gate->tail;
	gate->is_watched = false;
	if (gate->tail < 0)
		retain_release_all(gate);
	else if (gate->retained_head >= 0)
		retain_wake_watcher(gate);
}

/* Leaves the queue, and wakes the next waiter if a slot is free. Caller holds the gate's lock. */
static void
leave_queue(Gate *gate)
{
	GateBackend *mine = gate_my_backend;

	if (mine->previous >= 0)
		gate_backend(mine->previous)->next = mine->next;
	else
		gate->head = mine->next;
	if (mine->next >= 0)
		gate_backend(mine->next)->previous = mine->previous;
	else
		gate->tail = mine->previous;
	mine->waits_for = mine->next = mine->previous = -1;
	pg_atomic_fetch_sub_u32(&gate->waiting, 1);
	update_head_since(gate);
	if (gate->watcher == SLUICE_MY_PROC_NUMBER)
		pass_watch(gate);
	gate_wake_head_locked(gate);
}

/* Leaves the queue that this session is in, if any, after an error. */
void
gate_abort_wait(void)
{
	int			number = gate_my_backend->waits_for;
	Gate	   *gate;

	if (number < 0)
		return;
	gate = &sluice_shared->gates[number];
	LWLockAcquire(lock_of(number), LW_EXCLUSIVE);
	gate->failed_waits++;
	leave_queue(gate);
	LWLockRelease(lock_of(number));
}

/* Counts a wait that ended with admission. Caller holds the gate's lock. */
static void
count_wait(Gate *gate, TimestampTz since)
{
	int64		us = Max(GetCurrentTimestamp() - since, 1);
	int			bucket = Min(pg_leftmost_one_pos64((uint64) us), WAIT_BUCKETS - 1);

	gate->waited++;
	gate->waited_us += us;
	gate->wait_us[bucket]++;
}

static uint32
wait_event(int number)
{
	static const char *const names[GATE_CLASSES + 2] = {
		"SluiceGateTransaction", "SluiceGateAutocommit", "SluiceGateQuery",
		"SluiceGateBigquery", "SluiceGateRole", "SluiceGateDatabase"
	};
	static uint32 events[GATE_CLASSES + 2];
	int			which = number;

	/* The gate's kind cannot change while this session is in its queue. */
	if (number >= GATE_CLASSES)
		which = sluice_shared->gates[number].kind == KIND_ROLE ? GATE_CLASSES : GATE_CLASSES + 1;
	if (events[which] == 0)
		events[which] = SLUICE_NEW_WAIT_EVENT(names[which]);
	return events[which];
}

static void
report_timeout(int number)
{
	Gate	   *gate = &sluice_shared->gates[number];

	ereport(ERROR,
			(errcode(MAKE_SQLSTATE('5', '3', 'S', '0', '1')),
			 errmsg("canceling statement due to gate timeout"),
			 errdetail("The %s gate \"%s\" has a limit of %u and a queue length of %u.",
					   gate_kind_name(gate->kind),
					   gate->name,
					   pg_atomic_read_u32(&gate->limit),
					   pg_atomic_read_u32(&gate->waiting)),
			 errhint("Try again later, increase \"sluice.gate_timeout\", or increase the gate's limit if the server has spare capacity.")));
}

/*
 * A client that has disconnected would only hold up others.  The next
 * CHECK_FOR_INTERRUPTS() ends the session, and sends nothing more to it.
 */
static void
check_client(void)
{
	if (!pq_check_connection())
	{
		ClientConnectionLost = true;
		InterruptPending = true;
	}
}

/* The latch's timeout, in ms.  Reports an error if "sluice.gate_timeout" is over. */
static long
timeout_ms(Wait *wait)
{
	long		ms = DeadlockTimeout;

	if (sluice_gate_timeout > 0)
	{
		long		waited = TimestampDifferenceMilliseconds(wait->deadline_from, GetCurrentTimestamp());

		if (waited >= sluice_gate_timeout)
			report_timeout(wait->number);
		ms = Min(ms, sluice_gate_timeout - waited);
	}
	if (wait->watch_ms >= 0)
		ms = Min(ms, wait->watch_ms);
	return ms;
}

/* Does the watcher's work, if that is this session. Caller holds the gate's lock. */
static void
watch_retained(Gate *gate, Wait *wait)
{
	TimestampTz now;

	if (gate->watcher != SLUICE_MY_PROC_NUMBER)
		return;
	now = GetCurrentTimestamp();
	retain_release_expired(gate, now);
	wait->watch_ms = retain_ms_left(gate, now);
	gate->is_watched = wait->watch_ms >= 0;
}

/*
 * Whether this session has become exempt while it waited.  A session reads the
 * configuration file only between two commands.
 */
static bool
has_become_exempt(Wait *wait)
{
	uint32		generation = pg_atomic_read_u32(&sluice_shared->generation);
	bool		is_exempt = false;

	if (wait->generation == generation)
		return false;
	wait->generation = generation;
	LWLockAcquire(sluice_shared->lock, LW_SHARED);
	for (int i = 0; i < sluice_shared->exempt_count; i++)
	{
		const ExemptName *exempt = &sluice_shared->exempt[i];

		is_exempt |= strcmp(exempt->name, exempt->kind == KIND_ROLE ?
							MyProcPort->user_name : MyProcPort->database_name) == 0;
	}
	LWLockRelease(sluice_shared->lock);
	return is_exempt;
}

/* Whether the wait is over; *admission says how. */
static bool
try_admission(Wait *wait, Admission *admission)
{
	Gate	   *gate = &sluice_shared->gates[wait->number];
	bool		is_forced = false;	/* admitted whether a slot is free or not */
	bool		is_unlimited;
	bool		is_done = true;

	*admission = ADMIT_SLOT;
	if (wait->is_superuser && gate_acquire_reserved_slot(gate))
	{
		*admission = ADMIT_RESERVED;
		is_forced = true;
	}
	else if (gate_check_is_due(wait))
		is_forced = gate_deadlock_detected(wait);
	is_unlimited = !gate_has_limit(gate) || has_become_exempt(wait);
	if (!is_forced && !is_unlimited && gate->head != SLUICE_MY_PROC_NUMBER &&
		gate->watcher != SLUICE_MY_PROC_NUMBER)
		return false;

	LWLockAcquire(lock_of(wait->number), LW_EXCLUSIVE);
	gate_my_backend->is_woken = false;
	watch_retained(gate, wait);
	if (is_forced)
	{
		if (*admission == ADMIT_SLOT)
		{
			pg_atomic_fetch_add_u32(&gate->running, 1);
			gate->over_limit++;
		}
	}
	else if (is_unlimited)
		*admission = ADMIT_UNLIMITED;
	else
		is_done = gate->head == SLUICE_MY_PROC_NUMBER && gate_acquire_slot(gate);
	if (is_done)
	{
		count_wait(gate, gate_my_backend->since);
		leave_queue(gate);
	}
	LWLockRelease(lock_of(wait->number));
	return is_done;
}

/*
 * Waits in a gate's queue until this session is admitted.  On error, the caller
 * has to call gate_abort_wait().
 */
Admission
gate_wait(int number, bool is_superuser, TimestampTz deadline_from, uint32 generation)
{
	Wait		wait = {
		.number = number, .is_superuser = is_superuser, .deadline_from = deadline_from,
		.generation = generation, .watch_ms = -1
	};
	Admission	admission;

	LWLockAcquire(lock_of(number), LW_EXCLUSIVE);
	join_queue(&sluice_shared->gates[number], number, is_superuser);
	LWLockRelease(lock_of(number));
	/* Nobody is admitted above the limit without having waited. */
	wait.last_check = gate_my_backend->since;

	while (!try_admission(&wait, &admission))
	{
		int			events;

		events = WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						   timeout_ms(&wait), wait_event(number));
		ResetLatch(MyLatch);
		/* This may reset the latch, too; try_admission() looks at everything anew. */
		if (events & WL_TIMEOUT)
			check_client();
		CHECK_FOR_INTERRUPTS();
	}
	return admission;
}
