"""Delegation tokens for Spark: the driver gets them, and its tasks log in with them.

The driver logs in to each cluster of `spark.kafka.clusters.*`, with a password, a keytab or another
login that only the driver has, gets a token, renews it before it expires, and gets another one when
it cannot be renewed any longer. `headrace spark run` does this for every session; other programs
call `use_kafka_clusters`.
"""

import atexit
import logging
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.tokens import TokenDescription, create_token, renew_token
from headrace.errors import KafkaError
from headrace.pipelines.kafka_clusters import KafkaCluster, file_name, file_text, parse_clusters

log = logging.getLogger(__name__)

RENEWAL_RATIO = 0.75
"""The part of a token's time after which it is renewed, as in Spark."""
RETRY_S = 60.0
_ENABLED = "spark.security.credentials.kafka.enabled"
_ATTRIBUTE = "_headrace_delegation_tokens"
_MAXIMUM = -1
"""Ask for the longest lifetime that the brokers allow."""


@dataclass(slots=True)
class _Held:
    """A cluster and its present token."""

    cluster: KafkaCluster
    token: TokenDescription | None = None
    renew_at: float = 0.0
    """In seconds since 1970."""


class DelegationTokens:
    """The tokens of a driver."""

    def __init__(
        self,
        clusters: list[KafkaCluster],
        hand_over: Callable[[str], None],
        in_use: Callable[[], bool] = lambda: True,
    ) -> None:
        """`hand_over` gives a file with tokens to Spark's processes.

        Tokens are renewed while they are `in_use`.
        """
        self._held = [_Held(cluster) for cluster in clusters]
        self._hand_over = hand_over
        self._in_use = in_use
        self._number = 0
        self._stopped = threading.Event()
        self._folder = Path(tempfile.mkdtemp(prefix="headrace-tokens-"))  # mode 0700
        atexit.register(shutil.rmtree, self._folder, ignore_errors=True)

    def start(self) -> None:
        """Get all tokens, and renew them in a thread from now on; raises if one is refused."""
        for held in self._held:
            if held.cluster.has_tokens:
                self._create(held)
        self._write()
        if any(held.token is not None for held in self._held):
            threading.Thread(target=self._run, name="delegation-tokens", daemon=True).start()

    def stop(self) -> None:
        """Renew no more tokens; those that exist expire.

        The files stay as long as they are in use: every process that starts a task for the first
        time asks for all files of the session, and its tasks fail if one is missing.
        """
        self._stopped.set()
        if not self._in_use():
            shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self) -> None:
        while True:
            next_at = min(held.renew_at for held in self._held if held.token is not None)
            if self._stopped.wait(max(next_at - time.time(), 0.0)):
                return
            if not self._in_use():
                self.stop()
                return
            for held in self._held:
                if held.token is not None and held.renew_at <= time.time():
                    self._keep_valid(held)

    def _keep_valid(self, held: _Held) -> None:
        """Renew a token, or get another one if it can hardly be renewed."""
        assert held.token is not None, "only clusters with tokens are renewed"
        try:
            if not self._renewed(held, held.token):
                self._create(held)
                self._write()
        except (KafkaError, ClientError) as error:
            # A quarter of the token's time is left for further attempts.
            held.renew_at = time.time() + min(RETRY_S, max(_left_s(held.token.expiry_ms) / 4, 1.0))
            log.warning(
                "the delegation token of spark.kafka.clusters.%s is not renewed: %s",
                held.cluster.name, error,
            )  # fmt: skip

    def _renewed(self, held: _Held, token: TokenDescription) -> bool:
        """Renew a token, if that gives it more time."""
        if _left_s(token.max_ms) * RENEWAL_RATIO <= _left_s(token.expiry_ms):
            return False
        try:
            with Cluster(held.cluster.client()) as cluster:
                expiry_ms = renew_token(cluster, token)
        except KafkaError as error:
            # Such as a token that has expired meanwhile, or was deleted.
            log.info("the delegation token %s cannot be renewed: %s", token.id, error)
            return False
        self._use(held, replace(token, expiry_ms=expiry_ms))
        return True

    def _create(self, held: _Held) -> None:
        with Cluster(held.cluster.client()) as cluster:
            self._use(held, create_token(cluster, None, (), _MAXIMUM))

    def _use(self, held: _Held, token: TokenDescription) -> None:
        held.token = token
        held.renew_at = time.time() + _left_s(token.expiry_ms) * RENEWAL_RATIO

    def _write(self) -> None:
        # Spark refuses other content under a name that a session has had before.
        self._number = max(self._number + 1, time.time_ns() // 1_000_000)
        path = self._folder / file_name(self._number)
        with open(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "w") as file:
            file.write(file_text((held.cluster, held.token) for held in self._held))
        self._hand_over(str(path))


def _left_s(at_ms: int) -> float:
    return at_ms / 1000 - time.time()


def use_kafka_clusters(spark: Any) -> DelegationTokens | None:
    """Log in to the clusters of `spark.kafka.clusters.*` for all queries of a SparkSession.

    Returns None without such settings. ClientError or KafkaError if a setting is wrong or a login
    or a token is refused. Sessions of one SparkContext share the tokens.
    """
    context = spark.sparkContext
    if (held := getattr(context, _ATTRIBUTE, None)) is not None:
        return cast("DelegationTokens", held)
    settings = dict(context.getConf().getAll())
    clusters = parse_clusters(settings)
    if not clusters or settings.get(_ENABLED, "true").lower() == "false":
        return None
    # A stopped context has no Java context.
    tokens = DelegationTokens(clusters, context.addFile, lambda: context._jsc is not None)
    try:
        tokens.start()
    except BaseException:
        tokens.stop()
        raise
    setattr(context, _ATTRIBUTE, tokens)
    return tokens
