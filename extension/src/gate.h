/*
 * gate.h
 *		Declarations that the parts of the gate share.
 *
 * A gate lets a limited number of transactions run and lets the others wait
 * where they hold nothing, or as little as can be.  gate.c has the gates
 * themselves: taking a place, waiting for one, giving it back; turns.c keeps one
 * for a session's next transaction, deadlock.c says when a wait has to end,
 * shared.c makes their shared memory.  hooks.c says when a session has to pass
 * which.  settings.c reads what they are limited
 * to, keeper.c puts that into force and finds the limit where it is "auto",
 * views.c shows it all.
 *
 * Some files serve a pool and are no part of the gate: client_address.c lets it
 * say whom it works for, session.c tells it what a session holds (session.h has
 * its parts), and catalog.c when the catalog has changed.
 */
#ifndef SLUICE_GATE_H
#define SLUICE_GATE_H

#include "access/xact.h"
#include "nodes/plannodes.h"
#include "port/atomics.h"
#include "storage/lwlock.h"
#include "utils/timestamp.h"

/* The kind of work that a session passes a gate with. */
typedef enum GateClass
{
	GATE_TRANSACTION,			/* a transaction block, at its BEGIN */
	GATE_AUTOCOMMIT,			/* a single statement that writes */
	GATE_QUERY,					/* a single statement that reads */
	GATE_BIGQUERY				/* a single statement of a high cost */
} GateClass;

#define GATE_CLASSES	4

/* Gates of roles and of databases. */
#define KEYED_GATES		64
#define GATES			(GATE_CLASSES + KEYED_GATES)

/* Gates that one session passes: its role's, its database's, its class's. */
#define HELD_MAX		3
#define HELD_CLASS		2			/* where the class's is among them */

/*
 * Exempt names that sessions hear of while they wait.  What is beyond that they
 * take up with their next transaction.
 */
#define EXEMPT_MAX		128

/* A limit that the keeper is to find. */
#define LIMIT_AUTO		(-1)

/* Bytes of the secret by which a pool tells where its clients come from. */
#define SECRET_MIN		16
#define SECRET_MAX		128

/* Waits from under 2^1 us, 2^2 us, ... ; the last one has all that are longer. */
#define WAIT_BUCKETS	28

/* Counts of the catalog's changes; databases share them by a hash. */
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
 * running and reserved may change at any time; what may be taken is taken by
 * one atomic operation. A place that lingers is one of running. limit is the
 * keeper's to change. waiting and first_since change under the gate's lock and
 * are read without it; first and watcher are, too, by who may be it. The rest is
 * read and changed under the lock.
 */
typedef struct Gate
{
	pg_atomic_uint32 running;	/* places taken */
	pg_atomic_uint32 reserved;	/* places above the limit taken by superusers */
	pg_atomic_uint32 limit;		/* places there are; 0: this is no gate */
	pg_atomic_uint32 waiting;	/* length of the queue */
	pg_atomic_uint64 first_since;	/* since when its first one waits */
	int			first;			/* its first and last one, by number; or -1 */
	int			last;
	int			first_lingering;	/* whose place lingers, by number; or -1 */
	int			last_lingering;
	int			watcher;		/* who of the queue gives back what lingers for
								 * too long; -1: nobody waits */
	bool		is_watched;		/* it wakes up in time for that */
	uint64		waited;			/* how many were let in after a wait */
	uint64		waited_us;		/* how long they waited together */
	uint64		over_limit;		/* how many were let in above the limit */
	uint64		given_up;		/* how many left the queue by an error */
	uint64		wait_us[WAIT_BUCKETS];	/* histogram of waits that ended */
	uint64		further_turns;	/* how many went in by a place that lingered,
								 * since the server started */
	uint64		admitted_before;	/* what had been let in at the last reset */
	GateKind	kind;			/* keyed gates: under SluiceShared.lock */
	char		name[NAMEDATALEN];
	char		pad[PG_CACHE_LINE_SIZE];	/* apart from the next one */
} Gate;

/*
 * A session's own place in shared memory, by the number of its process.
 *
 * held, is_reserved, client_pid, progress and admitted are written by that session alone,
 * and read by others without a lock. The rest is written by it, and
 * lingers_since, next, previous and is_woken also by others at the same gate,
 * under the gate's lock. A session waits or lingers, never both.
 */
typedef struct Seat
{
	int			held[HELD_MAX]; /* gates passed, or -1 */
	bool		is_reserved[HELD_MAX];	/* by a superuser's place */
	int			client_pid;		/* the process at the other end of a Unix
								 * socket; 0: not known */
	uint64		progress;		/* statements and commands begun */
	int			waits_for;		/* the gate, or -1 */
	TimestampTz since;			/* since when it waits */
	TimestampTz lingers_since;	/* since when its place lingers, or 0 */
	int			next;			/* in the queue, or among those who linger */
	int			previous;
	bool		is_superuser;	/* may take a reserved place */
	bool		is_woken;		/* its latch was set, and it has not looked yet */
	uint64		admitted[GATES];
} Seat;

/* A role or database whose sessions pass without a limit. */
typedef struct ExemptName
{
	GateKind	kind;
	char		name[NAMEDATALEN];
} ExemptName;

typedef struct SluiceShared
{
	LWLock	   *lock;			/* protects kind and name of keyed gates, the
								 * exempt names, the secret, and when all that
								 * was put into force */
	LWLockPadded *gate_locks;	/* one a gate */
	pg_atomic_uint32 generation;	/* of the keyed gates; changes with them */
	int			seats;
	pg_atomic_uint32 keeper;	/* its process, or 0 */
	pg_atomic_uint64 keeper_left;	/* since when it is not there, or when that
									 * was told last */
	TimestampTz published;		/* when the settings that are in force were read */
	int			exempt_count;
	ExemptName	exempt[EXEMPT_MAX];
	char		secret[SECRET_MAX];
	int			secret_length;	/* 0: there is none */
	uint32		secret_version; /* changes with it */
	pg_atomic_uint32 wrong_secrets; /* since the log told of them, */
	pg_atomic_uint64 wrong_told;	/* which was then */
	pg_atomic_uint64 catalog[CATALOG_COUNTS];	/* changes of the catalog */
	Gate		gates[GATES];
	Seat		seat[FLEXIBLE_ARRAY_MEMBER];
} SluiceShared;

extern SluiceShared *sluice_shared;

static inline Seat *
seat_of(int number)
{
	return &sluice_shared->seat[number];
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

/* Whether a gate of a role or database is one, or somebody is there still. */
static inline bool
gate_is_in_use(Gate *gate)
{
	return gate_has_limit(gate) || pg_atomic_read_u32(&gate->running) > 0 ||
		pg_atomic_read_u32(&gate->reserved) > 0 || pg_atomic_read_u32(&gate->waiting) > 0;
}

/* The state of a waiter between two looks at its gate. */
typedef struct Wait
{
	int			number;
	uint32		generation;		/* when it was last looked for an exemption */
	TimestampTz looked;			/* when it last looked for a deadlock, or began */
	int			stalled;		/* looks in a row at which nobody inside went on, and
								 * it was the first in the queue */
	uint64		progress;		/* of those inside, at the last one */
	long		watch_ms;		/* as the watcher: in how many ms a place may
								 * have to be given back, or -1 */
} Wait;

/* shared.c */
extern Size sluice_shared_size(void);
extern void sluice_shared_init(bool found);
extern uint64 gate_admitted(int gate);
extern void gate_reset(int gate);
extern const char *gate_class_name(int class);
extern const char *gate_kind_name(GateKind kind);

/* deadlock.c */
extern bool gate_look_is_due(Wait *wait);
extern bool gate_breaks_deadlock(Wait *wait);

/* gate.c */
extern void gate_enter(GateClass class);
extern void gate_leave(void);
extern void gate_leave_class(void);
extern void gate_note_progress(void);
extern void gate_wake_first(int gate);
extern void gate_wake_next(Gate *gate);
extern void gate_wake_all(void);

/* turns.c */
extern void turns_begin(bool has_waited);
extern bool turns_keep_place(int gate);
extern bool turns_take_up(int gate);
extern void turns_give_back_late(Gate *gate, TimestampTz now);
extern void turns_give_back_all(Gate *gate);
extern long turns_ms_left(const Gate *gate, TimestampTz now);
extern void turns_wake_watcher(Gate *gate);

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
extern int	sluice_gate_turns;
extern double sluice_bigquery_cost;
extern int	sluice_superuser_reserved;
extern char *sluice_pool_secret_file;
extern void sluice_define_settings(void);
extern bool sluice_is_exempt(const char *role, const char *database);
extern int	sluice_list_exempt(ExemptName *names, int max);

/* client_address.c */
extern int	sluice_read_secret(char *secret);

/* session.c */

/* Notes about a utility command, taken before it runs, for after it. */
typedef struct UtilityNote
{
	Size		libraries;		/* of LOAD: what was loaded before, or 0 */
	bool		forgets_sequences;	/* of DISCARD */
} UtilityNote;

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

/* keeper.c */
extern void sluice_register_keeper(void);
extern void sluice_publish_settings(bool is_keeper);
extern void sluice_take_up_reload(void);
extern void sluice_forget_searches(void);

#endif							/* SLUICE_GATE_H */
