import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { useData } from "../api";
import { mayChange } from "../session";
import { count } from "../numbers";
import { Link, path } from "../router";
import type { RecordRow } from "../records";
import { timeText } from "../time";
import { Produce } from "./produce_dialog";
import { ShownBlock } from "./shown_value";
import { Shown } from "./states";

/** Everything about one record. */
export function RecordView({ topic, partition, offset }: { topic: string; partition: string; offset: string }): JSX.Element {
  const place = `/topics/${encodeURIComponent(topic)}/records/${partition}/${offset}`;
  const [again, setAgain] = useState(false);
  const record = useData<RecordRow>(place);
  return (
    <Shown of={record}>
      {(row) => (
        <div class="record">
          <dl class="facts">
            <dt>Record</dt>
            <dd>
              <Link to={path("topics", topic, partition, offset)}>
                {topic}, partition {row.partition}, offset {count(row.offset)}
              </Link>
            </dd>
            <dt>Time</dt>
            <dd>
              {timeText(row.timestamp)} <span class="muted">{row.append_time ? "set by the broker" : "set by the producer"}</span>
            </dd>
            <Trace headers={row.headers} />
          </dl>
          {mayChange() && (
            <p>
              <button type="button" onClick={() => setAgain(true)}>
                Produce again
              </button>
            </p>
          )}
          <h3>Key</h3>
          <ShownBlock of={row.key} download={`/api${place}/key`} />
          <h3>Value</h3>
          <ShownBlock of={row.value} download={`/api${place}/value`} />
          <h3>Headers</h3>
          {row.headers.length === 0 ? (
            <p class="muted">none</p>
          ) : (
            <dl class="facts">
              {row.headers.map((header, index) => (
                <>
                  <dt key={`name-${index}`}>
                    <bdi>{header.name}</bdi>
                  </dt>
                  <dd key={`value-${index}`}>{header.value === null ? <span class="null">null</span> : <bdi class="mono">{header.value.format === "hex" ? `0x${header.value.text}` : header.value.text}</bdi>}</dd>
                </>
              ))}
            </dl>
          )}
          {row.header_count > row.headers.length && <p class="muted">{count(row.header_count - row.headers.length)} more headers are not shown.</p>}
          {again && <Produce topic={topic} from={row} onClose={() => setAgain(false)} />}
        </div>
      )}
    </Shown>
  );
}

/** The trace of a record whose producer was traced: header `traceparent` of the W3C's Trace Context. */
function Trace({ headers }: { headers: RecordRow["headers"] }): JSX.Element | null {
  const text = headers.find((each) => each.name.toLowerCase() === "traceparent")?.value?.text ?? "";
  const found = /^[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})/.exec(text);
  if (found === null || /^0+$/.test(found[1]!)) return null;
  const sampled = (parseInt(found[3]!, 16) & 1) === 1;
  return (
    <>
      <dt>Trace id</dt>
      <dd>
        <code>{found[1]}</code> <span class="muted">span {found[2]}{sampled ? "" : ", not recorded"}</span>
      </dd>
    </>
  );
}
