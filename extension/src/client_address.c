/*
 * client_address.c
 *		The address of the client that a pool works for, as the pool tells it.
 *
 * Behind a pool every session seems to come from the pool.  sluice_set_client()
 * puts the client's own address in that place, for all who ask: inet_client_addr()
 * and inet_client_port(), pg_stat_activity, %h and %r of log_line_prefix.  The
 * rules of pg_hba.conf have been applied before, to the pool.
 *
 * Only the pool can say it: each call has to bring the secret that stands in the
 * file "sluice.pool_secret_file".  The keeper reads that file (keeper.c), so that
 * sessions need not be able to, and keeps the secret in shared memory, which SQL
 * can't read.  The pool calls by the protocol's FunctionCall (PostgreSQL documentation,
 * 55.2.9), whose arguments show neither in pg_stat_activity nor in the log, and
 * sends the transaction's first statement right behind it.
 *
 * Anybody may call it, so anybody may guess: a session that was wrong TRIES_MAX
 * times is not heard any more, until the secret changes; the log says how often
 * that was, at most once in TOLD_EACH_MS; and a secret has to be of some length
 * and variety.
 */
#include "postgres.h"

#include "common/ip.h"
#include "compat.h"
#include "fmgr.h"
#include "gate.h"
#include "libpq/libpq-be.h"
#include "port.h"
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

/* Wrong secrets that one session may give. */
#define TRIES_MAX		3

/* How often the log tells of them at most, ms. */
#define TOLD_EACH_MS	10000

/* Different bytes that a secret has to have. */
#define VARIETY_MIN		8

/* Wrong secrets that this session has given, and of which secret it was not. */
static int	tries = 0;
static uint32 tries_version = 0;

/* The buffers that MyProcPort's texts point to, once an address was told. */
static char host_text[NI_MAXHOST];
static char port_text[NI_MAXSERV];

/* Opens a file that nobody else can read; -1 with a word in the log. */
static int
open_secret(const char *path)
{
	struct stat status;
	/* Something other than a file could block here. */
	int			file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (file < 0 || fstat(file, &status) != 0)
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("sluice: could not open \"%s\": %m", path)));
	else if (!S_ISREG(status.st_mode))
		ereport(LOG,
				(errmsg("sluice: \"%s\" is not a file", path)));
	else if (status.st_mode & (S_IRWXG | S_IRWXO))
		ereport(LOG,
				(errmsg("sluice: \"%s\" is open to others, and is not used", path),
				 errhint("Run: chmod 600 \"%s\"", path)));
	else
		return file;
	if (file >= 0)
		close(file);
	return -1;
}

/* The number of different bytes. */
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

/* What is in the data directory is in each copy of it, too. */
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

/* The first line of such a file; its length, or 0 with a word in the log. */
static int
read_secret(const char *path, char *secret)
{
	int			file = open_secret(path);
	ssize_t		length;

	if (file < 0)
		return 0;
	length = read(file, secret, SECRET_MAX + 1);
	if (length < 0)
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("sluice: could not read \"%s\": %m", path)));
	close(file);
	if (length < 0)
		return 0;
	for (int i = 0; i < length; i++)
	{
		if (secret[i] == '\n' || secret[i] == '\r')
			length = i;
	}
	if (length < SECRET_MIN || length > SECRET_MAX)
	{
		ereport(LOG,
				(errmsg("sluice: the secret in \"%s\" is not of a length that is used", path),
				 errdetail("It has %d bytes or more; %d to %d are needed.", (int) length, SECRET_MIN, SECRET_MAX)));
		return 0;
	}
	if (variety(secret, length) < VARIETY_MIN)
	{
		ereport(LOG,
				(errmsg("sluice: the secret in \"%s\" is too easy to guess, and is not used", path),
				 errdetail("It has fewer than %d different characters.", VARIETY_MIN),
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

/* Counts a wrong secret, and has the log tell of it now and then. */
static void
note_wrong_secret(void)
{
	uint64		told = pg_atomic_read_u64(&sluice_shared->wrong_told);
	TimestampTz now = GetCurrentTimestamp();

	tries++;
	pg_atomic_fetch_add_u32(&sluice_shared->wrong_secrets, 1);
	if (TimestampDifferenceExceeds((TimestampTz) told, now, TOLD_EACH_MS) &&
		pg_atomic_compare_exchange_u64(&sluice_shared->wrong_told, &told, (uint64) now))
		ereport(LOG,
				(errmsg("sluice: a pool's secret was wrong %u times since that was told last",
						pg_atomic_exchange_u32(&sluice_shared->wrong_secrets, 0)),
				 errdetail("The last one came from role \"%s\" in database \"%s\".",
						   MyProcPort->user_name, MyProcPort->database_name),
				 errhint("If that is a pool, give it the secret of \"sluice.pool_secret_file\".")));
}

/*
 * Whether that is the secret.  Takes as long whatever it is, unless this session
 * is not heard any more.
 */
static bool
is_secret(const uint8 *told, int length)
{
	uint8		padded[SECRET_MAX] = {0};
	uint32		differs;
	uint32		version;
	bool		is_none;

	if (length == 0 || length > SECRET_MAX)
		return false;
	memcpy(padded, told, length);
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
	if (tries >= TRIES_MAX)
		return false;
	if (differs != 0)
		note_wrong_secret();
	return differs == 0;
}

/* An address and a port as the pool writes them; whether they are that. */
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

/* Puts an address in the place of the session's own. */
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
				 errmsg("malformed address of a client")));
	put_address(&address);
	PG_RETURN_BOOL(true);
}
