"""The output of `cluster describe` for a person."""

from headrace.admin.cluster_view import ClusterView
from headrace.cli import output

SHOWN_PARTITIONS = 10


def show(view: ClusterView, *, apis: bool) -> None:
    """Print the view as tables."""
    features = sorted(view.features.items())
    absent = ", ".join(map(str, view.absent_brokers))
    facts = {
        "Cluster id": view.cluster_id,
        "Controller": "none" if view.controller is None else f"broker {view.controller}",
        "Topics": f"{view.topics:,} with {view.partitions:,} partitions",
        "Under-replicated": _some(view.under_replicated),
        "Under min ISR": _some(view.under_min_isr),
        "Offline": _some(view.offline),
        "Moving": _some(view.moving),
        "Features": ", ".join(f"{name}={level}" for name, level in features) or "-",
    }
    if absent:
        facts["Absent brokers"] = f"{absent} (they hold replicas)"
    output.print_facts(facts)
    print()
    output.print_table(
        ("Broker", "Address", "Rack", "Leaders", "Skew", "Replicas", "Role"),
        [
            (
                str(each.id),
                f"{each.host}:{each.port}",
                each.rack or "-",
                output.number(each.leaders),
                f"{each.leader_skew_percent:+d} %",
                output.number(each.replicas),
                "controller" if each.controller else "",
            )
            for each in view.brokers
        ],
        numbers=("Broker", "Leaders", "Skew", "Replicas"),
    )
    if apis:
        print()
        output.print_table(
            ("Key", "API", "Versions"),
            [(str(api.key), api.name, f"{api.min} to {api.max}") for api in view.apis],
            numbers=("Key",),
        )


def _some(names: list[str]) -> str:
    if not names:
        return "none"
    more = f" and {len(names) - SHOWN_PARTITIONS:,} more" if len(names) > SHOWN_PARTITIONS else ""
    return f"{len(names):,}: {', '.join(names[:SHOWN_PARTITIONS])}{more}"
