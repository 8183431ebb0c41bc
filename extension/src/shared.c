/*
 * shared.c
 *		The shared memory of the gates: made once, and what has been counted in it.
 */
#include "postgres.h"

#include "compat.h"
#include "gate.h"

SluiceShared *sluice_shared = NULL;

const char *
gate_class_name(int class)
{
	static const char *const names[GATE_CLASSES] = {
		"transaction", "autocommit", "query", "bigquery"
	};

	return names[class];
}

const char *
gate_kind_name(GateKind kind)
{
	static const char *const names[] = {"class", "role", "database"};

	return names[kind];
}

Size
sluice_shared_size(void)
{
	return add_size(offsetof(SluiceShared, seat),
					mul_size(SLUICE_MAX_BACKENDS(), sizeof(Seat)));
}

/* Called where shared memory is made or attached to, under AddinShmemInitLock. */
void
sluice_shared_init(bool found)
{
	if (found)
		return;
	memset(sluice_shared, 0, sluice_shared_size());
	sluice_shared->gate_locks = GetNamedLWLockTranche("sluice_gate");
	sluice_shared->lock = &sluice_shared->gate_locks[GATES].lock;
	sluice_shared->seats = SLUICE_MAX_BACKENDS();
	pg_atomic_init_u32(&sluice_shared->generation, 1);
	pg_atomic_init_u32(&sluice_shared->wrong_secrets, 0);
	pg_atomic_init_u64(&sluice_shared->wrong_told, 0);
	pg_atomic_init_u32(&sluice_shared->keeper, 0);
	pg_atomic_init_u64(&sluice_shared->keeper_left, (uint64) GetCurrentTimestamp());
	for (int i = 0; i < CATALOG_COUNTS; i++)
		pg_atomic_init_u64(&sluice_shared->catalog[i], 0);
	for (int i = 0; i < GATES; i++)
	{
		Gate	   *gate = &sluice_shared->gates[i];

		pg_atomic_init_u32(&gate->running, 0);
		pg_atomic_init_u32(&gate->reserved, 0);
		pg_atomic_init_u32(&gate->limit, 0);
		pg_atomic_init_u32(&gate->waiting, 0);
		pg_atomic_init_u64(&gate->first_since, 0);
		gate->first = gate->last = gate->watcher = -1;
		gate->first_lingering = gate->last_lingering = -1;
		if (i < GATE_CLASSES)
		{
			gate->kind = KIND_CLASS;
			strlcpy(gate->name, gate_class_name(i), NAMEDATALEN);
		}
	}
	for (int i = 0; i < sluice_shared->seats; i++)
	{
		Seat	   *seat = seat_of(i);

		for (int place = 0; place < HELD_MAX; place++)
			seat->held[place] = -1;
		seat->waits_for = seat->next = seat->previous = -1;
	}
}

/* The number that a gate has let in since the server started. */
uint64
gate_admitted(int number)
{
	uint64		sum = 0;

	for (int i = 0; i < sluice_shared->seats; i++)
		sum += ((volatile Seat *) seat_of(i))->admitted[number];
	return sum;
}

/* Forgets what a gate has counted so far. */
void
gate_reset(int number)
{
	Gate	   *gate = &sluice_shared->gates[number];
	uint64		admitted = gate_admitted(number);

	LWLockAcquire(lock_of(number), LW_EXCLUSIVE);
	gate->admitted_before = admitted;
	gate->waited = gate->waited_us = gate->over_limit = gate->given_up = 0;
	memset(gate->wait_us, 0, sizeof(gate->wait_us));
	LWLockRelease(lock_of(number));
}
