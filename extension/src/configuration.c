/*
 * configuration.c
 *		A count of the configuration's reloads, for a pool.
 *
 * A reload changes what statements mean (DateStyle, transform_null_equals), and what
 * a session begins with.  PostgreSQL reports the new values of some settings, each
 * session for itself, with its next command.  The setting "sluice.configuration" is
 * a number that changes with each reload, and is reported to the client as
 * "sluice.session" is.  It is the controller's: a session that comes to the reload
 * before that process tells of it with its next transaction.
 */
#include "postgres.h"

#include "compat.h"
#include "gate.h"
#include "replication/walsender.h"

#define CONFIGURATION_SETTING "sluice.configuration"

/* The setting's variable, for guc.c; its value is never looked at. */
static char *configuration_text = NULL;

/* The count when the setting was last flagged. */
static uint32 flagged_at = 0;

/* A transaction has ended. */
void
configuration_at_end(XactEvent event)
{
	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT && event != XACT_EVENT_PREPARE)
		return;
	if (sluice_shared == NULL || MyBackendType != B_BACKEND || am_walsender)
		return;
	if (flagged_at == pg_atomic_read_u32(&sluice_shared->generation))
		return;
	flagged_at = pg_atomic_read_u32(&sluice_shared->generation);
	sluice_flag_for_report(CONFIGURATION_SETTING);
}

static const char *
show_configuration(void)
{
	static char text[32];

	if (sluice_shared == NULL)
		return "0";
	snprintf(text, sizeof(text), "%u", pg_atomic_read_u32(&sluice_shared->generation));
	return text;
}

void
configuration_define_setting(void)
{
	DefineCustomStringVariable(CONFIGURATION_SETTING,
							   "How often the configuration has been read.",
							   NULL, &configuration_text, "", PGC_INTERNAL,
							   GUC_REPORT | GUC_NO_SHOW_ALL | GUC_NOT_IN_SAMPLE | GUC_DISALLOW_IN_FILE,
							   NULL, NULL, show_configuration);
}
