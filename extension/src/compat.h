/*
 * compat.h
 *		All that differs between PostgreSQL 14 and 18, so that no other file
 *		asks for a version.
 */
#ifndef SLUICE_COMPAT_H
#define SLUICE_COMPAT_H

#include "access/xlog.h"
#include "access/xlogreader.h"
#include "access/xlogutils.h"
#include "funcapi.h"
#include "lib/ilist.h"
#include "libpq/libpq-be.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "replication/walsender.h"
#include "replication/walsender_private.h"
#include "storage/ipc.h"
#include "storage/lock.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "utils/backend_status.h"
#include "utils/guc.h"
#include "utils/guc_tables.h"
#include "utils/wait_event.h"

#include <sys/socket.h>

#if PG_VERSION_NUM < 140000
#error "Sluice's gate needs PostgreSQL 14 or later"
#endif

/* Number of a process among all, below MaxBackends for those that have clients. */
#if PG_VERSION_NUM >= 170000
#define SLUICE_MY_PROC_NUMBER	((int) MyProcNumber)
#else
#define SLUICE_MY_PROC_NUMBER	(MyProc->pgprocno)
#endif

/* All settings, in the order of their names; the list is the caller's. */
#if PG_VERSION_NUM >= 160000
#define sluice_settings(count)	get_guc_variables(count)
#else
static inline struct config_generic **
sluice_settings(int *count)
{
	size_t		size;
	struct config_generic **copy;

	*count = GetNumConfigOptions();
	size = sizeof(struct config_generic *) * *count;
	copy = palloc(size);
	memcpy(copy, get_guc_variables(), size);
	return copy;
}
#endif

/* Places that shared memory needs, when that is asked for. */
#if PG_VERSION_NUM >= 150000
#define SLUICE_MAX_BACKENDS()	MaxBackends
#else
#include "postmaster/autovacuum.h"
#define SLUICE_MAX_BACKENDS() \
	(MaxConnections + autovacuum_max_workers + 1 + \
	 max_worker_processes + max_wal_senders)
#endif

/* The moment to ask for shared memory: 14 lets libraries do that as they load. */
#if PG_VERSION_NUM >= 150000
#define SLUICE_ON_SHMEM_REQUEST(previous, hook) \
	((previous) = shmem_request_hook, shmem_request_hook = (hook))
#else
typedef void (*shmem_request_hook_type) (void);
#define SLUICE_ON_SHMEM_REQUEST(previous, hook)	(hook) ()
#endif

/*
 * Whether commits wait for standbys: the checkpointer's word in shared memory, which
 * is all that they look at.  The minor versions of May 2025 made a set of flags of
 * what was a bool; which of them runs is not known when this is built.
 */
#define SLUICE_STANDBYS_FLAG	(1 << 1)	/* SYNC_STANDBY_DEFINED, where there are flags */
#ifdef SYNC_STANDBY_DEFINED
#define SLUICE_STANDBYS_BYTE()	(((volatile WalSndCtlData *) WalSndCtl)->sync_standbys_status)
#else
#define SLUICE_STANDBYS_BYTE()	((bits8) ((volatile WalSndCtlData *) WalSndCtl)->sync_standbys_defined)
#endif

static inline bool
sluice_commits_wait(void)
{
	/* The first minor version with flags, from 14 to 17. */
	static const int first_minor[] = {18, 13, 9, 5};
	static int	version = 0;
	bool		has_flags;

	if (version == 0)
		version = atoi(GetConfigOption("server_version_num", false, false));
	has_flags = version >= 180000 || version % 10000 >= first_minor[version / 10000 - 14];
	return (SLUICE_STANDBYS_BYTE() & (has_flags ? SLUICE_STANDBYS_FLAG : true)) != 0;
}

/* Memory for the value that a check hook hands to its assign hook. */
#if PG_VERSION_NUM >= 160000
#define sluice_guc_alloc(size)	guc_malloc(LOG, (size))
#define sluice_guc_free(what)	guc_free(what)
#else
#define sluice_guc_alloc(size)	malloc(size)
#define sluice_guc_free(what)	free(what)
#endif

/* The function that begins a backup. */
#if PG_VERSION_NUM >= 150000
#define SLUICE_F_BACKUP_START	F_PG_BACKUP_START
#else
#define SLUICE_F_BACKUP_START	F_PG_START_BACKUP
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

/* Up to 17, executors are told whether they run once only. */
#if PG_VERSION_NUM >= 180000
#define SLUICE_EXECUTE_ONCE_PARAMETER
#define SLUICE_EXECUTE_ONCE
#else
#define SLUICE_EXECUTE_ONCE_PARAMETER	, bool execute_once
#define SLUICE_EXECUTE_ONCE	, execute_once
#endif

/* A reader of this server's WAL that does not wait for what is not there yet; none in 14. */
#if PG_VERSION_NUM >= 150000
#define SLUICE_HAS_OUTCOMES	true
static inline XLogReaderState *
sluice_wal_reader(void)
{
	return XLogReaderAllocate(wal_segment_size, NULL,
							  XL_ROUTINE(.page_read = read_local_xlog_page_no_wait,
										 .segment_open = wal_segment_open,
										 .segment_close = wal_segment_close),
							  palloc0(sizeof(ReadLocalXLogPageNoWaitPrivate)));
}
#else
#define SLUICE_HAS_OUTCOMES	false
static inline XLogReaderState *
sluice_wal_reader(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("outcomes of transactions can be asked for from PostgreSQL 15 on")));
}
#endif

/*
 * All settings that are not as they were built, as a list.
 *
 * From 16 on they form a ring with the head of guc.c's own list, which can't be
 * asked for: it is found once, as that part of the ring that is no setting.
 * get_guc_variables() sorts all by name, which takes longer than many a query.
 */
static inline List *
sluice_changed_settings(void)
{
	List	   *changed = NIL;
#if PG_VERSION_NUM >= 160000
	static dlist_head *head = NULL;
	dlist_iter	iter;

	if (head == NULL)
	{
		int			count;
		struct config_generic **all = get_guc_variables(&count);
		dlist_node *first = NULL;
		dlist_node *node;

		for (int i = 0; first == NULL && i < count; i++)
		{
			if (all[i]->source != PGC_S_DEFAULT)
				first = &all[i]->nondef_link;
		}
		for (node = first; node != NULL && head == NULL; node = node->next)
		{
			bool		is_setting = false;

			for (int i = 0; !is_setting && i < count; i++)
				is_setting = node == &all[i]->nondef_link;
			if (!is_setting)
				head = (dlist_head *) node;
		}
		pfree(all);
	}
	dlist_foreach(iter, head)
		changed = lappend(changed, dlist_container(struct config_generic, nondef_link, iter.cur));
#else
	struct config_generic **all = get_guc_variables();
	int			count = GetNumConfigOptions();

	for (int i = 0; i < count; i++)
	{
		if (all[i]->source != PGC_S_DEFAULT)
			changed = lappend(changed, all[i]);
	}
#endif
	return changed;
}

/* All custom settings that no library has defined, with a value or without, as a list. */
static inline List *
sluice_placeholders(void)
{
	List	   *placeholders = NIL;
	int			count;
#if PG_VERSION_NUM >= 160000
	struct config_generic **all = get_guc_variables(&count);
#else
	struct config_generic **all = get_guc_variables();

	count = GetNumConfigOptions();
#endif

	for (int i = 0; i < count; i++)
	{
		if (all[i]->flags & GUC_CUSTOM_PLACEHOLDER)
			placeholders = lappend(placeholders, all[i]);
	}
#if PG_VERSION_NUM >= 160000
	pfree(all);
#endif
	return placeholders;
}

/* The order of two settings' names, which is guc.c's own. */
static inline int
sluice_compare_settings(const char *a, const char *b)
{
	for (; *a != '\0' || *b != '\0'; a++, b++)
	{
		char		of_a = *a >= 'A' && *a <= 'Z' ? *a + ('a' - 'A') : *a;
		char		of_b = *b >= 'A' && *b <= 'Z' ? *b + ('a' - 'A') : *b;

		/* One that ends comes first, whatever the other goes on with. */
		if (of_a != of_b)
			return *a == '\0' ? -1 : *b == '\0' ? 1 : of_a - of_b;
	}
	return 0;
}

/* A setting by its name, or NULL. */
static inline struct config_generic *
sluice_find_setting(const char *name)
{
#if PG_VERSION_NUM >= 160000
	return find_option(name, false, true, 0);
#else
	struct config_generic **all = get_guc_variables();
	int			low = 0;
	int			high = GetNumConfigOptions();

	while (low < high)
	{
		int			middle = (low + high) / 2;
		int			order = sluice_compare_settings(name, all[middle]->name);

		if (order == 0)
			return all[middle];
		if (order > 0)
			low = middle + 1;
		else
			high = middle;
	}
	return NULL;
#endif
}

/* Whether any action of a MERGE has a target list of which that is so. */
static inline bool
sluice_any_merge_action(const ModifyTable *modify, bool (*is_so) (const List *target_list))
{
#if PG_VERSION_NUM >= 150000
	ListCell   *table;
	ListCell   *action;

	foreach(table, modify->mergeActionLists)
	{
		foreach(action, (List *) lfirst(table))
		{
			if (is_so(lfirst_node(MergeAction, action)->targetList))
				return true;
		}
	}
#endif
	return false;
}

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
 * Whether this process has any lock, held or waited for, of which that is so.
 *
 * Each list of our locks may be looked at under its partition's lock; whether
 * it is empty may be asked without, since only we add to it, but for a
 * fast-path lock that somebody is moving to the main table right now in order
 * to wait for it: the next look sees that one.
 */
static inline bool
sluice_any_lock(bool (*is_so) (const PROCLOCK *))
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
			found |= is_so(dlist_container(PROCLOCK, procLink, iter.cur));
#else
		SHM_QUEUE  *mine = &MyProc->myProcLocks[i];
		PROCLOCK   *held;

		if (SHMQueueEmpty(mine))
			continue;
		LWLockAcquire(LockHashPartitionLockByIndex(i), LW_SHARED);
		held = (PROCLOCK *) SHMQueueNext(mine, mine, offsetof(PROCLOCK, procLink));
		while (held)
		{
			found |= is_so(held);
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

/* Whether anybody waits for a lock that this process holds. */
static inline bool
sluice_holds_up_others(void)
{
	return sluice_any_lock(sluice_conflicts);
}

/*
 * Whether this session's connection is still being set up: it has not been idle
 * yet.  With track_activities off its state is then STATE_DISABLED, which comes
 * behind all others.
 */
static inline bool
sluice_is_starting(void)
{
	return MyBEEntry != NULL && MyBEEntry->st_state < STATE_IDLE;
}

/* The process at the other end of a Unix socket, or 0 where that can't be told. */
static inline int
sluice_client_pid(const Port *port)
{
#if defined(SO_PEERCRED) && defined(__linux__)
	struct ucred peer;
	socklen_t	length = sizeof(peer);

	/* The pool may have put its client's address into raddr. */
	if (port->laddr.addr.ss_family == AF_UNIX &&
		getsockopt(port->sock, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0)
		return peer.pid;
#endif
	return 0;
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
