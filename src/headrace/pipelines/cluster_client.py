"""The client of a cluster from Spark's options, for source and sink."""

import os
from collections.abc import Mapping
from dataclasses import replace

from headrace.client.config import ClientConfig, client_config
from headrace.pipelines.kafka_clusters import handed_properties

CLIENT_ID = "headrace-spark"
BOOTSTRAP_VARIABLE = "HEADRACE_BOOTSTRAP"
"""The environment variable with which `headrace spark run` passes the cluster's address."""


def cluster_client(
    properties: Mapping[str, str], environment: Mapping[str, str] = os.environ
) -> ClientConfig:
    """The client for the options `kafka.*`, given without that prefix; ClientErrors include it.

    Without an address in the options, the cluster of `headrace spark run` is used; without a login,
    that of `spark.kafka.clusters.*` for this address.
    """
    known = dict(properties)
    if "bootstrap.servers" not in known and environment.get(BOOTSTRAP_VARIABLE):
        known["bootstrap.servers"] = environment[BOOTSTRAP_VARIABLE]
    handed = handed_properties(known)
    if handed is None:
        client = client_config(known, "kafka.")
    else:
        properties, token = handed
        client = client_config(properties, "kafka.", token)
    return client if "client.id" in known else replace(client, client_id=CLIENT_ID)
