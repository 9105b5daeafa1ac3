"""The client of a cluster as Spark's options describe it: the same for source and sink."""

import os
from collections.abc import Mapping
from dataclasses import replace

from headrace.client.config import ClientConfig, client_config

CLIENT_ID = "headrace-spark"
BOOTSTRAP_VARIABLE = "HEADRACE_BOOTSTRAP"
"""The environment variable in which `headrace spark run` names the cluster."""


def cluster_client(
    properties: Mapping[str, str], environment: Mapping[str, str] = os.environ
) -> ClientConfig:
    """What the options `kafka.*` mean, given without that prefix; ClientError names it.

    Where they name no cluster, it is the one that `headrace spark run` was told.
    """
    known = dict(properties)
    if "bootstrap.servers" not in known and environment.get(BOOTSTRAP_VARIABLE):
        known["bootstrap.servers"] = environment[BOOTSTRAP_VARIABLE]
    client = client_config(known, "kafka.")
    return client if "client.id" in known else replace(client, client_id=CLIENT_ID)
