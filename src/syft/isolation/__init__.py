"""A process per user: what one user's commands do to a process happens to that user alone.

    broker              the worker's process: connections, tokens, policy, budgets, audit log, data directory, peers
      session           its end of a session: whole frames go to the executor, and replies come back
      executors         the processes, one per user; started with the first command, ended with the last session
      fork_server_client, forkserver   a process that holds nobody's data, from which executors are forked
    executor            the process of one user: it runs the pipeline of syft.workers on that user's objects
      walls             its worker: what it lets others use, and what it asks the broker for
      brokered          budgets, peers, groups and searches, asked of the broker
      limits            what the operating system lets it do; `preloading`: what it may not open later
    channel, records, broker_lane      how they talk; `progress`: what runs, for the watchdog
    sealed              memory that is handed over and that nobody can change

NOTE [Where commands are admitted]
The whole pipeline of a command (resolve, permit, admit, run, store) runs in the executor of its user. The broker decides
what enters that process: an object of the owner's or of another user's is handed over after the broker has looked into
its own table and policy. So a process that is under its user's control knows what that user may compute with, and
nothing else. Admitting each command in the broker instead was measured and not done: docs/architecture.md, "Where
commands are admitted", has the numbers.
"""
