/*
 * controller.c
 *		A background worker that applies settings, searches for limits that are
 *		"auto", and writes to the log what decoding begins with (decoding.c).
 *
 * A session reads new settings only between two commands, so a waiting one would
 * not notice that a limit has been raised.  Therefore one process reads them for
 * all, writes them to shared memory, and wakes the waiters.  Nobody waits for it.
 *
 * It may be missing: between a failure and its restart, or permanently, where
 * there is no free slot for it (max_worker_processes).  Then a session that
 * begins a transaction after a reload applies the settings in its place, and the
 * log says so.  Automatic limits stay as they are.
 *
 * An automatic limit starts with several slots per CPU, since a transaction
 * spends most of its time waiting for its client's next statement, and not below
 * what a server of any size can bear without a gate.  While sessions wait, the
 * controller tries a neighbouring limit, higher and lower in turn: TRIALS times,
 * one second with the limit as it is and one with the other, so that a change of
 * the load itself affects both.  If more transactions were finished with the
 * other one each time, and by GAIN_MIN in the median, it becomes the limit, and
 * the log says so with figures.
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

/* The initial automatic limit. */
#define SLOTS_PER_CPU	8
#define SLOTS_MIN			64

#define LIMIT_AUTO_MIN		2

/*
 * Time for which each limit is measured, and in force before that, ms: after the
 * limit has been lowered, slots in use have to be released first.
 */
#define TRIAL_MS	1000
#define SETTLE_MS	300

/* Pairs of measurements before a limit changes. */
#define TRIALS		4

/* Gain required of another limit: 3 %. */
#define GAIN_MIN	1.03

/* Time after which the absence of the controller is reported, ms. */
#define ABSENT_MS	10000

/* Search for the limit of one class. */
typedef struct Search
{
	int			limit;			/* best one known; 0: not started */
	int			candidate;		/* its neighbour under trial */
	bool		tries_candidate;	/* which of the two is in force */
	bool		goes_up;		/* direction of the candidate */
	uint64		finished;		/* transactions finished, at the trial's start */
	uint64		waited;			/* admissions after a wait, likewise */
	uint64		reuses;	/* retained slots reused, likewise */
	double		base;			/* transactions per second with the limit */
	int			pairs;
	double		gain[TRIALS];
	double		rate[TRIALS];
} Search;

static Search searches[GATE_CLASSES];

PGDLLEXPORT void sluice_controller_main(Datum arg);

/* Clamps an automatic limit to its bounds. */
static int
clamp_limit(int limit)
{
	return Max(Min(limit, MaxConnections), LIMIT_AUTO_MIN);
}

/* Initial limit of "auto". */
static int
first_limit(void)
{
	long		processors = sysconf(_SC_NPROCESSORS_ONLN);

	return clamp_limit(Max((int) processors * SLOTS_PER_CPU, SLOTS_MIN));
}

static void
set_limit(int number, int limit)
{
	Gate	   *gate = &sluice_shared->gates[number];

	/* A full barrier, before the look at who waits. */
	pg_atomic_exchange_u32(&gate->limit, limit);
	/* Each session that is admitted wakes the next while slots are free. */
	gate_wake_head(number);
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

/* Returns the first name for which no gate was free, or NULL. */
static const char *
set_keyed_limits(GateKind kind, const KeyedLimits *limits)
{
	const char *left = NULL;

	for (int i = GATE_CLASSES; i < GATES; i++)
	{
		if (sluice_shared->gates[i].kind == kind &&
			!is_listed(limits, sluice_shared->gates[i].name))
			set_limit(i, 0);
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
		set_limit(gate - sluice_shared->gates, wanted->limit);
	}
	return left;
}

/* Neighbour of a limit: a third higher, or a quarter lower. */
static int
neighbour(int limit, bool up)
{
	return clamp_limit(up ? limit + Max(limit / 3, 1) : limit - Max(limit / 4, 1));
}

/* Discards the pairs so far, and continues with the limit itself. */
static void
begin_pairs(Search *search)
{
	search->pairs = 0;
	search->tries_candidate = false;
	search->candidate = neighbour(search->limit, search->goes_up);
}

/* Starts from the limit in force, if there is one. */
static void
begin_search(Search *search, int limit)
{
	memset(search, 0, sizeof(Search));
	search->limit = limit > 0 ? clamp_limit(limit) : first_limit();
	search->goes_up = true;
	begin_pairs(search);
}

/* Limit that has to be in force now. */
static int
limit_of(const Search *search)
{
	return search->tries_candidate ? search->candidate : search->limit;
}

/* Shared memory is new, after a crash. */
void
sluice_reset_searches(void)
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
			set_limit(class, sluice_concurrency[class]);
		}
		else
		{
			if (search->limit == 0)
				begin_search(search, pg_atomic_read_u32(&sluice_shared->gates[class].limit));
			set_limit(class, limit_of(search));
		}
	}
}

/*
 * Applies the settings as this process has read them.  Sessions that do so in
 * the controller's place may come in any order: the latest reading counts.
 */
void
sluice_publish_settings(bool is_controller)
{
	const char *role_left = NULL;
	const char *database_left = NULL;
	ExemptName	exempt[EXEMPT_MAX];
	int			exempt_count = sluice_list_exempt(exempt, EXEMPT_MAX);
	char		secret[SECRET_MAX + 1];
	int			secret_length = sluice_read_secret(secret);
	bool		is_latest;

	/* Must not fail from here on. */
	LWLockAcquire(sluice_shared->lock, LW_EXCLUSIVE);
	is_latest = is_controller || PgReloadTime > sluice_shared->published;
	if (is_latest)
	{
		sluice_shared->published = Max(PgReloadTime, sluice_shared->published);
		publish_limits();
		pg_atomic_write_u32(&sluice_shared->reserved_slots, (uint32) sluice_superuser_reserved_slots);
		role_left = set_keyed_limits(KIND_ROLE, sluice_role_limits);
		database_left = set_keyed_limits(KIND_DATABASE, sluice_database_limits);
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
	{
		configuration_was_read(is_controller);
		gate_wake_all();
	}
	if (role_left != NULL || database_left != NULL)
		ereport(LOG,
				(errmsg("sluice: no gate is available for \"%s\"", role_left ? role_left : database_left),
				 errhint("Reload the configuration again once sessions have left the gates that were removed.")));
}

/* Reports that the controller is missing, after ABSENT_MS and at such intervals. */
static void
report_absence(void)
{
	uint64		left = pg_atomic_read_u64(&sluice_shared->controller_left);
	TimestampTz now = GetCurrentTimestamp();

	if (TimestampDifferenceExceeds((TimestampTz) left, now, ABSENT_MS) &&
		pg_atomic_compare_exchange_u64(&sluice_shared->controller_left, &left, (uint64) now))
		ereport(LOG,
				(errmsg("sluice: the background worker \"sluice controller\" is not running"),
				 errdetail("Sessions apply changed settings with their next transaction; automatic limits do not change."),
				 errhint("Consider increasing the configuration parameter \"max_worker_processes\".")));
}

/*
 * This session begins a transaction.  If it has reloaded the settings, and there is
 * no controller, applies them.
 */
void
sluice_apply_reload(void)
{
	static TimestampTz applied = 0;

	if (likely(applied == PgReloadTime) || sluice_shared == NULL || MyBackendType != B_BACKEND)
		return;
	applied = PgReloadTime;
	if (pg_atomic_read_u32(&sluice_shared->controller) != 0)
		return;
	report_absence();
	if (PgReloadTime <= sluice_shared->published)
		return;
	sluice_publish_settings(false);
	/* Only the controller searches for limits. */
	sluice_reset_searches();
}

static int
compare(const void *a, const void *b)
{
	double		x = *(const double *) a;
	double		y = *(const double *) b;

	return (x > y) - (x < y);
}

/* The lower median, so as not to overstate a gain. */
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
				(errmsg("sluice: limit of the %s gate changed from %d to %d (auto): %.0f instead of %.0f transactions per second",
						gate_class_name(class), search->limit, search->candidate,
						median(search->rate), median(search->rate) / median(search->gain))));
		search->limit = search->candidate;
	}
	else
		search->goes_up = !search->goes_up;
	begin_pairs(search);
}

/* Number of admissions finished; a retained slot counts as unfinished until reused. */
static uint64
finished(GateClass class)
{
	return gate_admitted(class) - pg_atomic_read_u32(&sluice_shared->gates[class].running);
}

static void
read_counts(GateClass class, uint64 *waited, uint64 *reuses)
{
	LWLockAcquire(lock_of(class), LW_SHARED);
	*waited = sluice_shared->gates[class].waited;
	*reuses = sluice_shared->gates[class].reuses;
	LWLockRelease(lock_of(class));
}

static void
begin_trial(GateClass class)
{
	Search	   *search = &searches[class];

	search->finished = finished(class);
	read_counts(class, &search->waited, &search->reuses);
}

/* A trial of one class has ended: decides on the next one. */
static void
end_trial(GateClass class, double seconds)
{
	Search	   *search = &searches[class];
	uint64		count = finished(class) - search->finished;
	uint64		now_waited;
	uint64		reuses;
	double		rate = count / seconds;

	read_counts(class, &now_waited, &reuses);
	reuses -= search->reuses;
	/* The counters may have been reset. */
	if (now_waited >= search->waited)
		now_waited -= search->waited;
	/* The limit is irrelevant if hardly any session has to wait. */
	if (now_waited * 10 + reuses <= count)
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
	set_limit(class, limit_of(search));
}

static void
log_first_limits(void)
{
	for (int class = 0; class < GATE_CLASSES; class++)
	{
		if (searches[class].limit > 0)
			ereport(LOG,
					(errmsg("sluice: initial limit of the %s gate is %d (auto)",
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

/* Advances all searches when it is time: limits settle and are measured in turn. */
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

/* Time until there is something to do, ms; 0: until it is woken. */
static int
pause_ms(bool settles)
{
	if (has_search())
		return settles ? SETTLE_MS : TRIAL_MS;
	return decoding_write_every_ms();
}

static void
controller_exit(int code, Datum arg)
{
	pg_atomic_write_u64(&sluice_shared->controller_left, (uint64) GetCurrentTimestamp());
	pg_atomic_write_u32(&sluice_shared->controller, 0);
}

void
sluice_controller_main(Datum arg)
{
	TimestampTz began;
	bool		settles = true;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	on_shmem_exit(controller_exit, (Datum) 0);
	pg_atomic_write_u32(&sluice_shared->controller, (uint32) MyProcPid);
	sluice_publish_settings(true);
	log_first_limits();
	began = GetCurrentTimestamp();

	for (;;)
	{
		int			pause = pause_ms(settles);

		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_EXIT_ON_PM_DEATH | (pause > 0 ? WL_TIMEOUT : 0), pause,
						 PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
			sluice_publish_settings(true);
			/* The limits under measurement may have changed. */
			settles = true;
			began = GetCurrentTimestamp();
		}
		go_on(&began, &settles);
		decoding_write_begin();
	}
}

void
sluice_register_controller(void)
{
	BackgroundWorker worker = {0};

	strlcpy(worker.bgw_name, "sluice controller", BGW_MAXLEN);
	strlcpy(worker.bgw_type, "sluice controller", BGW_MAXLEN);
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS;
	worker.bgw_start_time = BgWorkerStart_PostmasterStart;
	worker.bgw_restart_time = 1;
	strlcpy(worker.bgw_library_name, "sluice", BGW_MAXLEN);
	strlcpy(worker.bgw_function_name, "sluice_controller_main", BGW_MAXLEN);
	RegisterBackgroundWorker(&worker);
}
