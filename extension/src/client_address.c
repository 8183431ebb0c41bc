/*
 * client_address.c
 *		Address of the client on whose behalf a connection pool works.
 *
 * Behind a pool, every session appears to come from the pool.  sluice_set_client()
 * substitutes the client's own address, as shown by inet_client_addr() and
 * inet_client_port(), pg_stat_activity, %h and %r of log_line_prefix.  The rules of
 * pg_hba.conf have been applied to the pool before.
 *
 * Only the pool may do so: each call has to include the secret in the file
 * "sluice.pool_secret_file".  The controller reads that file (controller.c), so
 * that sessions need not be able to, and keeps the secret in shared memory, which
 * SQL can't read.  The pool calls by the protocol's FunctionCall (PostgreSQL documentation,
 * 55.2.9), whose arguments show neither in pg_stat_activity nor in the log, and
 * sends the transaction's first statement right behind it.
 *
 * Any user may call it, and so guess.  After TRIES_MAX wrong secrets each further
 * one takes the session WRONG_DELAY_MS; the log has the number of wrong ones, at
 * most once in REPORT_INTERVAL_MS; and a secret must be of some length and variety.
 * The right one is believed at any time, without a delay: if it were not, a client
 * of a pool could keep the pool from its own sessions, which it shares with others.
 * For the same reason guessing by ever new sessions is logged, but not prevented.
 */
#include "postgres.h"

#include "common/ip.h"
#include "compat.h"
#include "fmgr.h"
#include "gate.h"
#include "libpq/libpq-be.h"
#include "miscadmin.h"
#include "port.h"
#include "storage/latch.h"
#include "utils/backend_status.h"
#include "utils/timestamp.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

PG_FUNCTION_INFO_V1(sluice_set_client);

/* Values of the byte that tells the family of an address. */
#define FAMILY_LOCAL	0
#define FAMILY_IPV4		4
#define FAMILY_IPV6		6

/* Number of wrong secrets of a session that cost it nothing. */
#define TRIES_MAX		3

/* Delay of each further one, ms. */
#define WRONG_DELAY_MS	1000

/* Minimum interval of reports in the log, ms. */
#define REPORT_INTERVAL_MS	10000

/* Minimum number of distinct bytes of a secret. */
#define VARIETY_MIN		8

/* Wrong secrets that this session has given, and of which secret it was not. */
static uint32 tries = 0;
static uint32 tries_version = 0;

/* Buffers for MyProcPort's texts, once an address has been reported. */
static char host_text[NI_MAXHOST];
static char port_text[NI_MAXSERV];

/* Opens a file that nobody else can read; on failure logs why, and returns -1. */
static int
open_secret(const char *path)
{
	struct stat status;
	/* Anything but a regular file might block. */
	int			file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	int			saved_errno;

	if (file >= 0 && fstat(file, &status) == 0 && S_ISREG(status.st_mode) &&
		(status.st_mode & (S_IRWXG | S_IRWXO)) == 0)
		return file;

	/* Closed before anything is logged: that may process an interrupt. */
	saved_errno = errno;
	if (file >= 0)
		close(file);
	errno = saved_errno;
	if (file < 0)
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("sluice: could not open \"%s\": %m", path)));
	else if (!S_ISREG(status.st_mode))
		ereport(LOG,
				(errmsg("sluice: \"%s\" is not a regular file", path)));
	else
		ereport(LOG,
				(errmsg("sluice: \"%s\" has group or world access, and is ignored", path),
				 errhint("Run: chmod 600 \"%s\"", path)));
	return -1;
}

/* Number of distinct bytes. */
static int
variety(const char *secret, int length)
{
	bool		is_there[256] = {false};
	int			count = 0;

	for (int i = 0; i < length; i++)
	{
		count += !is_there[(uint8) secret[i]];
		is_there[(uint8) secret[i]] = true;
	}
	return count;
}

/* Warns of a secret within the data directory, which is part of each backup. */
static void
report_if_copied(const char *path)
{
	char	   *absolute = make_absolute_path(path);

	if (absolute != NULL && path_is_prefix_of_path(DataDir, absolute))
		ereport(LOG,
				(errmsg("sluice: the secret in \"%s\" is in the data directory, and so in every base backup", path),
				 errhint("Move it elsewhere, and change \"sluice.pool_secret_file\".")));
	free(absolute);
}

/* Reads the first line of the file; returns its length, or 0 after logging why. */
static int
read_secret(const char *path, char *secret)
{
	int			file = open_secret(path);
	ssize_t		length;
	int			saved_errno;

	if (file < 0)
		return 0;
	length = read(file, secret, SECRET_MAX + 1);
	saved_errno = errno;
	close(file);
	errno = saved_errno;
	if (length < 0)
	{
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("sluice: could not read \"%s\": %m", path)));
		return 0;
	}
	for (int i = 0; i < length; i++)
	{
		if (secret[i] == '\n' || secret[i] == '\r')
			length = i;
	}
	if (length < SECRET_MIN || length > SECRET_MAX)
	{
		ereport(LOG,
				(errmsg("sluice: the secret in \"%s\" has an invalid length", path),
				 errdetail("It has %d bytes or more; it must have %d to %d.", (int) length, SECRET_MIN, SECRET_MAX)));
		return 0;
	}
	if (variety(secret, length) < VARIETY_MIN)
	{
		ereport(LOG,
				(errmsg("sluice: the secret in \"%s\" is too simple, and is ignored", path),
				 errdetail("It has fewer than %d distinct characters.", VARIETY_MIN),
				 errhint("Run: head -c 24 /dev/urandom | base64")));
		return 0;
	}
	report_if_copied(path);
	return (int) length;
}

/*
 * Reads the secret anew, into SECRET_MAX + 1 bytes, of which those behind it are
 * zero; its length, or 0.
 */
int
sluice_read_secret(char *secret)
{
	int			length = 0;

	if (sluice_pool_secret_file[0] != '\0')
		length = read_secret(sluice_pool_secret_file, secret);
	memset(secret + length, 0, SECRET_MAX + 1 - length);
	return length;
}

/* Counts a wrong secret, and reports it in the log if the last report is old. */
static void
note_wrong_secret(void)
{
	uint64		reported = pg_atomic_read_u64(&sluice_shared->wrong_reported);
	TimestampTz now = GetCurrentTimestamp();

	tries++;
	pg_atomic_fetch_add_u32(&sluice_shared->wrong_secrets, 1);
	if (TimestampDifferenceExceeds((TimestampTz) reported, now, REPORT_INTERVAL_MS) &&
		pg_atomic_compare_exchange_u64(&sluice_shared->wrong_reported, &reported, (uint64) now))
		ereport(LOG,
				(errmsg("sluice: %u calls of sluice_set_client() with a wrong secret since the last report",
						pg_atomic_exchange_u32(&sluice_shared->wrong_secrets, 0)),
				 errdetail("The last one was by role \"%s\" in database \"%s\".",
						   MyProcPort->user_name, MyProcPort->database_name),
				 errhint("If that is a connection pool, configure it with the secret in \"sluice.pool_secret_file\".")));
}

/* Waits until the delay of a wrong secret is over; it can be cancelled. */
static void
delay_wrong_secret(void)
{
	TimestampTz end = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), WRONG_DELAY_MS);
	long		left_ms;

	while ((left_ms = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), end)) > 0)
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, left_ms,
						 WAIT_EVENT_PG_SLEEP);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
}

/*
 * Whether that is the secret, compared in constant time.
 */
static bool
is_secret(const uint8 *candidate, int length)
{
	uint8		padded[SECRET_MAX] = {0};
	uint32		differs;
	uint32		version;
	bool		is_none;

	if (length == 0 || length > SECRET_MAX)
		return false;
	memcpy(padded, candidate, length);
	LWLockAcquire(sluice_shared->lock, LW_SHARED);
	differs = (uint32) length ^ (uint32) sluice_shared->secret_length;
	for (int i = 0; i < SECRET_MAX; i++)
		differs |= padded[i] ^ (uint8) sluice_shared->secret[i];
	is_none = sluice_shared->secret_length == 0;
	version = sluice_shared->secret_version;
	LWLockRelease(sluice_shared->lock);
	if (is_none)
		return false;
	if (tries_version != version)
		tries = 0;
	tries_version = version;
	if (differs == 0)
		return true;
	note_wrong_secret();
	if (tries > TRIES_MAX)
		delay_wrong_secret();
	return false;
}

/* Parses an address and a port as sent by the pool; returns whether they are valid. */
static bool
read_address(const uint8 *bytes, int length, SockAddr *address)
{
	memset(address, 0, sizeof(SockAddr));
	if (length == 3 && bytes[0] == FAMILY_LOCAL)
	{
		address->addr.ss_family = AF_UNIX;
		address->salen = sizeof(struct sockaddr_un);
	}
	else if (length == 3 + 4 && bytes[0] == FAMILY_IPV4)
	{
		struct sockaddr_in *ipv4 = (struct sockaddr_in *) &address->addr;

		ipv4->sin_family = AF_INET;
		memcpy(&ipv4->sin_port, bytes + 1, 2);
		memcpy(&ipv4->sin_addr, bytes + 3, 4);
		address->salen = sizeof(*ipv4);
	}
	else if (length == 3 + 16 && bytes[0] == FAMILY_IPV6)
	{
		struct sockaddr_in6 *ipv6 = (struct sockaddr_in6 *) &address->addr;

		ipv6->sin6_family = AF_INET6;
		memcpy(&ipv6->sin6_port, bytes + 1, 2);
		memcpy(&ipv6->sin6_addr, bytes + 3, 16);
		address->salen = sizeof(*ipv6);
	}
	else
		return false;
	return true;
}

/* Replaces the session's own client address. */
static void
put_address(const SockAddr *address)
{
	(void) pg_getnameinfo_all(&address->addr, address->salen, host_text, sizeof(host_text),
							  port_text, sizeof(port_text), NI_NUMERICHOST | NI_NUMERICSERV);
	MyProcPort->raddr = *address;
	MyProcPort->remote_host = host_text;
	MyProcPort->remote_port = port_text;
	MyProcPort->remote_hostname = NULL;

	if (MyBEEntry == NULL)
		return;
	PGSTAT_BEGIN_WRITE_ACTIVITY(MyBEEntry);
	MyBEEntry->st_clientaddr = *address;
	MyBEEntry->st_clienthostname[0] = '\0';
	PGSTAT_END_WRITE_ACTIVITY(MyBEEntry);
}

/*
 * sluice_set_client(bytea) returns boolean
 *
 * The argument is the length of the secret in one byte, the secret, the family
 * of the address in one byte (0, 4 or 6), the port in two, the address. False if
 * the secret is not the server's; then nothing has changed.
 */
Datum
sluice_set_client(PG_FUNCTION_ARGS)
{
	bytea	   *message = PG_GETARG_BYTEA_PP(0);
	const uint8 *bytes = (const uint8 *) VARDATA_ANY(message);
	int			length = VARSIZE_ANY_EXHDR(message);
	SockAddr	address;

	if (MyProcPort == NULL || length < 1 || length < 1 + bytes[0] ||
		!is_secret(bytes + 1, bytes[0]))
		PG_RETURN_BOOL(false);
	length -= 1 + bytes[0];
	bytes += 1 + bytes[0];
	if (!read_address(bytes, length, &address))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_BINARY_REPRESENTATION),
				 errmsg("invalid client address")));
	put_address(&address);
	PG_RETURN_BOOL(true);
}
