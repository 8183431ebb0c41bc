/*
 * session.c
 *		What a session holds that it did not hold at its start, told to its client.
 *
 * A pool may hand a session to another client only while it holds nothing of the
 * one before.  To know that from statements a pool would have to understand all
 * of SQL, and functions besides.  The server knows: the setting "sluice.session"
 * says it, and is one of those whose changes are sent to the client before
 * ReadyForQuery (ParameterStatus).  docs/session-report.md has the format.
 *
 * PostgreSQL asks for the value when it is about to send it, after the
 * transaction has ended with all that belongs to its end; so nothing has to be
 * foreseen.  It asks when the setting is flagged, which is done at the end of a
 * transaction in which something was done that can change the value.  Hooks see
 * that: on utility commands, on the start of an executor, and on access to
 * objects, by which functions are seen before they run.  A transaction that did
 * nothing of the kind pays for a few branches.
 *
 * State is looked up where the session keeps it, outside of any transaction, and
 * so without a look into the catalog.  State that can't be looked up there is
 * found out before (temporary objects, at commit), or noted for good (that a
 * sequence was used, and others).
 */
#include "postgres.h"

#include "access/xact.h"
#include "compat.h"
#include "executor/executor.h"
#include "gate.h"
#include "replication/walsender.h"
#include "session.h"
#include "utils/fmgroids.h"

#define SESSION_SETTING "sluice.session"

SessionNotes session_notes;

/* The setting's variable, for guc.c; its value is never looked at. */
static char *session_text = NULL;

/* Whether the value was last asked for while a transaction was under way. */
static bool was_asked_inside = false;

/* Whether this process has a client whom it can tell. */
bool
sluice_has_client(void)
{
	return sluice_shared != NULL && MyBackendType == B_BACKEND && !am_walsender;
}

/* Defines a setting that nobody sets, and that is reported; its variable is never looked at. */
void
sluice_define_reported(const char *setting, const char *description, char **text, GucShowHook show)
{
	DefineCustomStringVariable(setting, description, NULL, text, "", PGC_INTERNAL,
							   GUC_REPORT | GUC_NO_SHOW_ALL | GUC_NOT_IN_SAMPLE | GUC_DISALLOW_IN_FILE,
							   NULL, NULL, show);
}

/*
 * Has a setting reported before the next ReadyForQuery, if its value differs by
 * then. The source is one that is not undone with a transaction, and needs no
 * memory of it, so that this may be called at its end.
 */
void
sluice_flag_for_report(const char *setting)
{
	(void) set_config_option(setting, "", PGC_INTERNAL, PGC_S_OVERRIDE,
							 GUC_ACTION_SET, true, LOG, false);
}

/* Whether the session listens. PostgreSQL tells only by a function for SQL. */
static bool
listens(void)
{
	LOCAL_FCINFO(call, 0);
	FmgrInfo	function;
	ReturnSetInfo result = {.type = T_ReturnSetInfo};

	fmgr_info(F_PG_LISTENING_CHANNELS, &function);
	result.econtext = CreateStandaloneExprContext();
	result.allowedModes = SFRM_ValuePerCall;
	result.returnMode = SFRM_ValuePerCall;
	InitFunctionCallInfoData(*call, &function, 0, InvalidOid, NULL, (Node *) &result);
	(void) FunctionCallInvoke(call);
	FreeExprContext(result.econtext, true);
	return result.isDone == ExprMultipleResult;
}

static bool
is_advisory(const PROCLOCK *held)
{
	return held->tag.myLock->tag.locktag_type == LOCKTAG_ADVISORY && held->holdMask != 0;
}

/* Notes a seed that set_config() sowed by "seed": what it has set is not known. */
static void
look_for_seed(void)
{
	static struct config_generic *seed = NULL;

	if (seed == NULL)
		seed = sluice_find_setting("seed");
	if (seed != NULL && seed->source == PGC_S_SESSION)
		session_notes.has_seed = true;
}

static void
at_end_of_subtransaction(SubXactEvent event, SubTransactionId mine, SubTransactionId parent, void *arg)
{
	if (event != SUBXACT_EVENT_ABORT_SUB)
		return;
	if (session_notes.called_set_config)
		look_for_seed();
}

void
session_at_end(XactEvent event)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PRE_PREPARE:
			/* Anything that may fail for want of memory must fail before the commit. */
			if (session_notes.called_set_config)
				session_note_customs();
			if (event == XACT_EVENT_PRE_COMMIT && session_notes.changed_objects && sluice_has_client())
				session_look_up_temporary();
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			session_end_temporary(event == XACT_EVENT_COMMIT);
			if (session_notes.called_set_config)
			{
				look_for_seed();
				if (event == XACT_EVENT_ABORT)
					session_note_customs();
			}
			if ((session_notes.may_have_changed || session_notes.used_sequence ||
				 session_notes.called_first_function || was_asked_inside || session_any_name_is_gone()) &&
				sluice_has_client())
				sluice_flag_for_report(SESSION_SETTING);
			was_asked_inside = session_notes.called_first_function = false;
			session_notes.may_have_changed = session_notes.changed_objects = false;
			session_notes.called_set_config = session_notes.used_sequence = false;
			break;
		default:
			break;
	}
}

static void
append_pin(StringInfo report, const char *pin, bool holds)
{
	if (holds)
		appendStringInfo(report, "%s%s", report->len == 0 ? "pins=" : ",", pin);
}

/*
 * The report, as the value of the setting.  An error here would come back each
 * time that the session is to say that it is ready, and nothing could end it any
 * more: what is built has its limits, and its memory.
 */
static const char *
show_session(void)
{
	static char text[SESSION_REPORT_MAX];
	static char settings_text[SESSION_SETTINGS_MAX + 1];
	StringInfoData report = {.data = text, .maxlen = sizeof(text)};
	StringInfoData settings = {.data = settings_text, .maxlen = sizeof(settings_text)};
	SessionSettings told;

	/*
	 * A transaction that has failed has left all behind, and its ROLLBACK is
	 * not heard of; unless only a part of it has failed.
	 */
	was_asked_inside = IsTransactionState() || GetCurrentTransactionNestLevel() > 1;
	session_look_up_names(was_asked_inside);
	session_notes.may_listen = session_notes.may_listen && (was_asked_inside | listens());
	/* A lock of a transaction is gone by its end. */
	if (session_notes.may_lock && !sluice_any_lock(is_advisory) && !was_asked_inside)
		session_notes.may_lock = false;

	resetStringInfo(&report);
	resetStringInfo(&settings);
	told = session_append_settings(&settings);
	append_pin(&report, "temp", session_has_temporary());
	append_pin(&report, "lock", session_notes.may_lock);
	append_pin(&report, "listen", session_notes.may_listen);
	append_pin(&report, "cursor", session_has_cursor());
	append_pin(&report, "prepare", session_has_prepared());
	append_pin(&report, "sequence", session_notes.has_sequence);
	append_pin(&report, "seed", session_notes.has_seed);
	append_pin(&report, "load", session_notes.has_library || told == SETTINGS_SHORTENED);
	append_pin(&report, "state", session_notes.has_kept);
	append_pin(&report, "settings", told == SETTINGS_LEFT_OUT);
	if (report.len > 0 && settings.len > 0)
		appendStringInfoCharMacro(&report, ' ');
	appendBinaryStringInfo(&report, settings.data, settings.len);
	if (session_notes.deallocations > 0)
		appendStringInfo(&report, "%sdeallocated=%u", report.len > 0 ? " " : "",
						 session_notes.deallocations);
	if (session_notes.has_called_function)
		appendStringInfo(&report, "%sran=functions", report.len > 0 ? " " : "");
	return report.data;
}

void
session_define_setting(void)
{
	session_define_languages();
	sluice_define_reported(SESSION_SETTING, "What this session holds that it did not hold at its start.",
						   &session_text, show_session);
}

void
session_init(void)
{
	session_watch_functions();
	/* Each session is spared the cost of finding them. */
	list_free(sluice_changed_settings());
	RegisterSubXactCallback(at_end_of_subtransaction, NULL);
}
