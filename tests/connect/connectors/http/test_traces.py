"""The trace of a sender continues in the records that Connect writes."""

from pathlib import Path

from tests.connect.connectors.http.test_webhook import WITHIN_S, RunningWebhook

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_the_traceparent_of_a_request_is_a_header_of_its_record(tmp_path: Path) -> None:
    running = RunningWebhook(tmp_path)
    try:
        posting = running.post(b"x", traceparent=TRACE, tracestate="vendor=1")
        (row,) = running.rows(1)
        running.commit()
        assert posting.result(WITHIN_S).status_code == 200
    finally:
        running.close()
    found = {each["key"]: each["value"] for each in row["headers"]}
    assert found["traceparent"] == TRACE.encode()
    assert found["tracestate"] == b"vendor=1"
