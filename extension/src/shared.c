/*
 * shared.c
 *		Shared memory of the gates, and its counters.
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
	return add_size(offsetof(SluiceShared, backends),
					mul_size(SLUICE_MAX_BACKENDS(), sizeof(GateBackend)));
}

/* Caller holds AddinShmemInitLock. */
void
sluice_shared_init(bool found)
{
	if (found)
		return;
	memset(sluice_shared, 0, sluice_shared_size());
	sluice_shared->gate_locks = GetNamedLWLockTranche("sluice_gate");
	sluice_shared->lock = &sluice_shared->gate_locks[GATES].lock;
	sluice_shared->backend_count = SLUICE_MAX_BACKENDS();
	pg_atomic_init_u32(&sluice_shared->generation, 1);
	pg_atomic_init_u32(&sluice_shared->configuration, 0);
	pg_atomic_init_u32(&sluice_shared->reserved_slots, 0);
	pg_atomic_init_u32(&sluice_shared->wrong_secrets, 0);
	pg_atomic_init_u64(&sluice_shared->wrong_reported, 0);
	pg_atomic_init_u32(&sluice_shared->controller, 0);
	pg_atomic_init_u64(&sluice_shared->controller_left, (uint64) GetCurrentTimestamp());
	for (int i = 0; i < CATALOG_COUNTS; i++)
		pg_atomic_init_u64(&sluice_shared->catalog[i], 0);
	for (int i = 0; i < GATES; i++)
	{
		Gate	   *gate = &sluice_shared->gates[i];

		pg_atomic_init_u32(&gate->running, 0);
		pg_atomic_init_u32(&gate->reserved, 0);
		pg_atomic_init_u32(&gate->limit, 0);
		pg_atomic_init_u32(&gate->waiting, 0);
		pg_atomic_init_u64(&gate->head_since, 0);
		gate->head = gate->tail = gate->watcher = -1;
		gate->retained_head = gate->retained_tail = -1;
		if (i < GATE_CLASSES)
		{
			gate->kind = KIND_CLASS;
			strlcpy(gate->name, gate_class_name(i), NAMEDATALEN);
		}
	}
	for (int i = 0; i < sluice_shared->backend_count; i++)
	{
		GateBackend *backend = gate_backend(i);

		for (int slot = 0; slot < GATES_PER_BACKEND; slot++)
			backend->held[slot] = -1;
		backend->waits_for = backend->next = backend->previous = -1;
	}
}

/* Number of admissions since the server started. */
uint64
gate_admitted(int number)
{
	uint64		sum = 0;

	for (int i = 0; i < sluice_shared->backend_count; i++)
		sum += ((volatile GateBackend *) gate_backend(i))->admitted[number];
	return sum;
}

/* Resets the counters of a gate. */
void
gate_reset(int number)
{
	Gate	   *gate = &sluice_shared->gates[number];
	uint64		admitted = gate_admitted(number);

	LWLockAcquire(lock_of(number), LW_EXCLUSIVE);
	gate->admitted_before = admitted;
	gate->waited = gate->waited_us = gate->over_limit = gate->failed_waits = 0;
	memset(gate->wait_us, 0, sizeof(gate->wait_us));
	LWLockRelease(lock_of(number));
}
