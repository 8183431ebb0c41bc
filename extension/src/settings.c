/*
 * settings.c
 *		Configuration parameters of the gate.
 *
 * All may be changed by a reload.  Limits come into force when the controller has
 * read them (controller.c); the rest is read by each session for itself.
 */
#include "postgres.h"

#include <limits.h>

#include "compat.h"
#include "gate.h"
#include "utils/varlena.h"

/* MAX_BACKENDS, the maximum number of sessions of any server. */
#define LIMIT_MAX	0x3FFFF

int			sluice_concurrency[GATE_CLASSES];
const KeyedLimits *sluice_role_limits = NULL;
const KeyedLimits *sluice_database_limits = NULL;
int			sluice_gate_timeout = 0;
int			sluice_transactions_per_admission = 8;
double		sluice_bigquery_cost = 0;
int			sluice_superuser_reserved_slots = 3;
char	   *sluice_pool_secret_file = NULL;

static char *concurrency_text[GATE_CLASSES];
static char *role_limits_text = NULL;
static char *database_limits_text = NULL;
static char *exempt_roles = NULL;
static char *exempt_databases = NULL;

/* Whether this session is exempt, cached. */
static bool exempt_is_known = false;
static bool is_exempt = false;

/* Parses a limit; returns whether the text is one. */
static bool
read_limit(const char *text, int *limit)
{
	char	   *end;
	long		value;

	errno = 0;
	value = strtol(text, &end, 10);
	while (isspace((unsigned char) *end))
		end++;
	if (end == text || *end != '\0' || errno != 0 || value < 0 || value > LIMIT_MAX)
		return false;
	*limit = (int) value;
	return true;
}

static bool
check_concurrency(char **text, void **extra, GucSource source)
{
	int		   *limit = sluice_guc_alloc(sizeof(int));

	if (limit == NULL)
		return false;
	if (pg_strcasecmp(*text, "auto") == 0)
		*limit = LIMIT_AUTO;
	else if (!read_limit(*text, limit))
	{
		sluice_guc_free(limit);
		GUC_check_errdetail("Valid values are numbers from 0 (no limit) to %d, and \"auto\".", LIMIT_MAX);
		return false;
	}
	*extra = limit;
	return true;
}

/* One per class, since an assign hook is not told its variable. */
#define ASSIGN_CONCURRENCY(name, class) \
static void \
name(const char *text, void *extra) \
{ \
	sluice_concurrency[class] = *(int *) extra; \
}

ASSIGN_CONCURRENCY(assign_transaction_concurrency, GATE_TRANSACTION)
ASSIGN_CONCURRENCY(assign_autocommit_concurrency, GATE_AUTOCOMMIT)
ASSIGN_CONCURRENCY(assign_query_concurrency, GATE_QUERY)
ASSIGN_CONCURRENCY(assign_bigquery_concurrency, GATE_BIGQUERY)

/* Limits by name: "reporting=2, batch=4". */
static bool
check_keyed_limits(char **text, void **extra, GucSource source)
{
	char	   *copy = pstrdup(*text);
	List	   *items = NIL;
	ListCell   *cell;
	KeyedLimits *limits;

	/* Names may be quoted; the limit is part of the item. */
	if (!SplitGUCList(copy, ',', &items))
	{
		GUC_check_errdetail("List syntax is invalid.");
		return false;
	}
	if (list_length(items) > KEYED_GATES / 2)
	{
		GUC_check_errdetail("There can be at most %d entries.", KEYED_GATES / 2);
		return false;
	}
	limits = sluice_guc_alloc(offsetof(KeyedLimits, limit) +
							  sizeof(KeyedLimit) * list_length(items));
	if (limits == NULL)
		return false;
	limits->count = 0;
	foreach(cell, items)
	{
		char	   *item = (char *) lfirst(cell);
		char	   *sign = strrchr(item, '=');
		KeyedLimit *limit = &limits->limit[limits->count];

		if (sign == NULL || sign == item || sign - item >= NAMEDATALEN ||
			!read_limit(sign + 1, &limit->limit))
		{
			sluice_guc_free(limits);
			GUC_check_errdetail("\"%s\" is not of the form name=limit.", item);
			return false;
		}
		while (sign > item && isspace((unsigned char) sign[-1]))
			sign--;
		*sign = '\0';
		strlcpy(limit->name, item, NAMEDATALEN);
		limits->count++;
	}
	*extra = limits;
	return true;
}

static void
assign_role_limits(const char *text, void *extra)
{
	sluice_role_limits = extra;
}

static void
assign_database_limits(const char *text, void *extra)
{
	sluice_database_limits = extra;
}

static bool
check_names(char **text, void **extra, GucSource source)
{
	List	   *names = NIL;

	if (SplitIdentifierString(pstrdup(*text), ',', &names))
		return true;
	GUC_check_errdetail("List syntax is invalid.");
	return false;
}

static void
assign_names(const char *text, void *extra)
{
	exempt_is_known = false;
}

static bool
is_among(const char *name, const char *list)
{
	char	   *copy = pstrdup(list);
	List	   *names = NIL;
	ListCell   *cell;
	bool		found = false;

	if (SplitIdentifierString(copy, ',', &names))
	{
		foreach(cell, names)
			found |= strcmp((const char *) lfirst(cell), name) == 0;
	}
	list_free(names);
	pfree(copy);
	return found;
}

/* Whether sessions of this role or database are exempt from all limits. */
bool
sluice_is_exempt(const char *role, const char *database)
{
	if (!exempt_is_known)
	{
		is_exempt = is_among(role, exempt_roles) || is_among(database, exempt_databases);
		exempt_is_known = true;
	}
	return is_exempt;
}

static int
list_names(GateKind kind, const char *list, ExemptName *names, int count, int max)
{
	char	   *copy = pstrdup(list);
	List	   *items = NIL;
	ListCell   *cell;

	if (SplitIdentifierString(copy, ',', &items))
	{
		foreach(cell, items)
		{
			if (count == max)
				break;
			names[count].kind = kind;
			strlcpy(names[count].name, (const char *) lfirst(cell), NAMEDATALEN);
			count++;
		}
	}
	list_free(items);
	pfree(copy);
	return count;
}

/* Copies the exempt roles and databases, at most max of them; returns their number. */
int
sluice_list_exempt(ExemptName *names, int max)
{
	int			count = list_names(KIND_ROLE, exempt_roles, names, 0, max);

	return list_names(KIND_DATABASE, exempt_databases, names, count, max);
}

static void
define_concurrency(GateClass class, const char *name, const char *what,
				   const char *boot, GucStringAssignHook assign)
{
	DefineCustomStringVariable(name, what,
							   "A number, 0 for no limit, or \"auto\".",
							   &concurrency_text[class], boot, PGC_SIGHUP, 0,
							   check_concurrency, assign, NULL);
}

void
sluice_define_settings(void)
{
	define_concurrency(GATE_TRANSACTION, "sluice.transaction_concurrency",
					   "Maximum number of concurrent transaction blocks; others wait at BEGIN.",
					   "auto", assign_transaction_concurrency);
	define_concurrency(GATE_AUTOCOMMIT, "sluice.autocommit_concurrency",
					   "Maximum number of concurrent single statements that write.",
					   "auto", assign_autocommit_concurrency);
	define_concurrency(GATE_QUERY, "sluice.query_concurrency",
					   "Maximum number of concurrent single statements that only read.",
					   "auto", assign_query_concurrency);
	define_concurrency(GATE_BIGQUERY, "sluice.bigquery_concurrency",
					   "Maximum number of concurrent single statements of at least \"sluice.bigquery_cost\".",
					   "0", assign_bigquery_concurrency);
	DefineCustomRealVariable("sluice.bigquery_cost",
							 "Planned cost from which a single statement belongs to the bigquery class.",
							 "In units of planner cost, as shown by EXPLAIN; 0 disables the class.",
							 &sluice_bigquery_cost, 0, 0, 1e300, PGC_SUSET, 0,
							 NULL, NULL, NULL);
	DefineCustomStringVariable("sluice.role_concurrency",
							   "Maximum number of concurrent transactions per role.",
							   "For example: reporting=2, batch=4. The limits of classes apply as well.",
							   &role_limits_text, "", PGC_SIGHUP, GUC_LIST_INPUT,
							   check_keyed_limits, assign_role_limits, NULL);
	DefineCustomStringVariable("sluice.database_concurrency",
							   "Maximum number of concurrent transactions per database.",
							   "For example: archive=2, shop=16. The limits of classes apply as well.",
							   &database_limits_text, "", PGC_SIGHUP, GUC_LIST_INPUT,
							   check_keyed_limits, assign_database_limits, NULL);
	DefineCustomStringVariable("sluice.exempt_roles",
							   "Roles whose sessions are exempt from all limits.",
							   "The name with which a session has authenticated counts.",
							   &exempt_roles, "", PGC_SIGHUP, GUC_LIST_INPUT,
							   check_names, assign_names, NULL);
	DefineCustomStringVariable("sluice.exempt_databases",
							   "Databases whose sessions are exempt from all limits.",
							   NULL,
							   &exempt_databases, "", PGC_SIGHUP, GUC_LIST_INPUT,
							   check_names, assign_names, NULL);
	DefineCustomIntVariable("sluice.gate_timeout",
							"Maximum time that a transaction waits for admission; 0 disables the timeout.",
							"After that it fails with SQLSTATE 53S01.",
							&sluice_gate_timeout, 0, 0, INT_MAX, PGC_USERSET,
							GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("sluice.transactions_per_admission",
							"Maximum number of consecutive transactions per admission while others wait.",
							"With 1, each transaction has to queue.",
							&sluice_transactions_per_admission, 8, 1, 1000, PGC_SIGHUP, 0,
							NULL, NULL, NULL);
	DefineCustomIntVariable("sluice.superuser_reserved_slots",
							"Number of slots above each limit that are reserved for superusers.",
							NULL,
							&sluice_superuser_reserved_slots, 3, 0, LIMIT_MAX, PGC_SIGHUP, 0,
							NULL, NULL, NULL);
	DefineCustomStringVariable("sluice.pool_secret_file",
							   "File with the secret by which a connection pool authenticates itself when it reports its client's address.",
							   "If empty, no pool may report addresses.",
							   &sluice_pool_secret_file, "", PGC_SIGHUP, GUC_SUPERUSER_ONLY,
							   NULL, NULL, NULL);
	session_define_setting();
	catalog_define_setting();
	configuration_define_setting();
	outcome_define_settings();
	commits_define_settings();
	durability_define_settings();
	MarkGUCPrefixReserved("sluice");
}
