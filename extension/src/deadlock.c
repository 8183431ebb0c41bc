/*
 * deadlock.c
 *		Whether a session that waits at a gate has to go in above its limit.
 *
 * Waiting can't be part of a deadlock for long.  Each DeadlockTimeout, as often
 * as PostgreSQL looks for deadlocks between locks, and not before the first of
 * them is over, a session that waits looks at two things, and goes in above the
 * limit if it finds
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
 *
 * The other way round, not every wait is for one outside.  The leader of a
 * parallel query waits for its workers, which work: it counts as waiting only
 * with all of its lock group.  A session that has postgres_fdw or dblink do
 * something waits for another one, which may be of this server: that one decides,
 * if it has connected by the Unix socket, which tells whose client it is.  If
 * there is none, the other one is probably elsewhere, and works.  It might all the
 * same wait for this server, through a second hop or by TCP, so after LOOKS_AWAY
 * looks in a row it counts as waiting, too.
 */
#include "postgres.h"

#include "compat.h"
#include "gate.h"
#include "utils/wait_event.h"

/* Looks in a row by which a gate is known to be stalled. */
#define LOOKS		2
#define LOOKS_AWAY	20

/* Connections from session to session that are followed. */
#define HOPS_MAX	8

typedef enum Idleness
{
	WORKS,
	WAITS_AWAY,					/* for what is probably not on this server */
	WAITS
} Idleness;

/* How a single process waits, as far as it tells. */
static Idleness
idleness_of_process(const volatile PGPROC *proc)
{
	/* It has been woken, and has not had a processor yet. */
	if (proc->procLatch.is_set)
		return WORKS;
	/* A single word, written without a lock by its owner. */
	switch (proc->wait_event_info & 0xFF000000)
	{
		case PG_WAIT_CLIENT:
		case PG_WAIT_LOCK:
		case SLUICE_WAIT_BUFFER_PIN:
		case PG_WAIT_IPC:
			return WAITS;
		case PG_WAIT_EXTENSION:
			return WAITS_AWAY;
		default:
			return WORKS;
	}
}

/*
 * How a session waits, with its parallel workers.  Members of its lock group are
 * found without a lock: one that comes or goes just now is seen by the next look.
 */
static Idleness
idleness_of_group(int number)
{
	PGPROC	   *leader = GetPGProcByNumber(number);
	Idleness	idleness = idleness_of_process(leader);

	if (idleness == WORKS || ((volatile PGPROC *) leader)->lockGroupLeader != leader)
		return idleness;
	for (uint32 i = 0; i < ProcGlobal->allProcCount; i++)
	{
		volatile PGPROC *member = &ProcGlobal->allProcs[i];

		if (member->lockGroupLeader == leader)
			idleness = Min(idleness, idleness_of_process(member));
	}
	return idleness;
}

/*
 * Whether a session that is inside a gate waits for something that may take for
 * ever, unless this gate lets somebody in.
 */
static Idleness
idleness_of(int number, int gate, int hops)
{
	int			pid = GetPGProcByNumber(number)->pid;
	Idleness	idleness = idleness_of_group(number);
	bool		is_answered_here = false;
	Idleness	of_others = WAITS;

	if (idleness != WAITS_AWAY)
		return idleness;
	for (int i = 0; i < sluice_shared->seats; i++)
	{
		Seat	   *seat = seat_of(i);

		if (pid == 0 || ((volatile Seat *) seat)->client_pid != pid)
			continue;
		is_answered_here = true;
		/* A wait at another gate will end by itself. */
		if (seat->waits_for >= 0 && seat->waits_for != gate)
			return WORKS;
		if (seat->waits_for < 0)
			of_others = Min(of_others, hops < HOPS_MAX ? idleness_of(i, gate, hops + 1) : WAITS);
	}
	return is_answered_here ? of_others : WAITS_AWAY;
}

/*
 * Whether none of those inside a gate does anything that could lead to its
 * giving its place back without somebody else's doing something first.
 * progress: how many statements they have begun.
 */
static Idleness
idleness_inside(int number, uint64 *progress)
{
	Gate	   *gate = &sluice_shared->gates[number];
	Idleness	idleness = WAITS;
	uint32		count = 0;

	*progress = 0;
	for (int i = 0; i < sluice_shared->seats; i++)
	{
		Seat	   *seat = seat_of(i);

		for (int place = 0; place < HELD_MAX; place++)
		{
			if (seat->held[place] != number)
				continue;
			/* Its wait at a gate will end by itself. */
			if (seat->waits_for >= 0)
				return WORKS;
			idleness = Min(idleness, idleness_of(i, number, 0));
			if (idleness == WORKS)
				return WORKS;
			*progress += ((volatile Seat *) seat)->progress;
			count++;
		}
	}
	/* A place that lingers (turns.c) is held by nobody: it will come back by itself. */
	if (count < pg_atomic_read_u32(&gate->running) + pg_atomic_read_u32(&gate->reserved))
		return WORKS;
	return idleness;
}

/*
 * Whether this session has to go in above the limit, lest those inside wait
 * for it for ever.
 */
bool
gate_breaks_deadlock(Wait *wait)
{
	uint64		before = wait->progress;
	Idleness	idleness = WORKS;

	if (sluice_holds_up_others())
		return true;
	if (sluice_shared->gates[wait->number].first == SLUICE_MY_PROC_NUMBER)
		idleness = idleness_inside(wait->number, &wait->progress);
	if (idleness == WORKS)
		wait->stalled = 0;
	else if (wait->stalled == 0 || wait->progress != before)
		wait->stalled = 1;
	else
		wait->stalled++;
	/* Had a place been given back since then, it would be ours. */
	return wait->stalled >= (idleness == WAITS ? LOOKS : LOOKS_AWAY);
}

/* Whether it is time for another look at what seldom changes. */
bool
gate_look_is_due(Wait *wait)
{
	TimestampTz now = GetCurrentTimestamp();

	if (!TimestampDifferenceExceeds(wait->looked, now, DeadlockTimeout) && now >= wait->looked)
		return false;
	wait->looked = now;
	return true;
}
