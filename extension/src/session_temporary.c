/*
 * session_temporary.c
 *		The objects of a session's temporary schema.
 *
 * They can't be looked up when the report is made, outside of any transaction.
 * So they are at commit, before those that go with the transaction are dropped,
 * which is seen.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/indexing.h"
#include "catalog/namespace.h"
#include "catalog/pg_depend.h"
#include "catalog/pg_namespace.h"
#include "session.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/* Whether the temporary schema has objects, as of the last commit. */
static bool has_temporary = false;

/*
 * Objects of the temporary schema at commit, of which those that go with the
 * transaction (ON COMMIT DROP) are about to be dropped.
 */
typedef struct TemporaryObject
{
	Oid			class;
	Oid			object;
} TemporaryObject;

static TemporaryObject *temporary_objects = NULL;
static int	temporary_count = -1;	/* -1: not looked up in this transaction */

/*
 * Looks up the objects of the temporary schema. Each of them depends on it, by
 * which PostgreSQL itself drops them at the session's end.
 */
void
session_look_up_temporary(void)
{
	Oid			schema;
	Oid			toast_schema;
	Relation	depend;
	ScanKeyData key[2];
	SysScanDesc scan;
	HeapTuple	tuple;
	int			room = 16;

	temporary_count = 0;
	GetTempNamespaceState(&schema, &toast_schema);
	if (!OidIsValid(schema))
		return;
	temporary_objects = MemoryContextAlloc(TopTransactionContext, room * sizeof(TemporaryObject));
	/* Makes the last command's changes visible. */
	CommandCounterIncrement();
	depend = table_open(DependRelationId, AccessShareLock);
	ScanKeyInit(&key[0], Anum_pg_depend_refclassid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(NamespaceRelationId));
	ScanKeyInit(&key[1], Anum_pg_depend_refobjid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(schema));
	scan = systable_beginscan(depend, DependReferenceIndexId, true, NULL, 2, key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_depend row = (Form_pg_depend) GETSTRUCT(tuple);

		if (temporary_count == room)
		{
			room *= 2;
			temporary_objects = repalloc(temporary_objects, room * sizeof(TemporaryObject));
		}
		temporary_objects[temporary_count].class = row->classid;
		temporary_objects[temporary_count].object = row->objid;
		temporary_count++;
	}
	systable_endscan(scan);
	table_close(depend, AccessShareLock);
}

/* An object is dropped after they were looked up: by the end of the transaction. */
void
session_forget_temporary(Oid class, Oid object)
{
	for (int i = 0; i < temporary_count; i++)
	{
		if (temporary_objects[i].object == object && temporary_objects[i].class == class)
			temporary_objects[i--] = temporary_objects[--temporary_count];
	}
}

/* The transaction has ended, and what was looked up in it is true if it has committed. */
void
session_end_temporary(bool is_commit)
{
	if (is_commit && temporary_count >= 0 && has_temporary != (temporary_count > 0))
	{
		has_temporary = temporary_count > 0;
		session_notes.may_have_changed = true;
	}
	temporary_objects = NULL;
	temporary_count = -1;
}

bool
session_has_temporary(void)
{
	return has_temporary;
}
