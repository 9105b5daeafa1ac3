"""A client that cannot log in does not learn which users exist."""

from pathlib import Path

import pytest

from headrace.client.users import describe_users, set_password
from headrace.security.scram import DIGESTS
from tests.security.nodes import PASSWORD, login_nodes
from tests.support.stores import eventually


@pytest.mark.parametrize("mechanism", DIGESTS)
def test_an_unknown_user_has_one_challenge_on_all_brokers_and_after_a_restart(
    tmp_path: Path, mechanism: str
) -> None:
    with login_nodes(tmp_path, 2) as (one, two):
        with one.admin() as admin:
            set_password(admin, "alice", PASSWORD)
        with two.admin() as admin:
            eventually(lambda: bool(describe_users(admin, ["alice"])), "both brokers know alice")
        alice = one.challenge(mechanism, "alice")
        nobody = one.challenge(mechanism, "nobody")
        assert nobody.salt != alice.salt
        assert (len(nobody.salt), nobody.iterations) == (len(alice.salt), alice.iterations)
        for _ in range(2):
            assert two.challenge(mechanism, "alice") == alice
            assert two.challenge(mechanism, "nobody") == nobody
            assert two.challenge(mechanism, "nobody2").salt != nobody.salt
            two.stop()
            two.start()
        one.stop()
        one.start()
        assert one.challenge(mechanism, "nobody") == nobody
