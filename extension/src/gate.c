/*
 * gate.c
 *		Admission to the gates, and release of their slots.
 *
 * A gate has a limited number of slots.  A slot is acquired by one atomic
 * operation on Gate.running, and released by another.  A session that finds none
 * free waits in the gate's queue (queue.c).
 *
 * A released slot is not handed over to the head of the queue, which is merely
 * woken: until it runs, the slot is free, and a session that arrives meanwhile may
 * take it.  Where statements are short, that saves two context switches.  It is
 * allowed only while the head has waited for less than OVERTAKING_US.  After that
 * newcomers have to queue, so nobody is overtaken for longer than that once it
 * has become the head, and the queue itself is first come, first served.
 *
 * A session enters up to three gates: that of its role, of its database and of
 * its class, always in this order, so that there can't be a cycle of sessions
 * that wait for each other's slots.  Any error while it does so, from the first
 * slot that was not free to the last one acquired, releases all its slots.  No
 * catalog is accessed on the way: that might wait for a lock, or fail.
 */
#include "postgres.h"

#include "compat.h"
#include "gate.h"
#include "libpq/libpq-be.h"
#include "utils/guc.h"

/* Time for which newcomers may overtake the head of the queue, us. */
#define OVERTAKING_US	1000

GateBackend *gate_my_backend = NULL;

/* The gates of this session's role and database, or -1, and their generation. */
static int	my_role_gate = -1;
static int	my_database_gate = -1;
static uint32 my_generation = 0;

/* Whether a newcomer may acquire a slot without queueing. */
static bool
may_overtake(Gate *gate)
{
	TimestampTz since;

	if (pg_atomic_read_u32(&gate->waiting) == 0)
		return true;
	if (!gate_has_free_slot(gate))
		return false;
	since = (TimestampTz) pg_atomic_read_u64(&gate->head_since);
	if (since == 0)
		return true;
	/* The clock may have been set back. */
	since = GetCurrentTimestamp() - since;
	return since >= 0 && since < OVERTAKING_US;
}

static void
release_slot(int slot)
{
	int			number = gate_my_backend->held[slot];
	Gate	   *gate;

	if (number < 0)
		return;
	gate = &sluice_shared->gates[number];
	gate_my_backend->held[slot] = -1;
	if (gate_my_backend->is_reserved[slot])
	{
		pg_atomic_fetch_sub_u32(&gate->reserved, 1);
		gate_wake_superuser(number);
	}
	else
	{
		pg_atomic_fetch_sub_u32(&gate->running, 1);
		gate_wake_head(number);
	}
}

static void
release_all_slots(void)
{
	gate_abort_wait();
	for (int slot = GATES_PER_BACKEND - 1; slot >= 0; slot--)
		release_slot(slot);
}

/* Whether this session may use reserved slots.  No catalog is accessed for that. */
static bool
is_superuser_session(void)
{
	return strcmp(GetConfigOption("is_superuser", false, false), "on") == 0;
}

static void
record_admission(int number, int slot, Admission admission, bool has_waited)
{
	gate_my_backend->is_reserved[slot] = admission == ADMIT_RESERVED;
	gate_my_backend->held[slot] = number;
	gate_my_backend->admitted[number]++;
	if (slot == CLASS_SLOT)
		retain_begin(has_waited);
}

/* Enters a gate if that is possible without a wait. */
static bool
enter_immediately(int number, int slot)
{
	Gate	   *gate = &sluice_shared->gates[number];

	if (!gate_has_limit(gate))
		return true;
	if (!may_overtake(gate) || !gate_acquire_slot(gate))
		return false;
	record_admission(number, slot, ADMIT_SLOT, false);
	return true;
}

/* Enters a gate that had no free slot a moment ago. */
static void
enter_after_wait(int number, int slot, TimestampTz deadline_from)
{
	bool		is_superuser = is_superuser_session();
	Admission	admission = ADMIT_RESERVED;

	if (!is_superuser || !gate_acquire_reserved_slot(&sluice_shared->gates[number]))
		admission = gate_wait(number, is_superuser, deadline_from, my_generation);
	if (admission != ADMIT_UNLIMITED)
		record_admission(number, slot, admission, true);
}

/*
 * Enters the remaining gates, the first of which had no free slot a moment ago.
 * On error, this session holds no slot any more.
 */
static void
enter_remaining(const int *gates, int first)
{
	TimestampTz start = GetCurrentTimestamp();

	PG_TRY();
	{
		for (int slot = first; slot < GATES_PER_BACKEND; slot++)
		{
			if (gates[slot] >= 0 && gate_my_backend->held[slot] < 0 &&
				!enter_immediately(gates[slot], slot))
				enter_after_wait(gates[slot], slot, start);
		}
	}
	PG_CATCH();
	{
		release_all_slots();
		PG_RE_THROW();
	}
	PG_END_TRY();
}

/* Looks up the gates of this session's role and database. */
static void
find_keyed_gates(uint32 generation)
{
	my_role_gate = my_database_gate = -1;
	LWLockAcquire(sluice_shared->lock, LW_SHARED);
	for (int i = GATE_CLASSES; i < GATES; i++)
	{
		Gate	   *gate = &sluice_shared->gates[i];

		if (gate->kind == KIND_ROLE && strcmp(gate->name, MyProcPort->user_name) == 0)
			my_role_gate = i;
		if (gate->kind == KIND_DATABASE && strcmp(gate->name, MyProcPort->database_name) == 0)
			my_database_gate = i;
	}
	LWLockRelease(sluice_shared->lock);
	my_generation = generation;
}

static void
release_at_exit(int code, Datum arg)
{
	release_all_slots();
	retain_reuse(-1);
	gate_my_backend->client_pid = 0;
}

static void
attach_backend(void)
{
	gate_my_backend = gate_backend(SLUICE_MY_PROC_NUMBER);
	gate_my_backend->client_pid = sluice_client_pid(MyProcPort);
	on_shmem_exit(release_at_exit, (Datum) 0);
}

/* This session starts a statement or utility command. */
void
gate_count_command(void)
{
	if (gate_my_backend != NULL)
		gate_my_backend->commands++;
}

/*
 * Enters the gates of this session's role and database, and that of the class,
 * waiting if need be.  Slots that it already holds it keeps.  Must be called in
 * a client's backend only.
 */
void
gate_enter(GateClass class)
{
	uint32		generation = pg_atomic_read_u32(&sluice_shared->generation);
	int			gates[GATES_PER_BACKEND];

	if (gate_my_backend == NULL)
		attach_backend();
	/* After a reload, this session may have other gates. */
	if (retain_reuse(my_generation == generation ? (int) class : -1))
	{
		gate_my_backend->held[CLASS_SLOT] = class;
		gate_my_backend->admitted[class]++;
		return;
	}
	if (my_generation != generation)
		find_keyed_gates(generation);
	gates[0] = my_role_gate;
	gates[1] = my_database_gate;
	gates[CLASS_SLOT] = class;
	for (int slot = 0; slot < GATES_PER_BACKEND; slot++)
	{
		if (gates[slot] >= 0 && gate_my_backend->held[slot] < 0 &&
			!enter_immediately(gates[slot], slot))
		{
			enter_remaining(gates, slot);
			break;
		}
	}
}

/*
 * The transaction has ended: releases this session's slots, or retains one for
 * the next transaction.  Must not fail.
 */
void
gate_leave(void)
{
	const int  *held;

	if (gate_my_backend == NULL)
		return;
	held = gate_my_backend->held;
	if (held[CLASS_SLOT] >= 0 && held[0] < 0 && held[1] < 0 &&
		!gate_my_backend->is_reserved[CLASS_SLOT] && retain_slot(held[CLASS_SLOT]))
		gate_my_backend->held[CLASS_SLOT] = -1;
	else
		release_all_slots();
}

/*
 * Releases the slot of its class, since the transaction becomes one of another
 * class.  Must not fail.
 */
void
gate_leave_class(void)
{
	if (gate_my_backend != NULL)
		release_slot(CLASS_SLOT);
}
