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

/* Bytes of a value that is told in any case. */
#define SHORT_VALUE_MAX	64

/*
 * Names of custom settings that may have been made, in guc.c's order. RESET and
 * the end of a transaction leave them there without a value, to the session's end.
 */
static List *custom_names = NIL;

/* The bytes that they would take in a report. */
static Size custom_names_size = 0;

/* Whether they have become too many for any report, which they stay. */
static bool has_lost_names = false;

/* The bytes that a name or a value takes in a report, with what comes behind it. */
static Size
size_in_report(const char *text)
{
	return 2 * strlen(text) + 1;
}

/* The place of a name among those that are noted. */
static int
place_of(const char *name, bool *is_there)
{
	int			low = 0;
	int			high = list_length(custom_names);

	*is_there = false;
	while (low < high && !*is_there)
	{
		int			middle = (low + high) / 2;
		int			order = sluice_compare_settings(name, list_nth(custom_names, middle));

		if (order > 0)
			low = middle + 1;
		else
			high = middle;
		*is_there = order == 0;
	}
	return high;
}

/* Notes the name of a custom setting that is made, or about to be. */
void
session_note_custom(const char *name)
{
	bool		is_there;
	int			place;
	MemoryContext before;

	if (has_lost_names)
		return;
	place = place_of(name, &is_there);
	if (is_there)
	{
		/* What was to make it before may have failed. */
		session_notes.may_have_changed |= sluice_find_setting(name) == NULL;
		return;
	}
	session_notes.may_have_changed = true;
	custom_names_size += size_in_report(name);
	if (custom_names_size > SESSION_SETTINGS_MAX)
	{
		has_lost_names = true;
		list_free_deep(custom_names);
		custom_names = NIL;
		return;
	}
	before = MemoryContextSwitchTo(TopMemoryContext);
	custom_names = list_insert_nth(custom_names, place, pstrdup(name));
	MemoryContextSwitchTo(before);
}

/*
 * Notes all custom settings that there are. set_config() makes one also where it
 * sets it to NULL, and is not seen to do so.
 */
void
session_note_customs(void)
{
	List	   *placeholders;
	ListCell   *cell;

	if (has_lost_names)
		return;
	placeholders = sluice_placeholders();
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

/*
 * The value that is told of a setting. Of a custom one, by which no statement is
 * parsed, a long value may be told as an empty one.
 */
static const char *
told_text(struct config_generic *setting, bool shortens)
{
	const char *text = setting_text(setting);

	if (shortens && strchr(setting->name, GUC_QUALIFIER_SEPARATOR) && strlen(text) > SHORT_VALUE_MAX)
		return "";
	return text;
}

/*
 * The settings that the session has set, and the bytes that they take in a report
 * are added to those, and to those with long values told as empty ones.
 */
static List *
set_settings(Size *size, Size *short_size)
{
	List	   *changed = sluice_changed_settings();
	List	   *settings = NIL;
	ListCell   *cell;

	foreach(cell, changed)
	{
		struct config_generic *setting = lfirst(cell);

		if (!is_set(setting))
			continue;
		*size += size_in_report(setting->name) + size_in_report(told_text(setting, false));
		*short_size += size_in_report(setting->name) + size_in_report(told_text(setting, true));
		settings = lappend(settings, setting);
	}
	list_free(changed);
	return settings;
}

/* The same of the custom ones that are there without a value of the session's. */
static List *
bare_settings(Size *size)
{
	List	   *settings = NIL;
	ListCell   *cell;

	foreach(cell, custom_names)
	{
		struct config_generic *setting = sluice_find_setting(lfirst(cell));

		if (setting == NULL || (setting->flags & GUC_CUSTOM_PLACEHOLDER) == 0 || is_set(setting))
			continue;
		*size += size_in_report(setting->name);
		settings = lappend(settings, setting);
	}
	return settings;
}

/*
 * Appends the settings that were set ("set="), and the custom ones without a value
 * ("made="): whole, with long values as empty ones, or nothing, whatever takes no
 * more than SESSION_SETTINGS_MAX.
 */
SessionSettings
session_append_settings(StringInfo report)
{
	Size		bare_size = strlen("set=") + strlen(" made=");
	Size		size = 0;
	Size		short_size = 0;
	List	   *set;
	List	   *bare;
	SessionSettings told;

	if (has_lost_names)
		return SETTINGS_LEFT_OUT;
	set = set_settings(&size, &short_size);
	bare = bare_settings(&bare_size);
	told = bare_size + size <= SESSION_SETTINGS_MAX ? SETTINGS_WHOLE :
		bare_size + short_size <= SESSION_SETTINGS_MAX ? SETTINGS_SHORTENED : SETTINGS_LEFT_OUT;
	if (told != SETTINGS_LEFT_OUT)
	{
		const char *before = "set=";
		ListCell   *cell;

		list_sort(set, compare_names);
		foreach(cell, set)
		{
			struct config_generic *setting = lfirst(cell);

			appendStringInfoString(report, before);
			append_hex(report, setting->name);
			appendStringInfoCharMacro(report, ':');
			append_hex(report, told_text(setting, told == SETTINGS_SHORTENED));
			before = ",";
		}
		before = set == NIL ? "made=" : " made=";
		foreach(cell, bare)
		{
			appendStringInfoString(report, before);
			append_hex(report, ((struct config_generic *) lfirst(cell))->name);
			before = ",";
		}
	}
	list_free(set);
	list_free(bare);
	return told;
}
