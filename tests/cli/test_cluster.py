"""`headrace cluster`."""

from tests.cli.conftest import Run


def test_describe_names_the_brokers_the_controller_and_the_apis(
    run: Run, bootstrap: str, topic: str
) -> None:
    found = run("cluster", "describe", "--json").document()
    assert found["cluster_id"]
    brokers = found["brokers"]
    assert isinstance(brokers, list)
    assert f"{brokers[0]['host']}:{brokers[0]['port']}" == bootstrap
    assert found["controller"] in [each["id"] for each in brokers]
    partitions = found["partitions"]
    assert isinstance(partitions, int)
    assert partitions >= 3
    apis = found["apis"]
    assert isinstance(apis, list)
    ranges = {each["name"]: (each["min"], each["max"]) for each in apis}
    assert ranges["Produce"][1] >= 10
    assert ranges["Metadata"][1] >= 12
    assert isinstance(found["features"], dict)


def test_people_see_the_cluster_id_and_the_api_table(run: Run) -> None:
    shown = run("cluster", "describe", "--apis").text
    assert "Cluster id" in shown
    assert "ApiVersions" in shown
