/*
 * views.c
 *		SQL functions that show the state of the gates.
 */
#include "postgres.h"

#include "compat.h"
#include "catalog/pg_type.h"
#include "gate.h"
#include "utils/array.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(sluice_gate);
PG_FUNCTION_INFO_V1(sluice_gate_waiters);
PG_FUNCTION_INFO_V1(sluice_gate_reset);

static Datum
kind_of(const Gate *gate)
{
	return CStringGetTextDatum(gate_kind_name(gate->kind));
}

static Datum
histogram(const uint64 *counts)
{
	Datum		values[WAIT_BUCKETS];

	for (int i = 0; i < WAIT_BUCKETS; i++)
		values[i] = Int64GetDatum((int64) counts[i]);
	return PointerGetDatum(construct_array(values, WAIT_BUCKETS, INT8OID, sizeof(int64),
										   FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

/* One row per gate. */
Datum
sluice_gate(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rows = sluice_begin_rows(fcinfo);

	for (int i = 0; i < GATES; i++)
	{
		Gate	   *gate = &sluice_shared->gates[i];
		Gate		copy;
		Datum		values[12];
		bool		nulls[12] = {false};

		if (i >= GATE_CLASSES && !gate_is_in_use(gate))
			continue;
		LWLockAcquire(sluice_shared->lock, LW_SHARED);
		LWLockAcquire(lock_of(i), LW_SHARED);
		copy = *gate;
		LWLockRelease(lock_of(i));
		LWLockRelease(sluice_shared->lock);

		values[0] = kind_of(&copy);
		values[1] = CStringGetTextDatum(copy.name);
		values[2] = Int32GetDatum((int32) copy.limit.value);
		values[3] = BoolGetDatum(i < GATE_CLASSES && sluice_concurrency[i] == LIMIT_AUTO);
		values[4] = Int32GetDatum((int32) (copy.running.value + copy.reserved.value));
		values[5] = Int32GetDatum((int32) copy.waiting.value);
		values[6] = Int64GetDatum((int64) (gate_admitted(i) - copy.admitted_before));
		values[7] = Int64GetDatum((int64) copy.waited);
		values[8] = Float8GetDatum(copy.waited_us / 1000.0);
		values[9] = Int64GetDatum((int64) copy.over_limit);
		values[10] = Int64GetDatum((int64) copy.failed_waits);
		values[11] = histogram(copy.wait_us);
		tuplestore_putvalues(rows->setResult, rows->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/* One row per waiting session. */
Datum
sluice_gate_waiters(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rows = sluice_begin_rows(fcinfo);

	for (int number = 0; number < GATES; number++)
	{
		Gate	   *gate = &sluice_shared->gates[number];
		int			count = 0;
		int		   *pids;
		TimestampTz *since;

		if (pg_atomic_read_u32(&gate->waiting) == 0)
			continue;
		pids = palloc(sizeof(int) * sluice_shared->backend_count);
		since = palloc(sizeof(TimestampTz) * sluice_shared->backend_count);
		LWLockAcquire(lock_of(number), LW_SHARED);
		for (int at = gate->head; at >= 0 && count < sluice_shared->backend_count; at = gate_backend(at)->next)
		{
			pids[count] = GetPGProcByNumber(at)->pid;
			since[count] = gate_backend(at)->since;
			count++;
		}
		LWLockRelease(lock_of(number));

		for (int i = 0; i < count; i++)
		{
			Datum		values[5];
			bool		nulls[5] = {false};

			values[0] = Int32GetDatum(pids[i]);
			values[1] = kind_of(gate);
			values[2] = CStringGetTextDatum(gate->name);
			values[3] = Int32GetDatum(i + 1);
			values[4] = TimestampTzGetDatum(since[i]);
			tuplestore_putvalues(rows->setResult, rows->setDesc, values, nulls);
		}
		pfree(pids);
		pfree(since);
	}
	return (Datum) 0;
}

/* Resets all counters. */
Datum
sluice_gate_reset(PG_FUNCTION_ARGS)
{
	for (int i = 0; i < GATES; i++)
		gate_reset(i);
	PG_RETURN_VOID();
}
