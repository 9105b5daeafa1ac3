"""Converters for messages whose older versions have fields that the newest one lacks.

`REQUESTS[api]` is (last version converted, old request -> newest shape, in steps), and
`RESPONSES[api]` is
(last version converted, newest response, version -> an object with the old one's fields). All other
differences between versions are handled by `codec.py` from the classes alone.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING

from headrace.wire.steps import Steps

if TYPE_CHECKING:
    import kio.schema.add_partitions_to_txn.v3.request as add_partitions_v3
    import kio.schema.add_partitions_to_txn.v5.response as add_partitions
    import kio.schema.delete_topics.v5.request as delete_topics_v5
    import kio.schema.find_coordinator.v3.request as find_coordinator_v3
    import kio.schema.find_coordinator.v6.response as find_coordinator
    import kio.schema.leave_group.v2.request as leave_group_v2
    import kio.schema.leave_group.v5.response as leave_group
    import kio.schema.offset_fetch.v7.request as offset_fetch_v7
    import kio.schema.update_features.v0.request as update_features_v0

    import headrace.wire.offset_messages as offset_fetch

Convert = Callable[[object, type], Steps[object]]
Restore = Callable[[object, int], object]

SAFE_DOWNGRADE = 2
UPGRADE = 1


def _name_topics_to_delete(old: object, shape: type) -> Steps[object]:
    """DeleteTopics 1-5 has a list of names; 6 has a list of names or ids."""
    from kio.schema.delete_topics.v6.request import DeleteTopicState

    request = typing.cast("delete_topics_v5.DeleteTopicsRequest", old)
    topics = []
    for name in request.topic_names:
        topics.append(DeleteTopicState(name=name, topic_id=None))
        yield
    return shape(topics=tuple(topics), timeout=request.timeout)


def _type_feature_updates(old: object, shape: type) -> Steps[object]:
    """UpdateFeatures 0 says whether a downgrade is allowed; 1 and later say which kind."""
    from kio.schema.update_features.v1.request import FeatureUpdateKey

    from headrace.wire.primitives import i8

    request = typing.cast("update_features_v0.UpdateFeaturesRequest", old)
    updates = []
    for update in request.feature_updates:
        updates.append(
            FeatureUpdateKey(
                feature=update.feature,
                max_version_level=update.max_version_level,
                upgrade_type=i8(SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE),
            )
        )
        yield
    return shape(timeout=request.timeout, feature_updates=tuple(updates), validate_only=False)


# --- Groups: one item became several --------------------------------------------------------------


def _list_coordinator_key(old: object, shape: type) -> Steps[object]:
    """FindCoordinator 0-3 asks for one key; 4 and later for several."""
    request = typing.cast("find_coordinator_v3.FindCoordinatorRequest", old)
    yield
    # Version 0 has groups only.
    return shape(key_type=getattr(request, "key_type", 0), coordinator_keys=(request.key,))


def _only_coordinator(response: object, _version: int) -> object:
    """FindCoordinator 0-3 answers with one coordinator."""
    answer = typing.cast("find_coordinator.FindCoordinatorResponse", response)
    (only,) = answer.coordinators
    return SimpleNamespace(
        throttle_time=answer.throttle_time,
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


def _list_leaving_member(old: object, shape: type) -> Steps[object]:
    """LeaveGroup 0-2 names one member; 3 and later several."""
    from kio.schema.leave_group.v5.request import MemberIdentity

    request = typing.cast("leave_group_v2.LeaveGroupRequest", old)
    yield
    return shape(group_id=request.group_id, members=(MemberIdentity(member_id=request.member_id),))


def _only_member(response: object, _version: int) -> object:
    """LeaveGroup 0-2 has one error: the request's, or the member's."""
    answer = typing.cast("leave_group.LeaveGroupResponse", response)
    errors = [answer.error_code, *(member.error_code for member in answer.members)]
    code = next((code for code in errors if code), answer.error_code)
    return SimpleNamespace(throttle_time=answer.throttle_time, error_code=code)


def _list_group_to_fetch(old: object, shape: type) -> Steps[object]:
    """OffsetFetch 1-7 asks about one group; 8 and later about several."""
    from headrace.wire.offset_messages import GroupToFetch, TopicToFetch

    request = typing.cast("offset_fetch_v7.OffsetFetchRequest", old)
    topics = []
    for topic in request.topics or ():
        indexes = topic.partition_indexes
        topics.append(TopicToFetch(topic_id=None, name=topic.name, partition_indexes=indexes))
        yield
    group = GroupToFetch(
        group_id=request.group_id, topics=None if request.topics is None else tuple(topics)
    )
    return shape(groups=(group,), require_stable=getattr(request, "require_stable", False))


def _only_group(response: object, version: int) -> object:
    """OffsetFetch 1-7 answers about one group; 1 has no error but those of partitions."""
    answer = typing.cast("offset_fetch.OffsetFetchResponse", response)
    (only,) = answer.groups
    topics = only.topics
    if version == 1 and only.error_code:
        topics = tuple(
            replace(
                topic,
                partitions=tuple(
                    replace(one, error_code=only.error_code) for one in topic.partitions
                ),
            )
            for topic in topics
        )
    return SimpleNamespace(
        throttle_time=answer.throttle_time, topics=topics, error_code=only.error_code
    )


# --- Transactions: one item became several --------------------------------------------------------


def _list_transaction(old: object, shape: type) -> Steps[object]:
    """AddPartitionsToTxn 0-3 is about one transaction; 4 and later about several."""
    from kio.schema.add_partitions_to_txn.v5.request import (
        AddPartitionsToTxnTopic,
        AddPartitionsToTxnTransaction,
    )

    request = typing.cast("add_partitions_v3.AddPartitionsToTxnRequest", old)
    topics = []
    for topic in request.v3_and_below_topics:
        topics.append(AddPartitionsToTxnTopic(name=topic.name, partitions=topic.partitions))
        yield
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=tuple(topics),
    )
    return shape(transactions=(transaction,))


def _only_transaction(response: object, _version: int) -> object:
    """AddPartitionsToTxn 0-3 answers about one transaction."""
    answer = typing.cast("add_partitions.AddPartitionsToTxnResponse", response)
    (only,) = answer.results_by_transaction
    return SimpleNamespace(
        throttle_time=answer.throttle_time, results_by_topic_v3_and_below=only.topic_results
    )


REQUESTS: Mapping[int, tuple[int, Convert]] = {
    9: (7, _list_group_to_fetch),
    10: (3, _list_coordinator_key),
    13: (2, _list_leaving_member),
    20: (5, _name_topics_to_delete),
    24: (3, _list_transaction),
    57: (0, _type_feature_updates),
}

RESPONSES: Mapping[int, tuple[int, Restore]] = {
    9: (7, _only_group),
    10: (3, _only_coordinator),
    13: (2, _only_member),
    24: (3, _only_transaction),
}
