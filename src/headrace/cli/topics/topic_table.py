"""The output of `topics describe` as tables."""

from headrace.admin.topic_view import PartitionView, TopicView
from headrace.cli import output


def show(topic: TopicView) -> None:
    """Print the topic."""
    known = [part for part in topic.partitions if part.begin is not None and part.end is not None]
    records = sum((part.end or 0) - (part.begin or 0) for part in known)
    sizes = [part.size_bytes for part in topic.partitions if part.size_bytes is not None]
    facts = {
        "Topic": topic.name,
        "Id": topic.id,
        "Partitions": str(len(topic.partitions)),
        "Records": output.number(records),
        "Size": output.size(sum(sizes)) if sizes else "-",
    }
    for number, (name, value) in enumerate(topic.configs.items()):
        facts["Configs" if number == 0 else " " * number] = f"{name}={value}"
    if not topic.configs:
        facts["Configs"] = "all defaults"
    output.print_facts(facts)
    print()
    output.print_table(
        ("Partition", "Leader", "Replicas", "In sync", "Begin", "End", "Size"),
        [_row(part) for part in topic.partitions],
        numbers=("Partition", "Leader", "Begin", "End", "Size"),
    )
    print()


def _row(part: PartitionView) -> tuple[str, ...]:
    in_sync = ",".join(map(str, part.isr))
    return (
        str(part.partition),
        "[red]none[/]" if part.leader is None else str(part.leader),
        ",".join(map(str, part.replicas)),
        in_sync if len(part.isr) == len(part.replicas) else f"[yellow]{in_sync or 'none'}[/]",
        output.number(part.begin),
        output.number(part.end),
        output.size(part.size_bytes),
    )
