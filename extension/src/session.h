/*
 * session.h
 *		What the parts of session.c know of each other.
 *
 * session_commands.c and session_functions.c see what is done that may leave
 * something behind, and note it.  session_names.c, session_temporary.c and
 * session_settings.c look up what is there of it.  session.c says when, and puts
 * the report together.
 */
#ifndef SLUICE_SESSION_H
#define SLUICE_SESSION_H

#include "lib/stringinfo.h"

/*
 * Bytes that settings may take in a report.  libpq ends a connection by which it
 * is sent a ParameterStatus of more than 30,000 bytes, and the rest of the report
 * has to fit in as well.
 */
#define SESSION_SETTINGS_MAX	29000
#define SESSION_REPORT_MAX		(SESSION_SETTINGS_MAX + 900)

/* What of the settings a report tells. */
typedef enum SessionSettings
{
	SETTINGS_WHOLE,
	SETTINGS_SHORTENED,			/* long values of custom ones as empty ones */
	SETTINGS_LEFT_OUT
} SessionSettings;

/* Notes about this session. */
typedef struct SessionNotes
{
	/* Of this transaction: whether it used a sequence, */
	bool		used_sequence;
	/* did anything else that can change the report, */
	bool		may_have_changed;
	/* called set_config(), */
	bool		called_set_config;
	/* created, changed or dropped any object, */
	bool		changed_objects;
	/* called the session's first function that is not one of PostgreSQL's own. */
	bool		called_first_function;

	/* Events whose traces can't be looked up: noted at once, some for good. */
	bool		has_sequence;
	bool		has_seed;
	bool		has_library;
	bool		has_kept;
	bool		has_called_function;

	/* Whether there may be any, so that it has to be looked up. */
	bool		may_listen;
	bool		may_lock;

	/* DEALLOCATEs of statements that the protocol has prepared, or of all. */
	uint32		deallocations;
} SessionNotes;

extern SessionNotes session_notes;

/* session_functions.c */
extern void session_watch_functions(void);
extern void session_note_kept(void);
extern bool session_language_keeps(const char *language);
extern void session_define_languages(void);

/* session_names.c */
extern void session_note_prepared(const char *name);
extern void session_note_cursor(const char *name);
extern void session_look_up_names(bool is_inside);
extern bool session_has_prepared(void);
extern bool session_has_cursor(void);
extern bool session_any_name_is_gone(void);

/* session_temporary.c */
extern void session_look_up_temporary(void);
extern void session_forget_temporary(Oid class, Oid object);
extern void session_end_temporary(bool is_commit);
extern bool session_has_temporary(void);

/* session_settings.c */
extern void session_note_custom(const char *name);
extern void session_note_customs(void);
extern SessionSettings session_append_settings(StringInfo report);

#endif							/* SLUICE_SESSION_H */
