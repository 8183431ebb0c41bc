"""Patroni, which asks the member of etcd on its own host first: `launch.py patroni.yml`.

Patroni's own client picks a member by chance, and stays with the one that has answered last. Where that is the member
of a primary whose host is lost with its link, its next request waits for two or three seconds, and its watch for
longer; a member on the own host answers, or refuses at once. Nothing else is changed: not what is asked, and not what
is made of it. `etcd3.hosts` names the own member first.
"""

import time

# Seconds after which it is looked again whether the own member is back.
AGAIN = 5
# Seconds for its answer.
PATIENCE = 0.5


def prefer_own_member():
    """Has Patroni's client go back to the own member."""
    from patroni.dcs.etcd import AbstractEtcdClientWithFailover
    from urllib3 import Timeout

    patronis = AbstractEtcdClientWithFailover.machines_cache.fget
    patience = Timeout(total=PATIENCE)

    def is_healthy(client, member):
        """Whether a member answers, and belongs to a majority."""
        try:
            return client.http.request('GET', member + '/health', timeout=patience, retries=False).status == 200
        except Exception:
            return False

    def machines_cache(client):
        """The members in the order in which a request is tried, as Patroni has them, once the own one is the first."""
        own = (client._config.get('hosts') or [None])[0]
        now = time.monotonic()
        if client._base_uri != own and own in client._machines_cache and now >= getattr(client, '_own_member_at', now):
            client._own_member_at = now + AGAIN
            if is_healthy(client, own):
                client.set_base_uri(own)
        return patronis(client)

    AbstractEtcdClientWithFailover.machines_cache = property(machines_cache)


if __name__ == '__main__':
    # The process that starts a postmaster for Patroni would read it again (multiprocessing's spawn), and needs none of it.
    del __file__
    prefer_own_member()

    from patroni.__main__ import main

    main()
