"""Secrets among workers on a network: the same party programs, each run where its share is.

Modules, in the order they import each other:

    programs     the party programs that can be asked for, by name: a closed list
    raw_tensors  how the frames of a round travel
    messages     what clients, holders and providers say to each other
    outline      what a program takes and gives, found without any secret
    membership   one worker's place in a group: its peers, what they sent, its streams
    execution    running a program at one party, dealing for one
    handlers     what a worker does with the messages
    driver       the client's side: one command per party, and on

NOTE [A group on a network]
A client names the members: holders in order, then the provider. Each worker joins only if its own owner has
introduced it to all the others (`add_worker`, `syft worker --peer`), and reaches them over those links alone. So a
client can put workers together that know each other, and cannot slip one in that they do not know.

NOTE [Tickets]
A worker cannot tell who is behind a session that arrives: user names are the owners' business. But it knows to whom
its own links lead. Over its link to each peer it sends a random ticket, and it believes what shows that ticket to come
from that peer: nobody else was told it. Seeds and frames go out over the own link, too, and bear the ticket that the
receiver gave. The client knows none of them.

NOTE [One run]
Runs are numbered by the client, and a member takes each number once, going up. All randomness of a run is derived from
the seeds of the group, that number and what the member was asked to do (NOTE [Bound to its purpose] in
`syft.mpc.binding`), so a run that failed half way leaves nothing out of step behind, no mask is ever used twice, and
members that were asked for different programs have unrelated masks. Before its first frame a member has from each
other party of the run the digest of what that was asked to do, and ends the run if it is not its own. The digests
travel while masks are drawn. A member that sends something for a later run was not asked for this one, or gave it up:
nobody waits for it. A run is carried out by the thread of the client's session: what the client sends next waits for
it, at every holder in the same order. It gives the worker's turn away while it computes and waits, and frames come in
by the sessions of the peers, so nobody waits for somebody who waits for him. While it waits for a small frame of another
holder it reads that holder's connection itself: NOTE [Who reads] in `syft.transport.session_lending`.
"""
