/*
 * session_settings.c
 *		The settings that a session holds: those that it has set, and the custom
 *		ones that it has made.
 *
 * PostgreSQL itself knows which settings the session has set.  What it does not
 * tell is the names of custom settings that are there without a value: those are
 * noted when they are given one.
 */
#include "postgres.h"

#include "common/shortest_dec.h"
#include "compat.h"
#include "session.h"
#include "utils/memutils.h"

/*
 * Bytes that settings may have together before the pin of a library stands for
 * them: what is reported has to fit into memory, and into the pool's.
 */
#define VALUES_MAX	(1024 * 1024)

/*
 * Names of custom settings that may have been made. RESET and the end of a
 * transaction leave them there without a value, to the session's end.
 */
static List *custom_names = NIL;

/* Notes the name of a custom setting that is made, or about to be. */
void
session_note_custom(const char *name)
{
	ListCell   *cell;
	MemoryContext before;

	foreach(cell, custom_names)
	{
		if (pg_strcasecmp(lfirst(cell), name) == 0)
		{
			/* What was to make it before may have failed. */
			session_notes.may_have_changed |= sluice_find_setting(name) == NULL;
			return;
		}
	}
	before = MemoryContextSwitchTo(TopMemoryContext);
	custom_names = lappend(custom_names, pstrdup(name));
	MemoryContextSwitchTo(before);
	session_notes.may_have_changed = true;
}

/*
 * Notes all custom settings that there are. set_config() makes one also where it
 * sets it to NULL, and is not seen to do so.
 */
void
session_note_customs(void)
{
	List	   *placeholders = sluice_placeholders();
	ListCell   *cell;

	foreach(cell, placeholders)
		session_note_custom(((struct config_generic *) lfirst(cell))->name);
	list_free(placeholders);
}

static void
append_hex(StringInfo report, const char *bytes)
{
	static const char digits[] = "0123456789abcdef";

	for (; *bytes != '\0'; bytes++)
	{
		appendStringInfoCharMacro(report, digits[(unsigned char) *bytes >> 4]);
		appendStringInfoCharMacro(report, digits[(unsigned char) *bytes & 0xF]);
	}
}

/* Whether a setting is one that the session has set and another may be given. */
static bool
is_set(const struct config_generic *setting)
{
	static const char *const left_out[] = {
		"transaction_isolation", "transaction_read_only", "transaction_deferrable", "seed"
	};

	if (setting->source != PGC_S_SESSION || setting->context == PGC_INTERNAL)
		return false;
	for (int i = 0; i < lengthof(left_out); i++)
	{
		if (strcmp(setting->name, left_out[i]) == 0)
			return false;
	}
	return true;
}

/* The value of a setting, as set_config() takes it to bring exactly it about. */
static const char *
setting_text(struct config_generic *setting)
{
	static char buffer[64];

	switch (setting->vartype)
	{
		case PGC_BOOL:
			{
				struct config_bool *conf = (struct config_bool *) setting;

				return *conf->variable ? "on" : "off";
			}
		case PGC_INT:
			{
				struct config_int *conf = (struct config_int *) setting;

				snprintf(buffer, sizeof(buffer), "%d", *conf->variable);
				return buffer;
			}
		case PGC_REAL:
			{
				struct config_real *conf = (struct config_real *) setting;

				double_to_shortest_decimal_buf(*conf->variable, buffer);
				return buffer;
			}
		case PGC_ENUM:
			{
				struct config_enum *conf = (struct config_enum *) setting;

				return config_enum_lookup_by_value(conf, *conf->variable);
			}
		case PGC_STRING:
			{
				struct config_string *conf = (struct config_string *) setting;
				const char *text = *conf->variable;

				/* A role that SET SESSION AUTHORIZATION has put out of force. */
				if (strcmp(setting->name, "role") == 0)
					text = conf->show_hook();
				return text ? text : "";
			}
	}
	return "";
}

static int
compare_names(const ListCell *a, const ListCell *b)
{
	return strcmp(((const struct config_generic *) lfirst(a))->name,
				  ((const struct config_generic *) lfirst(b))->name);
}

/* Appends the settings that were set: "set=", or nothing. False if too much. */
bool
session_append_settings(StringInfo report)
{
	List	   *changed = sluice_changed_settings();
	List	   *settings = NIL;
	ListCell   *cell;
	Size		size = 0;

	foreach(cell, changed)
	{
		struct config_generic *setting = lfirst(cell);

		if (is_set(setting))
		{
			size += strlen(setting->name) + strlen(setting_text(setting));
			settings = lappend(settings, setting);
		}
	}
	list_free(changed);
	if (size > VALUES_MAX)
		return false;
	list_sort(settings, compare_names);
	foreach(cell, settings)
	{
		struct config_generic *setting = lfirst(cell);

		appendStringInfoString(report, report->len == 0 ? "set=" : ",");
		append_hex(report, setting->name);
		appendStringInfoCharMacro(report, ':');
		append_hex(report, setting_text(setting));
	}
	list_free(settings);
	return true;
}

/* Custom settings that are there without a value of the session's: "made=", or nothing. */
void
session_append_made(StringInfo report)
{
	const char *before = "made=";
	ListCell   *cell;

	foreach(cell, custom_names)
	{
		const char *name = lfirst(cell);
		struct config_generic *setting = sluice_find_setting(name);

		if (setting == NULL || (setting->flags & GUC_CUSTOM_PLACEHOLDER) == 0 || is_set(setting))
			continue;
		if (report->len > 0 && *before == 'm')
			appendStringInfoCharMacro(report, ' ');
		appendStringInfoString(report, before);
		append_hex(report, setting->name);
		before = ",";
	}
}
