/*
 * compat.h
 *		All that differs between PostgreSQL 14 and 18, so that no other file
 *		asks for a version.
 */
#ifndef SLUICE_COMPAT_H
#define SLUICE_COMPAT_H

#include "funcapi.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lock.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "utils/guc.h"
#include "utils/wait_event.h"

#if PG_VERSION_NUM < 140000
#error "Sluice's gate needs PostgreSQL 14 or later"
#endif

/* Number of a process among all, below MaxBackends for those that have clients. */
#if PG_VERSION_NUM >= 170000
#define SLUICE_MY_PROC_NUMBER	((int) MyProcNumber)
#else
#define SLUICE_MY_PROC_NUMBER	(MyProc->pgprocno)
#endif

/* Places that shared memory needs, when that is asked for. */
#if PG_VERSION_NUM >= 150000
#define SLUICE_MAX_BACKENDS()	MaxBackends
#else
#include "postmaster/autovacuum.h"
#include "replication/walsender.h"
#define SLUICE_MAX_BACKENDS() \
	(MaxConnections + autovacuum_max_workers + 1 + \
	 max_worker_processes + max_wal_senders)
#endif

/* When shared memory may be asked for: 14 lets libraries do that as they load. */
#if PG_VERSION_NUM >= 150000
#define SLUICE_ON_SHMEM_REQUEST(previous, hook) \
	((previous) = shmem_request_hook, shmem_request_hook = (hook))
#else
typedef void (*shmem_request_hook_type) (void);
#define SLUICE_ON_SHMEM_REQUEST(previous, hook)	(hook) ()
#endif

/* What a check hook hands to its assign hook. */
#if PG_VERSION_NUM >= 160000
#define sluice_guc_alloc(size)	guc_malloc(LOG, (size))
#define sluice_guc_free(what)	guc_free(what)
#else
#define sluice_guc_alloc(size)	malloc(size)
#define sluice_guc_free(what)	free(what)
#endif

/* Wait events with names of their own. */
#if PG_VERSION_NUM >= 170000
#define SLUICE_NEW_WAIT_EVENT(name)	WaitEventExtensionNew(name)
#else
#define SLUICE_NEW_WAIT_EVENT(name)	((void) (name), PG_WAIT_EXTENSION)
#endif

#if PG_VERSION_NUM >= 170000
#define SLUICE_WAIT_BUFFER_PIN	PG_WAIT_BUFFERPIN
#else
#define SLUICE_WAIT_BUFFER_PIN	PG_WAIT_BUFFER_PIN
#endif

#if PG_VERSION_NUM < 150000
#define MarkGUCPrefixReserved(prefix)	EmitWarningsOnPlaceholders(prefix)
#endif

/* Whether a lock that is held keeps any of those who wait for it from it. */
static inline bool
sluice_conflicts(const PROCLOCK *held)
{
	LOCK	   *lock = held->tag.myLock;
	LockMethod	method = GetLocksMethodTable(lock);

	for (LOCKMODE mode = 1; mode <= method->numLockModes; mode++)
	{
		if ((held->holdMask & LOCKBIT_ON(mode)) &&
			(method->conflictTab[mode] & lock->waitMask))
			return true;
	}
	return false;
}

/*
 * Whether anybody waits for a lock that this process holds.
 *
 * Each list of our locks may be looked at under its partition's lock; whether
 * it is empty may be asked without, since only we add to it, but for a
 * fast-path lock that somebody is moving to the main table right now in order
 * to wait for it: the next look sees that one.
 */
static inline bool
sluice_holds_up_others(void)
{
	for (int i = 0; i < NUM_LOCK_PARTITIONS; i++)
	{
		bool		found = false;
#if PG_VERSION_NUM >= 160000
		dlist_head *mine = &MyProc->myProcLocks[i];
		dlist_iter	iter;

		if (dlist_is_empty(mine))
			continue;
		LWLockAcquire(LockHashPartitionLockByIndex(i), LW_SHARED);
		dlist_foreach(iter, mine)
		{
			PROCLOCK   *held = dlist_container(PROCLOCK, procLink, iter.cur);

			found |= sluice_conflicts(held);
		}
#else
		SHM_QUEUE  *mine = &MyProc->myProcLocks[i];
		PROCLOCK   *held;

		if (SHMQueueEmpty(mine))
			continue;
		LWLockAcquire(LockHashPartitionLockByIndex(i), LW_SHARED);
		held = (PROCLOCK *) SHMQueueNext(mine, mine, offsetof(PROCLOCK, procLink));
		while (held)
		{
			found |= sluice_conflicts(held);
			held = (PROCLOCK *) SHMQueueNext(mine, &held->procLink,
											 offsetof(PROCLOCK, procLink));
		}
#endif
		LWLockRelease(LockHashPartitionLockByIndex(i));
		if (found)
			return true;
	}
	return false;
}

/* A set-returning function that puts all its rows into a tuplestore. */
static inline ReturnSetInfo *
sluice_begin_rows(FunctionCallInfo fcinfo)
{
#if PG_VERSION_NUM >= 160000
	InitMaterializedSRF(fcinfo, 0);
#elif PG_VERSION_NUM >= 150000
	SetSingleFuncCall(fcinfo, 0);
#else
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	MemoryContext old;
	TupleDesc	tupdesc;

	if (rsinfo == NULL || !IsA(rsinfo, ReturnSetInfo) ||
		!(rsinfo->allowedModes & SFRM_Materialize))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("materialize mode required, but it is not allowed in this context")));
	old = MemoryContextSwitchTo(rsinfo->econtext->ecxt_per_query_memory);
	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	rsinfo->returnMode = SFRM_Materialize;
	rsinfo->setResult = tuplestore_begin_heap(rsinfo->allowedModes & SFRM_Materialize_Random, false, work_mem);
	rsinfo->setDesc = tupdesc;
	MemoryContextSwitchTo(old);
#endif
	return (ReturnSetInfo *) fcinfo->resultinfo;
}

#endif							/* SLUICE_COMPAT_H */
