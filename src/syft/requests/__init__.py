"""What users ask the owner of a worker for, and what the owner answers. Imports `policy`, `serde` and below.

records      a request, and what is told of it
book         the queue of requests, in a file
approvals    the use of an approval: what the permit step of a worker asks
values       the value that waits for an approval, as bytes
keeper       the worker that has the queue, and its owner's side
requesting   `worker.request_...` for those who ask, `worker.approve` for the owner
releasing    `worker.release` for those who ask, `worker.set_budget` for the owner

What a worker does with the messages is in `syft.workers.request_handlers` and in `syft.dp.release`.
"""
