/*
 * turns.c
 *		Several transactions in a row by one admission, while others wait.
 *
 * A process that is woken after a long wait finds that its memory has gone
 * cold, and its transaction takes a good deal more of the processor's time for
 * it.  So a session that has been admitted may do up to "sluice.gate_turns"
 * transactions: at the end of one, if somebody waits, it keeps its place and
 * lingers.  If it begins the next one, of the same class, before somebody has
 * taken the place away, it goes in without queueing.
 *
 * A session that lingers is in its gate's list, the oldest first.  All may linger
 * for LINGER_US, so that is also the order in which their time is up.  No timer
 * runs in an idle session: one of those that wait is the gate's watcher (gate.c),
 * sleeps no longer than until the first one's time is up, and gives its place
 * back for it.  A session that begins to linger wakes the watcher if that sleeps
 * for longer.  Places linger only while somebody waits: the last one to leave the
 * queue gives all of them back.
 *
 * A client that did not come back in time has left its place unused meanwhile.
 * Its session does not linger at its next end of a transaction, and if it is late
 * again after that, not at the next two, four, ..., VAIN_MAX.
 *
 * A place that lingers is taken, and counts in Gate.running, so the limit holds.
 * But nobody is inside with it: it is in no Seat.held.
 *
 * A session that passes gates of a role or database does not linger, since that
 * would keep places there as well; nor does a superuser with a reserved place.
 *
 * Locks: lists, and what a session has in them, change under the gate's lock.
 * Whether a place is taken up again or away is so decided once.
 */
#include "postgres.h"

#include "access/xact.h"
#include "compat.h"
#include "gate.h"
#include "storage/latch.h"

/*
 * The time for which a place lingers, us.  A client with hundreds of connections
 * needs some ms until it has come to this one, and more on a busy machine.
 */
#define LINGER_US		INT64CONST(20000)

/*
 * The time after its admission within which a session may begin another turn, us:
 * turns are for short transactions, and nobody is to wait for eight long ones.
 */
#define TURNS_US		INT64CONST(1000000)

/* At how many ends of transactions a session does not linger, having been late. */
#define VAIN_MAX		16

/* This session's transactions since it was admitted, and when that was. */
static int	turns = 0;
static TimestampTz admitted_at = 0;

/* The gate at which this session began to linger, or -1; and when that was. */
static int	lingers_at = -1;
static TimestampTz lingers_since = 0;

/* At how many ends it is not to linger since it was late, and how many are left. */
static int	vain = 0;
static int	vain_left = 0;

/* This session has been let in, after a wait or not. */
void
turns_begin(bool has_waited)
{
	turns = 1;
	/* Close enough, and known already. */
	admitted_at = has_waited ? GetCurrentTimestamp() : GetCurrentStatementStartTimestamp();
}

/* Whether a time is over, or the clock has been set back. */
static bool
is_over(TimestampTz since, int64 us, TimestampTz now)
{
	return now - since >= us || now < since;
}

static void
join_list(Gate *gate, TimestampTz now)
{
	int			me = SLUICE_MY_PROC_NUMBER;
	Seat	   *seat = seat_of(me);

	seat->lingers_since = now;
	seat->next = -1;
	seat->previous = gate->last_lingering;
	if (gate->last_lingering >= 0)
		seat_of(gate->last_lingering)->next = me;
	else
		gate->first_lingering = me;
	gate->last_lingering = me;
}

static void
leave_list(Gate *gate, Seat *seat)
{
	if (seat->previous >= 0)
		seat_of(seat->previous)->next = seat->next;
	else
		gate->first_lingering = seat->next;
	if (seat->next >= 0)
		seat_of(seat->next)->previous = seat->previous;
	else
		gate->last_lingering = seat->previous;
	seat->next = seat->previous = -1;
	seat->lingers_since = 0;
}

static void
give_back(Gate *gate, Seat *seat)
{
	leave_list(gate, seat);
	pg_atomic_fetch_sub_u32(&gate->running, 1);
}

/*
 * Gives back the places whose time is up. To be called under the gate's lock.
 */
void
turns_give_back_late(Gate *gate, TimestampTz now)
{
	if (gate->first_lingering < 0)
		return;
	while (gate->first_lingering >= 0 &&
		   is_over(seat_of(gate->first_lingering)->lingers_since, LINGER_US, now))
		give_back(gate, seat_of(gate->first_lingering));
	gate_wake_next(gate);
}

/* Nobody waits any more. To be called under the gate's lock. */
void
turns_give_back_all(Gate *gate)
{
	while (gate->first_lingering >= 0)
		give_back(gate, seat_of(gate->first_lingering));
}

/*
 * In how many ms the next place is to be given back; -1: none lingers. To be
 * called under the gate's lock.
 */
long
turns_ms_left(const Gate *gate, TimestampTz now)
{
	TimestampTz since;

	if (gate->first_lingering < 0)
		return -1;
	since = seat_of(gate->first_lingering)->lingers_since;
	return TimestampDifferenceMilliseconds(now, since + LINGER_US);
}

/*
 * Wakes the watcher, if it sleeps for longer than a place may linger. To be
 * called under the gate's lock.
 */
void
turns_wake_watcher(Gate *gate)
{
	if (gate->watcher < 0 || gate->is_watched)
		return;
	gate->is_watched = true;
	SetLatch(&GetPGProcByNumber(gate->watcher)->procLatch);
}

/* Whether it would be in vain, by what its client did before. */
static bool
is_vain(void)
{
	if (vain_left == 0)
		return false;
	vain_left--;
	return true;
}

/* The client has come back: notes whether in time. */
static void
note_return(void)
{
	if (GetCurrentStatementStartTimestamp() - lingers_since < LINGER_US)
		vain = 0;
	else
		vain = Min(Max(2 * vain, 1), VAIN_MAX);
	vain_left = vain;
}

/*
 * A transaction has ended that had a place of this gate. Keeps it for the next
 * one, if this session has a turn left; whether it does.
 */
bool
turns_keep_place(int number)
{
	Gate	   *gate = &sluice_shared->gates[number];
	TimestampTz now;
	bool		keeps;

	if (turns >= sluice_gate_turns || pg_atomic_read_u32(&gate->waiting) == 0 || is_vain())
		return false;
	LWLockAcquire(lock_of(number), LW_EXCLUSIVE);
	now = GetCurrentTimestamp();
	turns_give_back_late(gate, now);
	/* Not if there are too many inside: the limit may have been lowered. */
	keeps = pg_atomic_read_u32(&gate->waiting) > 0 &&
		pg_atomic_read_u32(&gate->running) <= pg_atomic_read_u32(&gate->limit) &&
		!is_over(admitted_at, TURNS_US, now);
	if (keeps)
	{
		join_list(gate, now);
		lingers_at = number;
		lingers_since = now;
		turns_wake_watcher(gate);
	}
	LWLockRelease(lock_of(number));
	return keeps;
}

/*
 * Takes up the place that lingers again, if it is one of this gate and has not
 * been taken away; whether it does. Otherwise, as for a gate of -1, gives back
 * what there is of it.
 */
bool
turns_take_up(int wanted)
{
	int			number = lingers_at;
	Seat	   *seat = seat_of(SLUICE_MY_PROC_NUMBER);
	Gate	   *gate;
	bool		is_taken_up = false;

	if (number < 0)
		return false;
	lingers_at = -1;
	note_return();
	gate = &sluice_shared->gates[number];
	LWLockAcquire(lock_of(number), LW_EXCLUSIVE);
	if (seat->lingers_since != 0)
	{
		is_taken_up = number == wanted &&
			pg_atomic_read_u32(&gate->running) <= pg_atomic_read_u32(&gate->limit);
		if (is_taken_up)
		{
			leave_list(gate, seat);
			gate->further_turns++;
			turns++;
		}
		else
		{
			give_back(gate, seat);
			gate_wake_next(gate);
		}
	}
	LWLockRelease(lock_of(number));
	return is_taken_up;
}
