/*
 * gate.c
 *		Gates in shared memory: taking a place, waiting for one, giving it back.
 *
 * A gate has a number of places.  Who finds one free takes it by one atomic
 * operation on Gate.running, and gives it back by another.  Who finds none
 * stands in the gate's queue, which is kept under the gate's lock, and sleeps
 * on its latch.  Whoever gives a place back wakes the queue's first one, and
 * nobody else: a place that falls free costs one wake-up, however many wait.
 *
 * The place is not handed over, it is free meanwhile.  A session that comes
 * just then may take it before the one that was woken, which saves two
 * switches between processes where statements are short; but only while the
 * first in the queue has waited less than OVERTAKING_US.  From then on newcomers
 * queue up behind it, so nobody is overtaken for longer than that after having
 * become the first, and among those who queue, first come is first served.
 *
 * No wake-up is lost: who joins the queue counts itself in Gate.waiting, and
 * looks for a free place after that; who frees a place looks at Gate.waiting
 * after that.  Both are full barriers, so one of them sees the other.
 *
 * A session may keep its place from one transaction to the next while others
 * wait: see turns.c.  One of the queue is its watcher, who sees to it that such
 * places come back: who came to an empty queue, and once it has gone in, the
 * last one of then, who stays for longest.  So the watch costs one wake-up for
 * a queue of sessions, not one for each.
 *
 * Waiting can't be part of a deadlock for long: see deadlock.c.
 *
 * A session passes up to three gates: of its role, of its database, of its
 * class, always in this order, so that gates can't be waited for in a circle.
 * Whatever error comes up on the way, from the first place that could not be had
 * at once to the last one taken, it gives all of them back.  No catalog is looked
 * into there: that may wait for a lock, or fail.
 *
 * Locks: a gate's lock is held for a few instructions, never together with
 * another gate's, and taken behind SluiceShared.lock where both are needed.
 */
#include "postgres.h"

#include "compat.h"
#include "gate.h"
#include "libpq/libpq.h"
#include "libpq/libpq-be.h"
#include "port/pg_bitutils.h"
#include "storage/latch.h"
#include "utils/guc.h"
#include "utils/wait_event.h"

/* Time for which newcomers may overtake the first in the queue, us. */
#define OVERTAKING_US	1000

/* This session's place, once it has passed a gate. */
static Seat *my_seat = NULL;

/* The gates of this session's role and database, or -1, as of a generation. */
static int	my_role_gate = -1;
static int	my_database_gate = -1;
static uint32 my_generation = 0;

/* Since when this session waits, at one gate after the other. */
static TimestampTz entered_at = 0;

/* Whether a gate has a free place, and it has been taken. */
static bool
take_below(pg_atomic_uint32 *taken, uint32 limit)
{
	uint32		now = pg_atomic_read_u32(taken);

	while (now < limit)
	{
		if (pg_atomic_compare_exchange_u32(taken, &now, now + 1))
			return true;
	}
	return false;
}

static bool
take_place(Gate *gate)
{
	return take_below(&gate->running, pg_atomic_read_u32(&gate->limit));
}

static bool
has_place(Gate *gate)
{
	return pg_atomic_read_u32(&gate->running) < pg_atomic_read_u32(&gate->limit);
}

/* Whether a newcomer need not queue up behind those who wait. */
static bool
may_overtake(Gate *gate)
{
	TimestampTz since;

	if (pg_atomic_read_u32(&gate->waiting) == 0)
		return true;
	if (!has_place(gate))
		return false;
	since = (TimestampTz) pg_atomic_read_u64(&gate->first_since);
	if (since == 0)
		return true;
	/* The clock may have been set back. */
	since = GetCurrentTimestamp() - since;
	return since >= 0 && since < OVERTAKING_US;
}

/*
 * Wakes a gate's first waiter, if there is a place for it. To be called under
 * the gate's lock.
 */
void
gate_wake_next(Gate *gate)
{
	Seat	   *seat;

	if (gate->first < 0)
		return;
	seat = seat_of(gate->first);
	if (!seat->is_woken && (!gate_has_limit(gate) || has_place(gate)))
	{
		seat->is_woken = true;
		SetLatch(&GetPGProcByNumber(gate->first)->procLatch);
	}
}

/* Wakes the first of the superusers who wait: a reserved place has been given back. */
static void
wake_superuser(int number)
{
	Gate	   *gate = &sluice_shared->gates[number];

	if (pg_atomic_read_u32(&gate->waiting) == 0)
		return;
	LWLockAcquire(lock_of(number), LW_EXCLUSIVE);
	for (int at = gate->first; at >= 0; at = seat_of(at)->next)
	{
		if (seat_of(at)->is_superuser)
		{
			SetLatch(&GetPGProcByNumber(at)->procLatch);
			break;
		}
	}
	LWLockRelease(lock_of(number));
}

/* Wakes a gate's first waiter, if there is a place for it. */
void
gate_wake_first(int number)
{
	Gate	   *gate = &sluice_shared->gates[number];

	if (pg_atomic_read_u32(&gate->waiting) == 0)
		return;
	LWLockAcquire(lock_of(number), LW_EXCLUSIVE);
	gate_wake_next(gate);
	LWLockRelease(lock_of(number));
}

/* Wakes all who wait, wherever: what they wait for may have changed for any of them. */
void
gate_wake_all(void)
{
	for (int number = 0; number < GATES; number++)
	{
		Gate	   *gate = &sluice_shared->gates[number];

		if (pg_atomic_read_u32(&gate->waiting) == 0)
			continue;
		LWLockAcquire(lock_of(number), LW_SHARED);
		for (int at = gate->first; at >= 0; at = seat_of(at)->next)
			SetLatch(&GetPGProcByNumber(at)->procLatch);
		LWLockRelease(lock_of(number));
	}
}

static void
note_first(Gate *gate)
{
	pg_atomic_write_u64(&gate->first_since,
						gate->first < 0 ? 0 : (uint64) seat_of(gate->first)->since);
}

/* Joins a gate's queue. To be called under the gate's lock. */
static void
join_queue(Gate *gate, int number, bool is_superuser)
{
	int			me = SLUICE_MY_PROC_NUMBER;

	my_seat->since = GetCurrentTimestamp();
	my_seat->is_superuser = is_superuser;
	my_seat->is_woken = false;
	my_seat->next = -1;
	my_seat->previous = gate->last;
	if (gate->last >= 0)
		seat_of(gate->last)->next = me;
	else
		gate->first = gate->watcher = me;
	gate->last = me;
	my_seat->waits_for = number;
	note_first(gate);
	pg_atomic_fetch_add_u32(&gate->waiting, 1);
}

/* The watch passes to who will wait for longest. To be called under the gate's lock. */
static void
pass_watch(Gate *gate)
{
	gate->watcher = gate->last;
	gate->is_watched = false;
	if (gate->last < 0)
		turns_give_back_all(gate);
	else if (gate->first_lingering >= 0)
		turns_wake_watcher(gate);
}

/*
 * Leaves a gate's queue, and lets the next one know if there is a place for it
 * too. To be called under the gate's lock.
 */
static void
leave_queue(Gate *gate)
{
	if (my_seat->previous >= 0)
		seat_of(my_seat->previous)->next = my_seat->next;
	else
		gate->first = my_seat->next;
	if (my_seat->next >= 0)
		seat_of(my_seat->next)->previous = my_seat->previous;
	else
		gate->last = my_seat->previous;
	my_seat->waits_for = my_seat->next = my_seat->previous = -1;
	pg_atomic_fetch_sub_u32(&gate->waiting, 1);
	note_first(gate);
	if (gate->watcher == SLUICE_MY_PROC_NUMBER)
		pass_watch(gate);
	gate_wake_next(gate);
}

/* Leaves the queue that this session stands in, if it does, by an error. */
static void
give_up(void)
{
	int			number = my_seat->waits_for;
	Gate	   *gate;

	if (number < 0)
		return;
	gate = &sluice_shared->gates[number];
	LWLockAcquire(lock_of(number), LW_EXCLUSIVE);
	gate->given_up++;
	leave_queue(gate);
	LWLockRelease(lock_of(number));
}

/* Notes a wait that has ended well. To be called under the gate's lock. */
static void
note_wait(Gate *gate, TimestampTz since)
{
	int64		us = Max(GetCurrentTimestamp() - since, 1);
	int			bucket = Min(pg_leftmost_one_pos64((uint64) us), WAIT_BUCKETS - 1);

	gate->waited++;
	gate->waited_us += us;
	gate->wait_us[bucket]++;
}

static uint32
wait_event(int number)
{
	static uint32 events[GATE_CLASSES + 1];
	static const char *const names[GATE_CLASSES + 1] = {
		"SluiceGateTransaction", "SluiceGateAutocommit", "SluiceGateQuery",
		"SluiceGateBigquery", "SluiceGateShare"
	};
	int			which = Min(number, GATE_CLASSES);

	if (events[which] == 0)
		events[which] = SLUICE_NEW_WAIT_EVENT(names[which]);
	return events[which];
}

static void
report_timeout(int number)
{
	Gate	   *gate = &sluice_shared->gates[number];

	ereport(ERROR,
			(errcode(MAKE_SQLSTATE('5', '3', 'S', '0', '1')),
			 errmsg("canceling statement due to gate timeout"),
			 errdetail("The %s gate \"%s\" lets %u in at once, and %u wait.",
					   gate_kind_name(gate->kind),
					   gate->name,
					   pg_atomic_read_u32(&gate->limit),
					   pg_atomic_read_u32(&gate->waiting)),
			 errhint("Try again later, raise \"sluice.gate_timeout\", or raise the gate's limit if the server has room to spare.")));
}

/*
 * A client that has gone would only keep others waiting.  PostgreSQL ends the
 * session, and sends nothing more to it, when interrupts are looked at next.
 */
static void
check_client(void)
{
	if (!pq_check_connection())
	{
		ClientConnectionLost = true;
		InterruptPending = true;
	}
}

/*
 * The longest time to sleep, in ms.  "sluice.gate_timeout" is for all gates that
 * a session passes together.
 */
static long
sleep_ms(Wait *wait)
{
	long		ms = DeadlockTimeout;

	if (sluice_gate_timeout > 0)
	{
		long		waited = TimestampDifferenceMilliseconds(entered_at, GetCurrentTimestamp());

		if (waited >= sluice_gate_timeout)
			report_timeout(wait->number);
		ms = Min(ms, sluice_gate_timeout - waited);
	}
	if (wait->watch_ms >= 0)
		ms = Min(ms, wait->watch_ms);
	return ms;
}

/* The kind of place with which a session may go through a gate. */
typedef enum Taken
{
	TAKEN_NOTHING,				/* the gate has no limit any more */
	TAKEN_PLACE,
	TAKEN_RESERVED				/* a superuser's place */
} Taken;

/* Sees to places that linger, if that is up to us. To be called under the gate's lock. */
static void
keep_watch(Gate *gate, Wait *wait)
{
	TimestampTz now;

	if (gate->watcher != SLUICE_MY_PROC_NUMBER)
		return;
	now = GetCurrentTimestamp();
	turns_give_back_late(gate, now);
	wait->watch_ms = turns_ms_left(gate, now);
	gate->is_watched = wait->watch_ms >= 0;
}

/*
 * Whether this session has become exempt while it waited.  It reads the settings
 * itself only between two commands.
 */
static bool
has_become_exempt(Wait *wait)
{
	uint32		generation = pg_atomic_read_u32(&sluice_shared->generation);
	bool		is_exempt = false;

	if (wait->generation == generation)
		return false;
	wait->generation = generation;
	LWLockAcquire(sluice_shared->lock, LW_SHARED);
	for (int i = 0; i < sluice_shared->exempt_count; i++)
	{
		const ExemptName *exempt = &sluice_shared->exempt[i];

		is_exempt |= strcmp(exempt->name, exempt->kind == KIND_ROLE ?
							MyProcPort->user_name : MyProcPort->database_name) == 0;
	}
	LWLockRelease(sluice_shared->lock);
	return is_exempt;
}

/* Looks whether the wait is over; *taken says how. */
static bool
may_go_in(Wait *wait, uint32 reserve, Taken *taken)
{
	Gate	   *gate = &sluice_shared->gates[wait->number];
	bool		is_over = false;
	bool		is_open;
	bool		is_done = true;

	*taken = TAKEN_PLACE;
	if (take_below(&gate->reserved, reserve))
	{
		*taken = TAKEN_RESERVED;
		is_over = true;
	}
	else if (gate_look_is_due(wait))
		is_over = gate_breaks_deadlock(wait);
	is_open = !gate_has_limit(gate) || has_become_exempt(wait);
	if (!is_over && !is_open && gate->first != SLUICE_MY_PROC_NUMBER &&
		gate->watcher != SLUICE_MY_PROC_NUMBER)
		return false;

	LWLockAcquire(lock_of(wait->number), LW_EXCLUSIVE);
	my_seat->is_woken = false;
	keep_watch(gate, wait);
	if (is_over)
	{
		if (*taken == TAKEN_PLACE)
		{
			pg_atomic_fetch_add_u32(&gate->running, 1);
			gate->over_limit++;
		}
	}
	else if (is_open)
		*taken = TAKEN_NOTHING;
	else
		is_done = gate->first == SLUICE_MY_PROC_NUMBER && take_place(gate);
	if (is_done)
	{
		note_wait(gate, my_seat->since);
		leave_queue(gate);
	}
	LWLockRelease(lock_of(wait->number));
	return is_done;
}

/* Waits in a gate's queue until this session may go in. */
static Taken
wait_in_queue(int number, uint32 reserve)
{
	Wait		wait = {.number = number, .generation = my_generation, .watch_ms = -1};
	Taken		taken;

	LWLockAcquire(lock_of(number), LW_EXCLUSIVE);
	join_queue(&sluice_shared->gates[number], number, reserve > 0);
	LWLockRelease(lock_of(number));
	/* Nobody goes in above the limit who has not waited. */
	wait.looked = my_seat->since;

	while (!may_go_in(&wait, reserve, &taken))
	{
		int			events;

		events = WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						   sleep_ms(&wait), wait_event(number));
		ResetLatch(MyLatch);
		/* This may reset the latch as well: what it was set for is looked at below. */
		if (events & WL_TIMEOUT)
			check_client();
		CHECK_FOR_INTERRUPTS();
	}
	return taken;
}

static void
give_back(int place)
{
	int			number = my_seat->held[place];
	Gate	   *gate;

	if (number < 0)
		return;
	gate = &sluice_shared->gates[number];
	my_seat->held[place] = -1;
	if (my_seat->is_reserved[place])
	{
		pg_atomic_fetch_sub_u32(&gate->reserved, 1);
		wake_superuser(number);
	}
	else
	{
		pg_atomic_fetch_sub_u32(&gate->running, 1);
		gate_wake_first(number);
	}
}

/* Gives back what this session holds. */
static void
give_back_held(void)
{
	give_up();
	for (int place = HELD_MAX - 1; place >= 0; place--)
		give_back(place);
}

/* Places above a limit that this session may take. */
static uint32
reserve_of_session(void)
{
	const char *is_superuser = GetConfigOption("is_superuser", false, false);

	return strcmp(is_superuser, "on") == 0 ? sluice_superuser_reserved : 0;
}

/* This session has passed a gate. */
static void
note_passed(int number, int place, Taken taken, bool has_waited)
{
	my_seat->is_reserved[place] = taken == TAKEN_RESERVED;
	my_seat->held[place] = number;
	my_seat->admitted[number]++;
	if (place == HELD_CLASS)
		turns_begin(has_waited);
}

/* Passes a gate if there is no need to wait; whether it has. */
static bool
pass_at_once(int number, int place)
{
	Gate	   *gate = &sluice_shared->gates[number];

	if (!gate_has_limit(gate))
		return true;
	if (!may_overtake(gate) || !take_place(gate))
		return false;
	note_passed(number, place, TAKEN_PLACE, false);
	return true;
}

/* Passes a gate that has let nobody in just now. */
static void
pass_after_wait(int number, int place)
{
	uint32		reserve = reserve_of_session();
	Taken		taken = TAKEN_RESERVED;

	if (!take_below(&sluice_shared->gates[number].reserved, reserve))
		taken = wait_in_queue(number, reserve);
	if (taken != TAKEN_NOTHING)
		note_passed(number, place, taken, true);
}

/*
 * Passes gates from that place on, of which the first one has let nobody in just
 * now.  Behind an error, this session holds nothing any more.
 */
static void
pass_from(const int *gates, int first)
{
	entered_at = GetCurrentTimestamp();
	PG_TRY();
	{
		for (int place = first; place < HELD_MAX; place++)
		{
			if (gates[place] >= 0 && my_seat->held[place] < 0 &&
				!pass_at_once(gates[place], place))
				pass_after_wait(gates[place], place);
		}
	}
	PG_CATCH();
	{
		give_back_held();
		PG_RE_THROW();
	}
	PG_END_TRY();
}

/* Finds the gates of this session's role and database. */
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
leave_at_exit(int code, Datum arg)
{
	give_back_held();
	turns_take_up(-1);
	my_seat->client_pid = 0;
}

/* This session gets a place of its own in shared memory. */
static void
take_seat(void)
{
	my_seat = seat_of(SLUICE_MY_PROC_NUMBER);
	my_seat->client_pid = sluice_client_pid(MyProcPort);
	on_shmem_exit(leave_at_exit, (Datum) 0);
}

/* This session begins a statement or command. */
void
gate_note_progress(void)
{
	if (my_seat != NULL)
		my_seat->progress++;
}

/*
 * Lets this session in, at once or after a wait, which may end with an error.
 * It has to be a client's.  What it holds already of its role and database it
 * keeps.
 */
void
gate_enter(GateClass class)
{
	uint32		generation = pg_atomic_read_u32(&sluice_shared->generation);
	int			gates[HELD_MAX];

	if (my_seat == NULL)
		take_seat();
	/* Behind a reload, there may be other gates to pass. */
	if (turns_take_up(my_generation == generation ? (int) class : -1))
	{
		my_seat->held[HELD_CLASS] = class;
		my_seat->admitted[class]++;
		return;
	}
	if (my_generation != generation)
		find_keyed_gates(generation);
	gates[0] = my_role_gate;
	gates[1] = my_database_gate;
	gates[HELD_CLASS] = class;
	for (int place = 0; place < HELD_MAX; place++)
	{
		if (gates[place] >= 0 && my_seat->held[place] < 0 && !pass_at_once(gates[place], place))
		{
			pass_from(gates, place);
			break;
		}
	}
}

/*
 * A transaction has ended: gives back what this session holds, or keeps it for
 * the next one. Does not fail.
 */
void
gate_leave(void)
{
	const int  *held;

	if (my_seat == NULL)
		return;
	held = my_seat->held;
	if (held[HELD_CLASS] >= 0 && held[0] < 0 && held[1] < 0 &&
		!my_seat->is_reserved[HELD_CLASS] && turns_keep_place(held[HELD_CLASS]))
		my_seat->held[HELD_CLASS] = -1;
	else
		give_back_held();
}

/*
 * Gives back the place of its class: the transaction becomes one of another.
 * Does not fail.
 */
void
gate_leave_class(void)
{
	if (my_seat != NULL)
		give_back(HELD_CLASS);
}
