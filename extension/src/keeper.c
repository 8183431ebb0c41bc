/*
 * keeper.c
 *		The keeper: a background worker that puts limits into force, and finds
 *		them where they are "auto".
 *
 * A session reads new settings only between two commands; one that waits would
 * never hear that there is room now.  So one process reads them for all, writes
 * them to shared memory, and wakes whom they concern.  Nobody waits for it.
 *
 * It may be missing: between a failure and its restart, or for good, where the
 * server has no slot for it (max_worker_processes).  Then a session that begins a
 * transaction behind a reload puts the settings into force in its place, and the
 * log says so.  Automatic limits stay what they are.
 *
 * An automatic limit begins with some places a processor, since a transaction
 * spends most of its time waiting for its client's next statement, and not below
 * what a server of any size bears without a gate.  While sessions wait, the
 * keeper tries a neighbour, higher and lower in turn: TRIALS times a second with
 * the limit as it is and a second with the other one, so that a change of the
 * load itself meets both.  If more were done with the other one each time, and
 * by GAIN_MIN in the median, it becomes the limit, and the log says so with
 * figures.
 */
#include "postgres.h"

#include "compat.h"
#include "gate.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/latch.h"
#include "tcop/tcopprot.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include <unistd.h>

/* The values from which the start of an automatic limit is worked out. */
#define PLACES_A_PROCESSOR	8
#define PLACES_MIN			64

#define LIMIT_AUTO_MIN		2

/*
 * The time for which each limit is measured, and is in force before that,
 * ms: of a lower one those who are inside have to leave first.
 */
#define TRIAL_MS	1000
#define SETTLE_MS	300

/* Pairs of measurements before a limit changes. */
#define TRIALS		4

/* The gain that another limit has to bring: 3 %. */
#define GAIN_MIN	1.03

/* How long the keeper may be missing before the log says so, ms. */
#define ABSENT_MS	10000

/* The search for the limit of one class. */
typedef struct Search
{
	int			limit;			/* the best one known; 0: not begun */
	int			candidate;		/* the one that is tried beside it */
	bool		tries_candidate;	/* which of both is in force now */
	bool		goes_up;		/* where the next candidate lies */
	uint64		finished;		/* how many were done at the trial's start */
	uint64		waited;			/* how many had been let in after a wait */
	uint64		further_turns;	/* how many had gone on without a new admission */
	double		base;			/* per second with the limit, in this pair */
	int			pairs;
	double		gain[TRIALS];
	double		rate[TRIALS];
} Search;

static Search searches[GATE_CLASSES];

PGDLLEXPORT void sluice_keeper_main(Datum arg);

/* Brings an automatic limit within its bounds. */
static int
bounded(int limit)
{
	return Max(Min(limit, MaxConnections), LIMIT_AUTO_MIN);
}

/* The limit that "auto" begins with. */
static int
first_limit(void)
{
	long		processors = sysconf(_SC_NPROCESSORS_ONLN);

	return bounded(Max((int) processors * PLACES_A_PROCESSOR, PLACES_MIN));
}

static void
put_limit(int number, int limit)
{
	Gate	   *gate = &sluice_shared->gates[number];

	/* A full barrier, before the look at who waits. */
	pg_atomic_exchange_u32(&gate->limit, limit);
	/* Each one that goes in wakes the next while there is room. */
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

		if (!gate_is_in_use(gate))
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

/* Gives the first name that no gate was left for, or NULL. */
static const char *
put_keyed_limits(GateKind kind, const KeyedLimits *limits)
{
	const char *left = NULL;

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
				left = wanted->name;
				continue;
			}
			gate->kind = kind;
			strlcpy(gate->name, wanted->name, NAMEDATALEN);
			gate_reset(gate - sluice_shared->gates);
		}
		put_limit(gate - sluice_shared->gates, wanted->limit);
	}
	return left;
}

/* A neighbour of a limit: a third more, or a quarter less. */
static int
neighbour(int limit, bool up)
{
	return bounded(up ? limit + Max(limit / 3, 1) : limit - Max(limit / 4, 1));
}

/* Forgets the pairs so far, and goes on with the limit itself. */
static void
begin_pairs(Search *search)
{
	search->pairs = 0;
	search->tries_candidate = false;
	search->candidate = neighbour(search->limit, search->goes_up);
}

/* Begins with the limit that is in force, if there is one. */
static void
begin_search(Search *search, int limit)
{
	memset(search, 0, sizeof(Search));
	search->limit = limit > 0 ? bounded(limit) : first_limit();
	search->goes_up = true;
	begin_pairs(search);
}

/* The limit that is to be in force now. */
static int
limit_of(const Search *search)
{
	return search->tries_candidate ? search->candidate : search->limit;
}

/* Shared memory is new, after a crash. */
void
sluice_forget_searches(void)
{
	memset(searches, 0, sizeof(searches));
}

/* Puts the limits of classes into force. */
static void
publish_limits(void)
{
	for (int class = 0; class < GATE_CLASSES; class++)
	{
		Search	   *search = &searches[class];

		if (sluice_concurrency[class] != LIMIT_AUTO)
		{
			memset(search, 0, sizeof(Search));
			put_limit(class, sluice_concurrency[class]);
		}
		else
		{
			if (search->limit == 0)
				begin_search(search, pg_atomic_read_u32(&sluice_shared->gates[class].limit));
			put_limit(class, limit_of(search));
		}
	}
}

/*
 * Puts the settings into force, as this process has read them.  Sessions that do
 * that in the keeper's place may come in any order: the latest reading counts.
 */
void
sluice_publish_settings(bool is_keeper)
{
	const char *role_left = NULL;
	const char *database_left = NULL;
	ExemptName	exempt[EXEMPT_MAX];
	int			exempt_count = sluice_list_exempt(exempt, EXEMPT_MAX);
	char		secret[SECRET_MAX + 1];
	int			secret_length = sluice_read_secret(secret);
	bool		is_latest;

	/* Nothing that could fail from here on. */
	LWLockAcquire(sluice_shared->lock, LW_EXCLUSIVE);
	is_latest = is_keeper || PgReloadTime > sluice_shared->published;
	if (is_latest)
	{
		sluice_shared->published = Max(PgReloadTime, sluice_shared->published);
		publish_limits();
		role_left = put_keyed_limits(KIND_ROLE, sluice_role_limits);
		database_left = put_keyed_limits(KIND_DATABASE, sluice_database_limits);
		memcpy(sluice_shared->exempt, exempt, sizeof(ExemptName) * exempt_count);
		sluice_shared->exempt_count = exempt_count;
		if (secret_length != sluice_shared->secret_length ||
			memcmp(sluice_shared->secret, secret, SECRET_MAX) != 0)
			sluice_shared->secret_version++;
		memcpy(sluice_shared->secret, secret, SECRET_MAX);
		sluice_shared->secret_length = secret_length;
		pg_atomic_fetch_add_u32(&sluice_shared->generation, 1);
	}
	LWLockRelease(sluice_shared->lock);
	explicit_bzero(secret, sizeof(secret));
	if (is_latest)
		gate_wake_all();
	if (role_left != NULL || database_left != NULL)
		ereport(LOG,
				(errmsg("sluice: no gate is left for \"%s\"", role_left ? role_left : database_left),
				 errhint("It gets one at the next reload, when those that were given up are empty.")));
}

/* Says that there is no keeper, from ABSENT_MS after it has gone on, and once in that time. */
static void
report_absence(void)
{
	uint64		left = pg_atomic_read_u64(&sluice_shared->keeper_left);
	TimestampTz now = GetCurrentTimestamp();

	if (TimestampDifferenceExceeds((TimestampTz) left, now, ABSENT_MS) &&
		pg_atomic_compare_exchange_u64(&sluice_shared->keeper_left, &left, (uint64) now))
		ereport(LOG,
				(errmsg("sluice: the background worker \"sluice keeper\" is not running"),
				 errdetail("Sessions put changed settings into force with their next transaction; automatic limits stay as they are."),
				 errhint("Consider increasing the configuration parameter \"max_worker_processes\".")));
}

/*
 * This session begins a transaction: where it has read the settings anew, and there
 * is no keeper, puts them into force.
 */
void
sluice_take_up_reload(void)
{
	static TimestampTz taken_up = 0;

	if (likely(taken_up == PgReloadTime) || sluice_shared == NULL || MyBackendType != B_BACKEND)
		return;
	taken_up = PgReloadTime;
	if (pg_atomic_read_u32(&sluice_shared->keeper) != 0)
		return;
	report_absence();
	if (PgReloadTime <= sluice_shared->published)
		return;
	sluice_publish_settings(false);
	/* Finding limits is the keeper's. */
	sluice_forget_searches();
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

/* The number let in that are done; one that lingers is not, until its next turn. */
static uint64
finished(GateClass class)
{
	return gate_admitted(class) - pg_atomic_read_u32(&sluice_shared->gates[class].running);
}

static void
read_counts(GateClass class, uint64 *waited, uint64 *further_turns)
{
	LWLockAcquire(lock_of(class), LW_SHARED);
	*waited = sluice_shared->gates[class].waited;
	*further_turns = sluice_shared->gates[class].further_turns;
	LWLockRelease(lock_of(class));
}

static void
begin_trial(GateClass class)
{
	Search	   *search = &searches[class];

	search->finished = finished(class);
	read_counts(class, &search->waited, &search->further_turns);
}

/* A trial of one class has ended: what comes next. */
static void
end_trial(GateClass class, double seconds)
{
	Search	   *search = &searches[class];
	uint64		count = finished(class) - search->finished;
	uint64		now_waited;
	uint64		further_turns;
	double		rate = count / seconds;

	read_counts(class, &now_waited, &further_turns);
	further_turns -= search->further_turns;
	/* There may have been a reset. */
	if (now_waited >= search->waited)
		now_waited -= search->waited;
	/* The limit does not matter where hardly any newcomer waits. */
	if (now_waited * 10 + further_turns <= count)
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
	put_limit(class, limit_of(search));
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

/* Goes on with all searches, if it is time; in turn, limits settle and are measured. */
static void
go_on(TimestampTz *began, bool *settles)
{
	TimestampTz now = GetCurrentTimestamp();

	if (!TimestampDifferenceExceeds(*began, now, *settles ? SETTLE_MS : TRIAL_MS) && now >= *began)
		return;
	for (int class = 0; class < GATE_CLASSES; class++)
	{
		if (searches[class].limit == 0)
			continue;
		if (*settles)
			begin_trial(class);
		else
			end_trial(class, Max(now - *began, 1) / 1000000.0);
	}
	*settles = !*settles;
	*began = now;
}

static void
leave_keeper(int code, Datum arg)
{
	pg_atomic_write_u64(&sluice_shared->keeper_left, (uint64) GetCurrentTimestamp());
	pg_atomic_write_u32(&sluice_shared->keeper, 0);
}

void
sluice_keeper_main(Datum arg)
{
	TimestampTz began;
	bool		settles = true;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	on_shmem_exit(leave_keeper, (Datum) 0);
	pg_atomic_write_u32(&sluice_shared->keeper, (uint32) MyProcPid);
	sluice_publish_settings(true);
	log_first_limits();
	began = GetCurrentTimestamp();

	for (;;)
	{
		(void) WaitLatch(MyLatch,
						 WL_LATCH_SET | WL_EXIT_ON_PM_DEATH | (has_search() ? WL_TIMEOUT : 0),
						 settles ? SETTLE_MS : TRIAL_MS, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
			sluice_publish_settings(true);
			/* The settings that are being measured are not the same any more. */
			settles = true;
			began = GetCurrentTimestamp();
		}
		go_on(&began, &settles);
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
