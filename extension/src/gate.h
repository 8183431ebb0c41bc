/*
 * gate.h
 *		Declarations shared by the parts of the gate.
 *
 * A gate limits the number of transactions that run at a time.  The others wait
 * for admission where they hold no resources, or as few as possible.
 *
 * gate.c admits a session to its gates and releases its slots; queue.c is the
 * wait queue of a gate; retain.c keeps a slot for a session's next transaction;
 * deadlock.c decides when a wait has to be ended; shared.c initializes shared
 * memory; hooks.c decides when a session has to enter which gate; settings.c
 * defines the configuration parameters; controller.c is the background worker
 * that applies them, and that searches for the limit where it is "auto"; views.c
 * has the SQL functions.
 *
 * Other files serve a connection pool and are not part of the gate:
 * client_address.c lets the pool report its client's address, session.c reports
 * session state to the pool (session.h declares its parts), catalog.c reports
 * catalog changes, configuration.c reloads, outcome.c says what became of a
 * transaction, commits.c where commits end in the WAL, and durability.c sees to it
 * that an acknowledged commit is worth what it should be, and output_plugin.c that
 * a subscriber gets no more than that; decoding.c writes what decoding begins with.
 * portals.c keeps one client from crashing the server for all.
 */
#ifndef SLUICE_GATE_H
#define SLUICE_GATE_H

#include "access/xact.h"
#include "nodes/plannodes.h"
#include "port/atomics.h"
#include "storage/lwlock.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

/* Class of a transaction, which selects the gate that it enters. */
typedef enum GateClass
{
	GATE_TRANSACTION,			/* transaction block, at BEGIN */
	GATE_AUTOCOMMIT,			/* single statement that writes */
	GATE_QUERY,					/* single statement that only reads */
	GATE_BIGQUERY				/* single statement of a high planned cost */
} GateClass;

#define GATE_CLASSES	4

/* Gates of roles and of databases. */
#define KEYED_GATES		64
#define GATES			(GATE_CLASSES + KEYED_GATES)

/* Gates that one session enters: that of its role, its database, its class. */
#define GATES_PER_BACKEND	3
#define CLASS_SLOT		2			/* index of the class's gate among them */

/*
 * Exempt names that waiting sessions learn of.  Any beyond that take effect with
 * a session's next transaction.
 */
#define EXEMPT_MAX		128

/* A limit that the controller searches for. */
#define LIMIT_AUTO		(-1)

/* Length of the secret with which a pool authenticates itself, in bytes. */
#define SECRET_MIN		16
#define SECRET_MAX		128

/* Histogram buckets: waits below 2^1 us, 2^2 us, ... ; the last one is open. */
#define WAIT_BUCKETS	28

/* Counters of catalog changes; a database's is chosen by a hash of its OID. */
#define CATALOG_COUNTS	64

typedef enum GateKind
{
	KIND_CLASS,
	KIND_ROLE,
	KIND_DATABASE
} GateKind;

/*
 * A gate, in shared memory.
 *
 * running and reserved are changed by atomic operations at any time.  limit is
 * set by the controller.  waiting and head_since are changed under the gate's
 * lock, but read without it; head and watcher may be compared without it with a
 * backend's own number.  All else is protected by the gate's lock.
 */
typedef struct Gate
{
	pg_atomic_uint32 running;	/* slots in use, retained ones included */
	pg_atomic_uint32 reserved;	/* reserved slots in use, above the limit */
	pg_atomic_uint32 limit;		/* number of slots; 0: unlimited */
	pg_atomic_uint32 waiting;	/* length of the wait queue */
	pg_atomic_uint64 head_since;	/* when the head began to wait, or 0 */
	int			head;			/* wait queue, by backend number; or -1 */
	int			tail;
	int			retained_head;	/* backends with a retained slot, or -1 */
	int			retained_tail;
	int			watcher;		/* waiter that releases expired retained slots;
								 * -1 if nobody waits */
	bool		is_watched;		/* the watcher's timeout is short enough */
	uint64		waited;			/* admissions after a wait */
	uint64		waited_us;		/* total time of these waits */
	uint64		over_limit;		/* admissions above the limit */
	uint64		failed_waits;	/* waits that ended with an error */
	uint64		wait_us[WAIT_BUCKETS];	/* histogram of successful waits */
	uint64		reuses;			/* retained slots used again, since startup */
	uint64		admitted_before;	/* admissions before the last reset */
	GateKind	kind;			/* of keyed gates: under SluiceShared.lock */
	char		name[NAMEDATALEN];
	char		pad[PG_CACHE_LINE_SIZE];	/* avoid false sharing */
} Gate;

/*
 * Per-backend state, in shared memory, indexed by backend number.
 *
 * held, is_reserved, client_pid, commands and admitted are written by their
 * backend only, and read by others without a lock.  The rest is written by the
 * backend itself; retained_since, next, previous and is_woken also by others
 * under the lock of the gate concerned.  A backend is in at most one list: it
 * waits, or it retains a slot, but never both.
 */
typedef struct GateBackend
{
	int			held[GATES_PER_BACKEND];	/* gates in which it has a slot, or -1 */
	bool		is_reserved[GATES_PER_BACKEND]; /* it is a reserved slot */
	int			client_pid;		/* peer process of a Unix socket; 0: unknown */
	uint64		commands;		/* statements and utility commands started */
	int			waits_for;		/* gate in whose queue it is, or -1 */
	TimestampTz since;			/* start of the wait */
	TimestampTz retained_since; /* when it retained its slot, or 0 */
	int			next;			/* links of the wait queue or retained list */
	int			previous;
	bool		is_superuser;	/* may take a reserved slot */
	bool		is_woken;		/* its latch was set; it has not responded yet */
	uint64		admitted[GATES];
} GateBackend;

/* A role or database whose sessions are exempt from all limits. */
typedef struct ExemptName
{
	GateKind	kind;
	char		name[NAMEDATALEN];
} ExemptName;

typedef struct SluiceShared
{
	LWLock	   *lock;			/* protects kind and name of keyed gates, the
								 * exempt names, the secret, and published */
	LWLockPadded *gate_locks;	/* one per gate */
	pg_atomic_uint32 generation;	/* of the keyed gates; changes with them */
	pg_atomic_uint32 configuration; /* its changes, by reloads */
	int			backend_count;
	pg_atomic_uint32 controller;	/* PID of the controller, or 0 */
	pg_atomic_uint64 controller_left;	/* when it exited, or when its absence
										 * was last reported */
	pg_atomic_uint32 reserved_slots;	/* of each gate, for superusers */
	TimestampTz published;		/* when the settings in force were read */
	int			exempt_count;
	ExemptName	exempt[EXEMPT_MAX];
	char		secret[SECRET_MAX];
	int			secret_length;	/* 0: there is none */
	uint32		secret_version; /* changes with it */
	pg_atomic_uint32 wrong_secrets; /* since the last report in the log */
	pg_atomic_uint64 wrong_reported;	/* time of that report */
	pg_atomic_uint64 catalog[CATALOG_COUNTS];	/* changes of the catalog */
	Gate		gates[GATES];
	GateBackend backends[FLEXIBLE_ARRAY_MEMBER];
} SluiceShared;

extern SluiceShared *sluice_shared;

/* This backend's state; NULL until it has entered a gate for the first time. */
extern GateBackend *gate_my_backend;

static inline GateBackend *
gate_backend(int number)
{
	return &sluice_shared->backends[number];
}

static inline LWLock *
lock_of(int gate)
{
	return &sluice_shared->gate_locks[gate].lock;
}

static inline bool
gate_has_limit(Gate *gate)
{
	return pg_atomic_read_u32(&gate->limit) > 0;
}

static inline bool
gate_has_free_slot(Gate *gate)
{
	return pg_atomic_read_u32(&gate->running) < pg_atomic_read_u32(&gate->limit);
}

/* Increments a counter unless that would exceed the limit. */
static inline bool
gate_increment_below(pg_atomic_uint32 *counter, uint32 limit)
{
	uint32		now = pg_atomic_read_u32(counter);

	while (now < limit)
	{
		if (pg_atomic_compare_exchange_u32(counter, &now, now + 1))
			return true;
	}
	return false;
}

/* Acquires a slot if there is a free one. */
static inline bool
gate_acquire_slot(Gate *gate)
{
	return gate_increment_below(&gate->running, pg_atomic_read_u32(&gate->limit));
}

/* Acquires a slot that is reserved for superusers, if there is a free one. */
static inline bool
gate_acquire_reserved_slot(Gate *gate)
{
	return gate_increment_below(&gate->reserved,
								pg_atomic_read_u32(&sluice_shared->reserved_slots));
}

/* Whether the gate has a limit, or is still used though it has none any more. */
static inline bool
gate_is_in_use(Gate *gate)
{
	return gate_has_limit(gate) || pg_atomic_read_u32(&gate->running) > 0 ||
		pg_atomic_read_u32(&gate->reserved) > 0 || pg_atomic_read_u32(&gate->waiting) > 0;
}

/* How a session was admitted. */
typedef enum Admission
{
	ADMIT_UNLIMITED,			/* without a slot: there is no limit (any more) */
	ADMIT_SLOT,
	ADMIT_RESERVED				/* with a slot reserved for superusers */
} Admission;

/* State of a wait. */
typedef struct Wait
{
	int			number;			/* the gate */
	bool		is_superuser;	/* may use a reserved slot */
	TimestampTz deadline_from;	/* "sluice.gate_timeout" counts from here */
	uint32		generation;		/* when exemptions were last checked */
	TimestampTz last_check;		/* for a deadlock; at first, start of the wait */
	int			stalled;		/* consecutive checks at which this was the head
								 * and no slot holder made progress */
	uint64		commands;		/* started by the slot holders, at the last one */
	long		watch_ms;		/* of the watcher: time until a retained slot
								 * expires, or -1 */
} Wait;

/* shared.c */
extern Size sluice_shared_size(void);
extern void sluice_shared_init(bool found);
extern uint64 gate_admitted(int gate);
extern void gate_reset(int gate);
extern const char *gate_class_name(int class);
extern const char *gate_kind_name(GateKind kind);

/* deadlock.c */
extern bool gate_check_is_due(Wait *wait);
extern bool gate_deadlock_detected(Wait *wait);

/* gate.c */
extern void gate_enter(GateClass class);
extern void gate_leave(void);
extern void gate_leave_class(void);
extern void gate_count_command(void);

/* queue.c */
extern Admission gate_wait(int number, bool is_superuser, TimestampTz deadline_from,
						   uint32 generation);
extern void gate_abort_wait(void);
extern void gate_wake_head(int number);
extern void gate_wake_head_locked(Gate *gate);
extern void gate_wake_superuser(int number);
extern void gate_wake_all(void);

/* retain.c */
extern void retain_begin(bool has_waited);
extern bool retain_slot(int gate);
extern bool retain_reuse(int gate);
extern void retain_release_expired(Gate *gate, TimestampTz now);
extern void retain_release_all(Gate *gate);
extern long retain_ms_left(const Gate *gate, TimestampTz now);
extern void retain_wake_watcher(Gate *gate);

/* hooks.c */
extern void gate_check_block(void);

/* settings.c */
typedef struct KeyedLimit
{
	int			limit;
	char		name[NAMEDATALEN];
} KeyedLimit;

typedef struct KeyedLimits
{
	int			count;
	KeyedLimit	limit[FLEXIBLE_ARRAY_MEMBER];
} KeyedLimits;

extern int	sluice_concurrency[GATE_CLASSES];
extern const KeyedLimits *sluice_role_limits;
extern const KeyedLimits *sluice_database_limits;
extern int	sluice_gate_timeout;
extern int	sluice_transactions_per_admission;
extern double sluice_bigquery_cost;
extern int	sluice_superuser_reserved_slots;
extern char *sluice_pool_secret_file;
extern void sluice_define_settings(void);
extern bool sluice_is_exempt(const char *role, const char *database);
extern int	sluice_list_exempt(ExemptName *names, int max);

/* client_address.c */
extern int	sluice_read_secret(char *secret);

/* session.c */

/* What is noted of a utility command before it runs, for use afterwards. */
typedef struct UtilityNote
{
	Size		libraries;		/* of LOAD: what was loaded before, or 0 */
	bool		forgets_sequences;	/* of DISCARD */
} UtilityNote;

extern bool sluice_has_client(void);
extern void sluice_define_reported(const char *setting, const char *description, char **text, GucShowHook show);
extern void sluice_flag_for_report(const char *setting);
extern void session_before_executor(const PlannedStmt *statement);
extern void session_before_utility(const Node *command, UtilityNote *note);
extern void session_after_utility(const UtilityNote *note);
extern void session_at_end(XactEvent event);
extern void session_define_setting(void);
extern void session_init(void);

/* catalog.c */
extern bool catalog_before_utility(Node *command);
extern void catalog_after_change(void);
extern void catalog_at_end(XactEvent event);
extern void catalog_define_setting(void);

/* configuration.c */
extern void configuration_was_read(bool is_controller);
extern void configuration_at_end(XactEvent event);
extern void configuration_define_setting(void);

/* outcome.c */
extern void outcome_after_command(void);
extern void outcome_define_settings(void);

/* commits.c */
extern void commits_after_prepared(void);
extern void commits_at_end(XactEvent event);
extern void commits_define_settings(void);

/* durability.c */
extern int	durability_floor(void);
extern bool durability_waits_for_standbys(void);
extern void durability_after_command(int before);
extern void durability_at_commit_command(void);
extern void durability_before_command(void);
extern void durability_before_utility(const Node *command);
extern void durability_after_discard_all(void);
extern void durability_at_end(XactEvent event);
extern void durability_define_settings(void);

/* portals.c */
extern void portals_at_end(XactEvent event);
extern void portals_fail_again(void);
extern void portals_init(void);

/* decoding.c */
extern int	decoding_write_every_ms(void);
extern void decoding_write_begin(void);

/* controller.c */
extern void sluice_register_controller(void);
extern void sluice_publish_settings(bool is_controller);
extern void sluice_apply_reload(void);
extern void sluice_reset_searches(void);

#endif							/* SLUICE_GATE_H */
