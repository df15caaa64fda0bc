"""The tests of workers and pointers, unchanged: a sample over tcp, tls and ws; all, over all of them, with `-m slow`."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

import forked
from over_network import TRANSPORTS

pytestmark = pytest.mark.network

ROOT = Path(__file__).parents[2]
FOLDERS = ("tests/workers", "tests/tensors")
#: One in so many.
PART = 80
#: Run over every transport: the operators are sampled, but these kinds of tests are few.
ALWAYS = (
    "test_training_on_a_worker_equals_training_here[mlp-sgd]",
    "test_get_removes_also_what_is_not_collected",
    "test_the_same_tensor_sent_twice_lives_until_both_pointers_are_gone",
    "test_a_move_by_an_allowed_user_takes_the_restriction_along",
)
#: Hundreds of steps that are each waited for: minutes over a connection.
LONG = (
    "tests/workers/test_garbage.py::test_training_steps",
    "tests/workers/test_garbage.py::test_steps_of_a_recurrent_net",
    "tests/workers/test_garbage.py::test_failed_operations",
    "tests/workers/test_garbage.py::test_dropped_pointers",
    "tests/workers/test_garbage.py::test_sent_and_fetched",
    "tests/workers/test_garbage.py::test_moves",
    "tests/workers/test_garbage.py::test_an_exception_with_a_pointer_in_its_traceback",
    "tests/workers/test_garbage.py::test_threads",
    "tests/workers/test_garbage.py::test_finalizers_in_the_middle_of_an_operation",
)
#: What differs over a network, and why that is right.
DIFFERENT = {
    # Users there are proved by their connection; these tests speak for users within one process. See test_security.py.
    "tests/workers/test_owner_policy.py": "speaks for users in one process",
    "tests/workers/test_quotas_beforehand.py": "speaks for users in one process",
    "tests/workers/test_sizes_beforehand.py": "speaks for users in one process",
    "tests/workers/test_store.py": "speaks for users in one process",
    "tests/workers/test_data_directory.py": "makes workers of its own",
    # Functions and objects of classes that are not registered do not travel.
    "tests/workers/test_permissions.py::test_attributes_by_message": "an object of a class of the test",
    "tests/workers/test_permissions.py::test_a_callable_is_not_given_restricted_data": "a function",
    "tests/workers/test_permissions_of_strangers.py::test_a_callable_hands_out_copies_of_what_it_keeps": "a function",
    "tests/workers/test_permissions_of_strangers.py::test_what_an_object_holds_inside_cannot_be_reached_by_two_ways": (
        "an object of a class of the test"
    ),
    "tests/tensors/test_objects.py::test_a_callable_runs_where_the_data_is": "a function",
    "tests/tensors/test_objects.py::test_a_call_on_data_of_another_worker_is_refused": "a function",
    "tests/tensors/test_objects.py::test_a_callable_that_somebody_sent_does_not_run_on_private_data": "a function",
    "tests/tensors/test_objects.py::test_public_attributes_can_be_pointed_to_and_set_but_private_ones_cannot": (
        "an object of a class of the test"
    ),
    # What is no message is refused while it is read, with another error.
    "tests/workers/test_permissions.py::test_local_tensors_cannot_be_slipped_into_a_message": "refused by serde",
    "tests/workers/test_workers.py::test_an_unknown_message_is_refused": "refused by serde",
    "tests/workers/test_workers.py::test_an_unknown_command_is_refused_by_name": "refused by serde",
    # The worker of the fixture is a client, and what it points to a server.
    "tests/workers/test_workers.py::test_the_same_id_and_type_is_the_same_worker": "two names of one VirtualWorker",
    "tests/workers/test_workers.py::test_the_same_id_and_another_type_is_refused": "compares with a VirtualWorker",
    "tests/workers/test_workers.py::test_a_worker_made_again_is_the_same_place": "the fixture makes another server",
    "tests/workers/test_workers.py::test_messages_are_kept_on_request": "compares messages by identity",
    "tests/tensors/test_pointer.py::test_a_pointer_to_a_pointer": "compares workers by identity",
    # Holders exchange rounds by connections of their own, which the fixture does not make: see tests/mpc/test_network.py.
    "tests/tensors/test_paillier.py::test_encrypt_shares_and_decrypt_opens": "shares among workers of the fixture",
    # A worker tells another one of a pointer that has gone a moment later.
    "tests/workers/test_garbage.py::test_sending_a_pointer_hands_the_duty_over": "looks before the second worker is told",
}


#: What takes longest to import: one process does it for all.
IMPORTS = ("torch.testing._internal.common_methods_invocations",)


def run(transport: str, *options: str, seconds: float) -> int:
    """Run the tests; how many passed."""
    left_out = [f"--deselect={name}" for name in DIFFERENT]
    words = f"-m pytest --transport {transport} -q -p no:cacheprovider -p network.sampling --tb=short".split()
    words += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # of what is imported already
    done = forked.run(
        *(*words, *FOLDERS, *left_out, *options),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=seconds,
        imports=IMPORTS,
        env=os.environ | {"PYTHONPATH": str(ROOT / "tests")},
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    found = re.search(r"(\d+) passed", done.stdout)
    return int(found[1]) if found else 0


#: Their bytes are read by the same code as those of tcp, ws and tls; their contract is in tests/transport.
ALIKE = ("inproc", "unix", "wss")


@pytest.mark.parametrize(
    ("number", "transport"),
    [
        pytest.param(number, name, marks=[pytest.mark.slow] if name in ALIKE else [])
        for number, name in enumerate(TRANSPORTS)
    ],
)
def test_a_sample_passes_unchanged(number: int, transport: str) -> None:
    always = [f"--always={name}" for name in ALWAYS]
    left_out = [f"--deselect={name}" for name in LONG]
    passed = run(transport, "--sample", f"{number}/{PART}", *always, *left_out, seconds=800)
    assert passed > 20


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_all_pass_unchanged(transport: str) -> None:
    assert run(transport, "--timeout=600", seconds=3500) > 1_500
