/*
 * keeper.c
 *		The keeper: a background worker that puts limits into force, and finds
 *		them where they are "auto".
 *
 * A session reads new settings only between two commands; one that waits would
 * never hear that there is room now.  So one process reads them for all, writes
 * them to shared memory, and wakes whom they concern.  Without it all limits
 * stay what they are; nobody waits for it.
 *
 * An automatic limit begins with some places a processor, since a transaction
 * spends most of its time waiting for its client's next statement, and not below
 * what a server of any size bears without a gate.  While sessions wait, the keeper tries a neighbour, higher and lower in turn: TRIALS times a
 * second with the limit as it is and a second with the other one, so that a
 * change of the load itself meets both.  If the other one let more in each time,
 * and by GAIN_MIN in the median, it becomes the limit, and the log says so with
 * figures.
 */
#include "postgres.h"

#include "compat.h"
#include "gate.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/latch.h"
#include "tcop/tcopprot.h"
#include "utils/wait_event.h"

#include <unistd.h>

/* What an automatic limit begins with. */
#define PLACES_A_PROCESSOR	8
#define PLACES_MIN			64

#define LIMIT_AUTO_MIN		2

/* How long each limit is measured, ms. */
#define TRIAL_MS	1000

/* Pairs of measurements before a limit changes. */
#define TRIALS		4

/* What another limit has to gain: 3 %. */
#define GAIN_MIN	1.03

/* How the limit of one class is being found. */
typedef struct Search
{
	int			limit;			/* the best one known; 0: not begun */
	int			candidate;		/* the one that is tried beside it */
	bool		tries_candidate;	/* which of both is in force now */
	bool		goes_up;		/* where the next candidate lies */
	uint64		admitted;		/* how many the gate had let in at the trial's start */
	uint64		waited;			/* how many of them after a wait */
	double		base;			/* per second with the limit, in this pair */
	int			pairs;
	double		gain[TRIALS];
	double		rate[TRIALS];
} Search;

static Search searches[GATE_CLASSES];

PGDLLEXPORT void sluice_keeper_main(Datum arg);

/* The limit that "auto" begins with. */
int
sluice_first_limit(void)
{
	long		processors = sysconf(_SC_NPROCESSORS_ONLN);

	return Max((int) processors * PLACES_A_PROCESSOR, PLACES_MIN);
}

static void
put_limit(int number, int limit)
{
	Gate	   *gate = &sluice_shared->gates[number];

	pg_atomic_write_u32(&gate->limit, limit);
	/* Who goes in wakes the next one while there is room. */
	gate_wake_first(number);
}

static Gate *
keyed_gate(GateKind kind, const char *name)
{
	for (int i = GATE_CLASSES; i < GATES; i++)
	{
		Gate	   *gate = &sluice_shared->gates[i];

		if (gate->kind == kind && strcmp(gate->name, name) == 0)
			return gate;
	}
	return NULL;
}

static Gate *
free_keyed_gate(void)
{
	for (int i = GATE_CLASSES; i < GATES; i++)
	{
		Gate	   *gate = &sluice_shared->gates[i];

		if (pg_atomic_read_u32(&gate->limit) == 0 &&
			pg_atomic_read_u32(&gate->running) == 0 &&
			pg_atomic_read_u32(&gate->waiting) == 0)
			return gate;
	}
	return NULL;
}

static bool
is_listed(const KeyedLimits *limits, const char *name)
{
	for (int i = 0; limits && i < limits->count; i++)
	{
		if (strcmp(limits->limit[i].name, name) == 0)
			return true;
	}
	return false;
}

static void
put_keyed_limits(GateKind kind, const KeyedLimits *limits)
{
	for (int i = GATE_CLASSES; i < GATES; i++)
	{
		if (sluice_shared->gates[i].kind == kind &&
			!is_listed(limits, sluice_shared->gates[i].name))
			put_limit(i, 0);
	}
	for (int i = 0; limits && i < limits->count; i++)
	{
		const KeyedLimit *wanted = &limits->limit[i];
		Gate	   *gate = keyed_gate(kind, wanted->name);

		if (gate == NULL)
		{
			gate = free_keyed_gate();
			if (gate == NULL)
			{
				ereport(LOG,
						(errmsg("sluice: no gate is left for \"%s\"", wanted->name),
						 errhint("It gets one at the next reload, when those that were given up are empty.")));
				continue;
			}
			gate->kind = kind;
			strlcpy(gate->name, wanted->name, NAMEDATALEN);
		}
		put_limit(gate - sluice_shared->gates, wanted->limit);
	}
}

/* Puts the limits of the settings into force. */
void
sluice_publish_limits(void)
{
	for (int class = 0; class < GATE_CLASSES; class++)
	{
		Search	   *search = &searches[class];

		if (sluice_concurrency[class] != LIMIT_AUTO)
		{
			memset(search, 0, sizeof(Search));
			put_limit(class, sluice_concurrency[class]);
		}
		else if (search->limit == 0)
		{
			memset(search, 0, sizeof(Search));
			search->limit = sluice_first_limit();
			search->goes_up = true;
			put_limit(class, search->limit);
		}
	}
	LWLockAcquire(sluice_shared->lock, LW_EXCLUSIVE);
	put_keyed_limits(KIND_ROLE, sluice_role_limits);
	put_keyed_limits(KIND_DATABASE, sluice_database_limits);
	LWLockRelease(sluice_shared->lock);
	pg_atomic_fetch_add_u32(&sluice_shared->generation, 1);
}

static int
compare(const void *a, const void *b)
{
	double		x = *(const double *) a;
	double		y = *(const double *) b;

	return (x > y) - (x < y);
}

/* The lower of the two in the middle: a gain is not to be made larger. */
static double
median(const double *values)
{
	double		sorted[TRIALS];

	memcpy(sorted, values, sizeof(sorted));
	qsort(sorted, TRIALS, sizeof(double), compare);
	return sorted[(TRIALS - 1) / 2];
}

static bool
is_gain(const double *gains)
{
	for (int i = 0; i < TRIALS; i++)
	{
		if (gains[i] <= 1)
			return false;
	}
	return median(gains) >= GAIN_MIN;
}

/* A neighbour of a limit: a third more, or as much less. */
static int
neighbour(int limit, bool up)
{
	int			step = Max(limit / 3, 1);

	return up ? Min(limit + step, sluice_shared->seats) : Max(limit - limit / 4 - (limit < 4), LIMIT_AUTO_MIN);
}

/* Forgets the pairs so far, and goes on with the limit itself. */
static void
begin_pairs(Search *search)
{
	search->pairs = 0;
	search->tries_candidate = false;
	search->candidate = neighbour(search->limit, search->goes_up);
}

static void
end_pairs(GateClass class, Search *search)
{
	if (is_gain(search->gain))
	{
		ereport(LOG,
				(errmsg("sluice: the %s gate lets in %d at once, was %d (auto): %.0f instead of %.0f a second",
						gate_class_name(class), search->candidate, search->limit,
						median(search->rate), median(search->rate) / median(search->gain))));
		search->limit = search->candidate;
	}
	else
		search->goes_up = !search->goes_up;
	begin_pairs(search);
}

/* A trial of one class has ended: what comes next. */
static void
end_trial(GateClass class, double seconds)
{
	Search	   *search = &searches[class];
	Gate	   *gate = &sluice_shared->gates[class];
	uint64		admitted = gate_admitted(class);
	uint64		waited;
	uint64		more_waited;
	double		rate = (admitted - search->admitted) / seconds;
	bool		is_full;

	LWLockAcquire(&sluice_shared->gate_locks[class].lock, LW_SHARED);
	waited = gate->waited;
	LWLockRelease(&sluice_shared->gate_locks[class].lock);
	/* There may have been a reset. */
	more_waited = waited >= search->waited ? waited - search->waited : waited;
	/* Where hardly anybody waits, the limit does not matter. */
	is_full = more_waited * 10 > admitted - search->admitted;
	search->admitted = admitted;
	search->waited = waited;

	if (!is_full)
		begin_pairs(search);
	else if (!search->tries_candidate)
	{
		search->base = rate;
		search->tries_candidate = true;
	}
	else
	{
		search->gain[search->pairs] = rate / Max(search->base, 1);
		search->rate[search->pairs] = rate;
		search->tries_candidate = false;
		if (++search->pairs == TRIALS)
			end_pairs(class, search);
	}
	put_limit(class, search->tries_candidate ? search->candidate : search->limit);
}

static void
log_first_limits(void)
{
	for (int class = 0; class < GATE_CLASSES; class++)
	{
		if (searches[class].limit > 0)
			ereport(LOG,
					(errmsg("sluice: the %s gate lets in %d at once to begin with (auto)",
							gate_class_name(class), searches[class].limit)));
	}
}

static bool
has_search(void)
{
	for (int class = 0; class < GATE_CLASSES; class++)
	{
		if (searches[class].limit > 0)
			return true;
	}
	return false;
}

void
sluice_keeper_main(Datum arg)
{
	TimestampTz began;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	sluice_publish_limits();
	sluice_publish_secret();
	log_first_limits();
	began = GetCurrentTimestamp();

	for (;;)
	{
		TimestampTz now;

		(void) WaitLatch(MyLatch,
						 WL_LATCH_SET | WL_EXIT_ON_PM_DEATH | (has_search() ? WL_TIMEOUT : 0),
						 TRIAL_MS, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
			sluice_publish_limits();
			sluice_publish_secret();
		}
		now = GetCurrentTimestamp();
		if (TimestampDifferenceExceeds(began, now, TRIAL_MS))
		{
			for (int class = 0; class < GATE_CLASSES; class++)
			{
				if (searches[class].limit > 0)
					end_trial(class, (now - began) / 1000000.0);
			}
			began = now;
		}
	}
}

void
sluice_register_keeper(void)
{
	BackgroundWorker worker = {0};

	strlcpy(worker.bgw_name, "sluice keeper", BGW_MAXLEN);
	strlcpy(worker.bgw_type, "sluice keeper", BGW_MAXLEN);
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS;
	worker.bgw_start_time = BgWorkerStart_PostmasterStart;
	worker.bgw_restart_time = 1;
	strlcpy(worker.bgw_library_name, "sluice", BGW_MAXLEN);
	strlcpy(worker.bgw_function_name, "sluice_keeper_main", BGW_MAXLEN);
	RegisterBackgroundWorker(&worker);
}
