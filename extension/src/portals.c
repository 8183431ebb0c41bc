/*
 * portals.c
 *		Portals that outlive their statements.
 *
 * The text and the statements of a Query are kept where its message is, and end with
 * that.  When it fails in a transaction block, its portal stays until the block has
 * ended, by the name "", with pointers to them.  A client that then sends Execute for
 * the unnamed portal has the server look at what is there now: it crashes, with all
 * sessions, if that memory has been given back, as it is behind a text of some hundred
 * kilobytes (seen in PostgreSQL 15.20 and 18.4 without this extension).  A server that
 * many share must not be ended by one of them.
 *
 * Such a portal can't be run.  Here it has neither from its failure on, so that
 * Execute gets the error that it should: the transaction is aborted.  One that has not
 * failed goes on: a subtransaction's end is caught by PL/pgSQL, and a procedure may roll
 * back, within a Query of which more statements follow.
 */
#include "postgres.h"

#include "access/xact.h"
#include "gate.h"
#include "tcop/pquery.h"
#include "utils/portal.h"

/* Those of a prepared statement are the portal's own, or the plan cache's. */
static void
forget_statements(Portal portal)
{
	if (portal->cplan == NULL)
	{
		portal->stmts = NIL;
		portal->sourceText = "";
	}
}

static void
forget_if_failed(void)
{
	Portal		portal = GetPortalByName("");

	if (PortalIsValid(portal) && portal->status == PORTAL_FAILED)
		forget_statements(portal);
}

/* What is running fails in a block that had failed before: no transaction ends with that. */
void
portals_fail_again(void)
{
	if (ActivePortal != NULL && ActivePortal->name[0] == '\0')
		forget_statements(ActivePortal);
}

void
portals_at_end(XactEvent event)
{
	if (event == XACT_EVENT_ABORT)
		forget_if_failed();
}

static void
at_subabort(SubXactEvent event, SubTransactionId own, SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_ABORT_SUB)
		forget_if_failed();
}

void
portals_init(void)
{
	RegisterSubXactCallback(at_subabort, NULL);
}
