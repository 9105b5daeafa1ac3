"""Users, ACLs, quotas and tokens survive restarts and reach other brokers."""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from headrace.clock import ManualClock
from headrace.cluster.metadata import Metadata
from headrace.cluster.security_nodes import login_secret
from headrace.cluster.sqlite_store import SqliteStore
from headrace.cluster.store import Change, Store
from headrace.cluster.zookeeper_store import ZookeeperStore
from headrace.security.acls import (
    AclBinding,
    AclEntry,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from headrace.security.scram import credential_from_password
from headrace.security.state import DelegationToken, SecurityState
from tests.support.zookeeper import ZooKeeper

CREDENTIAL = credential_from_password("SCRAM-SHA-256", "s3cret")
TOKEN = DelegationToken("t1", "User:alice", "User:bob", ("User:carol",), 1, 2, 3)
BOTH_DEFAULT = (("client-id", None), ("user", None))


def binding(name: str, kind: ResourceType = ResourceType.TOPIC) -> AclBinding:
    entry = AclEntry("User:alice", "*", AclOperation.READ, AclPermission.ALLOW)
    return AclBinding(ResourcePattern(kind, PatternType.LITERAL, name), entry)


@pytest.fixture(params=["sqlite", "zookeeper"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Store]]:
    stores: list[Store] = []
    chroot = f"/security-{tmp_path.name}"

    def opened() -> Store:
        if request.param == "sqlite":
            stores.append(SqliteStore(str(tmp_path)))
        else:
            running: ZooKeeper = request.getfixturevalue("zookeeper")
            stores.append(ZookeeperStore(running.address(chroot)))
        return stores[-1]

    yield opened
    for store in stores:
        store.close()


def loaded(store: Store) -> Metadata:
    metadata = Metadata(store, 1, ManualClock())
    metadata.load()
    return metadata


def change(metadata: Metadata, alter: Callable[[SecurityState], SecurityState]) -> None:
    metadata.alter_security(lambda state: ([], alter(state)))


def test_everything_is_the_same_after_a_restart(open_store: Callable[[], Store]) -> None:
    metadata = loaded(open_store())
    acls = [binding("orders"), binding("a/b.%", ResourceType.GROUP), binding("*")]
    change(metadata, lambda state: state.with_acls(acls))
    change(metadata, lambda state: state.with_user("a/ü", {"SCRAM-SHA-256": CREDENTIAL}))
    change(metadata, lambda state: state.with_quotas(BOTH_DEFAULT, {"producer_byte_rate": 1.5}))
    change(metadata, lambda state: state.with_token(TOKEN))
    again = loaded(open_store()).image.security
    assert again == metadata.image.security
    assert len(again.acls) == 3
    assert again.users["a/ü"]["SCRAM-SHA-256"] == CREDENTIAL
    assert again.quotas == {BOTH_DEFAULT: {"producer_byte_rate": 1.5}}
    assert again.tokens == {"t1": TOKEN}


def test_what_is_removed_is_gone(open_store: Callable[[], Store]) -> None:
    metadata = loaded(open_store())
    change(metadata, lambda state: state.with_acls([binding("orders"), binding("sums")]))
    change(metadata, lambda state: state.with_user("bob", {"SCRAM-SHA-256": CREDENTIAL}))
    change(metadata, lambda state: state.with_token(TOKEN))
    change(metadata, lambda state: state.with_acls(removed=[binding("orders")]))
    change(metadata, lambda state: state.with_user("bob", {}))
    change(metadata, lambda state: state.without_token("t1"))
    again = loaded(open_store()).image.security
    assert [resource.name for resource in again.acls] == ["sums"]
    assert not again.users
    assert not again.tokens


def test_changes_of_two_brokers_at_once_are_both_kept(open_store: Callable[[], Store]) -> None:
    one, other = loaded(open_store()), loaded(open_store())
    change(one, lambda state: state.with_acls([binding("orders")]))
    change(other, lambda state: state.with_acls([binding("orders"), binding("sums")]))
    until = time.monotonic() + 60
    while len(one.image.security.acls) < 2 and time.monotonic() < until:
        time.sleep(0.01)
        one.refresh()
    assert {resource.name for resource in one.image.security.acls} == {"orders", "sums"}


def test_a_refresh_without_changes_keeps_the_same_state(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path))
    one, other = loaded(store), loaded(SqliteStore(str(tmp_path)))
    change(other, lambda state: state.with_acls([binding("orders")]))
    one.refresh()
    before = one.image.security
    change(other, lambda state: state.with_user("bob", {"SCRAM-SHA-256": CREDENTIAL}))
    one.refresh()
    assert one.image.security.acls is before.acls
    assert one.image.security is not before
    store.close()


def test_a_password_appears_in_no_form_of_the_state(tmp_path: Path) -> None:
    metadata = loaded(SqliteStore(str(tmp_path)))
    change(metadata, lambda state: state.with_user("bob", {"SCRAM-SHA-256": CREDENTIAL}))
    text = repr(metadata.image.security)
    assert "s3cret" not in text
    assert repr(CREDENTIAL.stored_key) not in text
    files = b"".join(one.read_bytes() for one in tmp_path.iterdir())
    assert b"s3cret" not in files


def test_all_brokers_have_the_same_login_secret(open_store: Callable[[], Store]) -> None:
    one, two = open_store(), open_store()
    secret = login_secret(one)
    assert len(secret) == 32
    assert login_secret(two) == login_secret(one) == secret
    assert login_secret(open_store()) == secret


def test_the_first_broker_decides_the_login_secret(
    open_store: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = open_store(), open_store()
    real = two.commit
    seen = []

    def commit_late(changes: Sequence[Change]) -> None:
        seen.append(login_secret(one))
        real(changes)

    monkeypatch.setattr(two, "commit", commit_late)
    assert [login_secret(two)] == seen
