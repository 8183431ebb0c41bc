/*
 * deadlock.c
 *		Whether a waiting session has to be admitted above the limit.
 *
 * A wait for admission cannot be part of a deadlock for long.  At intervals of
 * deadlock_timeout, as often as PostgreSQL checks for deadlocks of heavyweight
 * locks, and not before the first interval is over, a waiting session checks two
 * conditions, and is admitted above the limit if
 *
 * - somebody waits for a lock that it holds: that of a single statement, which
 *	 has locked its tables when it was planned, or an advisory lock;
 * - it is the head of the queue, and since its last check no slot has been
 *	 released, none of the slot holders has started a statement, and all of them
 *	 wait: for their client, a lock, another process, or an extension such as
 *	 dblink, any of which may in turn wait for a session in the queue.
 *
 * Waits that PostgreSQL does not know of look like work: a program, or a
 * procedural language that connects to this server by itself.  There
 * "sluice.gate_timeout" ends the wait.
 *
 * Conversely, not every wait is for a session in the queue.  The leader of a
 * parallel query waits for its workers, which run: it counts as waiting only
 * together with its whole lock group.  A session that uses postgres_fdw or dblink
 * waits for a session which may be on this same server: if that connected by the
 * Unix socket, which tells whose client it is, then that session's own status
 * counts.  If there is none, it is probably on another server, and runs.  Since
 * it might wait for this server nevertheless, by way of that other server or by
 * TCP, it counts as waiting after CHECKS_EXTERNAL consecutive checks.
 */
#include "postgres.h"

#include "compat.h"
#include "gate.h"
#include "utils/wait_event.h"

/* Consecutive checks after which a gate is known to be stalled. */
#define CHECKS			2
#define CHECKS_EXTERNAL 20

/* Maximum length of a chain of connections from session to session. */
#define HOPS_MAX	8

/* In order of precedence: a group has the lowest status of its members. */
typedef enum WaitStatus
{
	STATUS_RUNNING,
	STATUS_WAITING_EXTERNAL,	/* probably for another server */
	STATUS_WAITING
} WaitStatus;

/* Status of a single process, by its wait event. */
static WaitStatus
process_status(const volatile PGPROC *proc)
{
	/* It has been woken, but has not been scheduled yet. */
	if (proc->procLatch.is_set)
		return STATUS_RUNNING;
	/* A single word, written by its process without a lock. */
	switch (proc->wait_event_info & 0xFF000000)
	{
		case PG_WAIT_CLIENT:
		case PG_WAIT_LOCK:
		case SLUICE_WAIT_BUFFER_PIN:
		case PG_WAIT_IPC:
			return STATUS_WAITING;
		case PG_WAIT_EXTENSION:
			return STATUS_WAITING_EXTERNAL;
		default:
			return STATUS_RUNNING;
	}
}

/*
 * Status of a session with its parallel workers.  The members of its lock group
 * are found without a lock: the next check sees one that joins or leaves now.
 */
static WaitStatus
lock_group_status(int number)
{
	PGPROC	   *leader = GetPGProcByNumber(number);
	WaitStatus	status = process_status(leader);

	if (status == STATUS_RUNNING || ((volatile PGPROC *) leader)->lockGroupLeader != leader)
		return status;
	for (uint32 i = 0; i < ProcGlobal->allProcCount; i++)
	{
		volatile PGPROC *member = &ProcGlobal->allProcs[i];

		if (member->lockGroupLeader == leader)
			status = Min(status, process_status(member));
	}
	return status;
}

/* Status of a slot holder, with the sessions of this server that work for it. */
static WaitStatus
backend_status(int number, int gate, int hops)
{
	int			pid = GetPGProcByNumber(number)->pid;
	WaitStatus	status = lock_group_status(number);
	bool		is_served_here = false;
	WaitStatus	of_others = STATUS_WAITING;

	if (status != STATUS_WAITING_EXTERNAL)
		return status;
	for (int i = 0; i < sluice_shared->backend_count; i++)
	{
		GateBackend *backend = gate_backend(i);

		if (pid == 0 || ((volatile GateBackend *) backend)->client_pid != pid)
			continue;
		is_served_here = true;
		/* Another gate sees to it that waits there end. */
		if (backend->waits_for >= 0 && backend->waits_for != gate)
			return STATUS_RUNNING;
		if (backend->waits_for < 0)
			of_others = Min(of_others, hops < HOPS_MAX ? backend_status(i, gate, hops + 1) : STATUS_WAITING);
	}
	return is_served_here ? of_others : STATUS_WAITING_EXTERNAL;
}

/*
 * Status of a gate: whether any slot holder might release its slot without
 * another session's help.  *commands is the number of statements and commands
 * that they have started.
 */
static WaitStatus
gate_status(int number, uint64 *commands)
{
	Gate	   *gate = &sluice_shared->gates[number];
	WaitStatus	status = STATUS_WAITING;
	uint32		count = 0;

	*commands = 0;
	for (int i = 0; i < sluice_shared->backend_count; i++)
	{
		GateBackend *backend = gate_backend(i);

		for (int slot = 0; slot < GATES_PER_BACKEND; slot++)
		{
			if (backend->held[slot] != number)
				continue;
			/* The gate that it waits at sees to it that this wait ends. */
			if (backend->waits_for >= 0)
				return STATUS_RUNNING;
			status = Min(status, backend_status(i, number, 0));
			if (status == STATUS_RUNNING)
				return STATUS_RUNNING;
			*commands += ((volatile GateBackend *) backend)->commands;
			count++;
		}
	}
	/* A retained slot (retain.c) has no holder, and will be released by itself. */
	if (count < pg_atomic_read_u32(&gate->running) + pg_atomic_read_u32(&gate->reserved))
		return STATUS_RUNNING;
	return status;
}

/*
 * Whether this session has to be admitted above the limit, since slot holders
 * might otherwise wait for it forever.
 */
bool
gate_deadlock_detected(Wait *wait)
{
	uint64		before = wait->commands;
	WaitStatus	status = STATUS_RUNNING;

	if (sluice_holds_up_others())
		return true;
	if (sluice_shared->gates[wait->number].head == SLUICE_MY_PROC_NUMBER)
		status = gate_status(wait->number, &wait->commands);
	if (status == STATUS_RUNNING)
		wait->stalled = 0;
	else if (wait->stalled == 0 || wait->commands != before)
		wait->stalled = 1;
	else
		wait->stalled++;
	/* Had a slot been released since then, the head would have acquired it. */
	return wait->stalled >= (status == STATUS_WAITING ? CHECKS : CHECKS_EXTERNAL);
}

/* Whether the next check is due. */
bool
gate_check_is_due(Wait *wait)
{
	TimestampTz now = GetCurrentTimestamp();

	if (!TimestampDifferenceExceeds(wait->last_check, now, DeadlockTimeout) && now >= wait->last_check)
		return false;
	wait->last_check = now;
	return true;
}
