/*
 * deadlock.c
 *		Whether a session that waits at a gate has to go in above its limit.
 *
 * Waiting can't be part of a deadlock for long.  Each DeadlockTimeout, as often
 * as PostgreSQL looks for deadlocks between locks, a session that waits looks
 * at two things, and goes in above the limit if it finds
 *
 * - that somebody waits for a lock that it holds, be it of a single statement,
 *	 which has locked its tables when it was planned, or an advisory one;
 * - being the first, that no place was given back since it looked before, nor
 *	 did any of those inside begin a statement, and that each of them waits: for
 *	 its client, a lock, another process, or an extension such as dblink, any of
 *	 which may wait for one outside.
 *
 * A wait that PostgreSQL does not know of looks like work: a program or a
 * procedural language that connects to this server by itself.  There the gate's
 * time-out is the end.
 */
#include "postgres.h"

#include "compat.h"
#include "gate.h"
#include "utils/wait_event.h"

/* Whether a session waits for something that may take for ever. */
static bool
is_idle(int number)
{
	/* Its wait at a gate will end by itself. */
	if (seat_of(number)->waits_for >= 0)
		return false;
	/* A single word, written without a lock by its owner. */
	switch (((volatile PGPROC *) GetPGProcByNumber(number))->wait_event_info & 0xFF000000)
	{
		case PG_WAIT_CLIENT:
		case PG_WAIT_LOCK:
		case SLUICE_WAIT_BUFFER_PIN:
		case PG_WAIT_IPC:
		case PG_WAIT_EXTENSION:
			return true;
		default:
			return false;
	}
}

/*
 * Whether none of those inside a gate does anything that could lead to its
 * giving its place back without somebody else's doing something first.
 * progress: how many statements they have begun.
 */
static bool
is_stalled(int number, uint64 *progress)
{
	Gate	   *gate = &sluice_shared->gates[number];
	uint32		idle = 0;

	*progress = 0;
	for (int i = 0; i < sluice_shared->seats; i++)
	{
		Seat	   *seat = seat_of(i);

		for (int place = 0; place < HELD_MAX; place++)
		{
			if (seat->held[place] != number)
				continue;
			if (!is_idle(i))
				return false;
			*progress += ((volatile Seat *) seat)->progress;
			idle++;
		}
	}
	/* A place that lingers (turns.c) is held by nobody: it will come back by itself. */
	return idle >= pg_atomic_read_u32(&gate->running) + pg_atomic_read_u32(&gate->reserved);
}

/*
 * Whether this session has to go in above the limit, lest those inside wait
 * for it for ever.
 */
bool
gate_breaks_deadlock(Wait *wait)
{
	bool		was_stalled = wait->was_stalled;
	uint64		progress = wait->progress;

	if (sluice_holds_up_others())
		return true;
	wait->was_stalled = sluice_shared->gates[wait->number].first == SLUICE_MY_PROC_NUMBER &&
		is_stalled(wait->number, &wait->progress);
	/* Had a place been given back since then, it would be ours. */
	return was_stalled && wait->was_stalled && progress == wait->progress;
}

/* Whether it is time for another look at what seldom changes. */
bool
gate_look_is_due(Wait *wait)
{
	TimestampTz now = GetCurrentTimestamp();

	if (wait->looked != 0 &&
		!TimestampDifferenceExceeds(wait->looked, now, DeadlockTimeout) &&
		now >= wait->looked)
		return false;
	wait->looked = now;
	return true;
}
