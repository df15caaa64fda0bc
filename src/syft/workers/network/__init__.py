"""Workers on a network: sessions that survive cut connections, over any transport.

Modules, in the order they import each other:

    keeper     the thread behind a link
    presence   whether the worker behind a link is there, for those who compute with it and with others
    link_connection  the connection of a link, read by whoever waits and replaced when it breaks
    link       the client's end of a session
    sessions   the server's end of a session
    incoming   the frames of one client
    watcher    the thread that looks after the sessions
    server     accepting connections, serving them, ending what has vanished
    client_worker, server_worker   the workers a user makes

Their frames and greetings are `syft.transport.session_*`; who speaks is `syft.policy.authentication`.

NOTE [Neither lost nor twice]
Commands are numbered from 1 in every session. The client keeps what the server has not confirmed; the server
remembers the number it executed last, and the replies that the client has not confirmed. After a cut the client
says which session it continues, the server says how far it came, and the client sends the rest again. A server
that was restarted does not know the session: then the client tells its user, because what it held is gone.
"""

from syft.core.lazy import submodules_on_demand as _on_demand

__getattr__ = _on_demand("syft.workers.network")
