/*
 * configuration.c
 *		A mark of the configuration, for a pool.
 *
 * A reload changes what statements mean (DateStyle, transform_null_equals), and what
 * a session begins with.  PostgreSQL reports the new values of some settings, each
 * session for itself, with its next command.  The setting "sluice.configuration"
 * changes with each reload that changes what sessions may set themselves, and is
 * reported to the client as "sluice.session" is.  The controller looks for that: a
 * session that comes to the reload before it tells of it with its next transaction.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "compat.h"
#include "gate.h"
#include "utils/guc_tables.h"
#include "utils/timestamp.h"

#define CONFIGURATION_SETTING "sluice.configuration"

/* The setting's variable, for guc.c; its value is never looked at. */
static char *configuration_text = NULL;

/* The count when the setting was last flagged. */
static uint32 flagged_at = 0;

static uint64
hash_bytes_of(const void *bytes, size_t length)
{
	return hash_bytes_extended(bytes, (int) length, 0);
}

static uint64
hash_value(struct config_generic *setting)
{
	switch (setting->vartype)
	{
		case PGC_BOOL:
			return *((struct config_bool *) setting)->variable;
		case PGC_INT:
			return (uint64) *((struct config_int *) setting)->variable;
		case PGC_REAL:
			return hash_bytes_of(((struct config_real *) setting)->variable, sizeof(double));
		case PGC_STRING:
			{
				const char *text = *((struct config_string *) setting)->variable;

				return text == NULL ? 0 : hash_bytes_of(text, strlen(text));
			}
		case PGC_ENUM:
			return (uint64) *((struct config_enum *) setting)->variable;
	}
	return 0;
}

/* Of what sessions begin with, where they may set it. */
static uint64
hash_settings(void)
{
	int			count;
	struct config_generic **settings = sluice_settings(&count);
	uint64		hash = 0;

	for (int i = 0; i < count; i++)
	{
		if (settings[i]->context == PGC_USERSET || settings[i]->context == PGC_SUSET)
			hash = hash_combine64(hash, hash_value(settings[i]));
	}
	pfree(settings);
	return hash;
}

/*
 * The configuration has been read: by the controller, or where there is none, by a
 * session, whose own settings say nothing.
 */
void
configuration_was_read(bool is_controller)
{
	static uint64 known = 0;
	uint64		hash = is_controller ? hash_settings() : 0;

	if (is_controller && hash == known)
		return;
	known = hash;
	pg_atomic_fetch_add_u32(&sluice_shared->configuration, 1);
}

/* A transaction has ended. */
void
configuration_at_end(XactEvent event)
{
	uint32		now;

	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT && event != XACT_EVENT_PREPARE)
		return;
	if (!sluice_has_client())
		return;
	now = pg_atomic_read_u32(&sluice_shared->configuration);
	if (now == flagged_at)
		return;
	flagged_at = now;
	sluice_flag_for_report(CONFIGURATION_SETTING);
}

/* With the server's start: another server behind the same address has counted otherwise. */
static const char *
show_configuration(void)
{
	static char text[64];

	if (sluice_shared == NULL)
		return "";
	snprintf(text, sizeof(text), INT64_FORMAT ".%u", (int64) PgStartTime,
			 pg_atomic_read_u32(&sluice_shared->configuration));
	return text;
}

void
configuration_define_setting(void)
{
	sluice_define_reported(CONFIGURATION_SETTING, "A mark of the configuration, which changes with what sessions may set.",
						   &configuration_text, show_configuration);
}
