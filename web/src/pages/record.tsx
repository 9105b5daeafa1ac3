import type { JSX } from "preact";
import { RecordView } from "../components/record_view";
import { Unavailable } from "../components/states";
import { has, restriction } from "../session";
import { Link, path } from "../router";

/** One record with an address of its own, and its neighbours. */
export function RecordPage({ topic, partition, offset }: { topic: string; partition: string; offset: string }): JSX.Element {
  const number = /^\d+$/.test(offset) ? BigInt(offset) : null;
  return (
    <div class="page">
      <div class="page-head">
        <h1>
          <Link to={path("topics", topic)}>{topic}</Link> / {partition} / {offset}
        </h1>
        {number !== null && number > 0n && <Link to={path("topics", topic, partition, String(number - 1n))}>Previous</Link>}
        {number !== null && <Link to={path("topics", topic, partition, String(number + 1n))}>Next</Link>}
      </div>
      <div class="card">
        <h2>Record</h2>
        {has("read") ? <RecordView topic={topic} partition={partition} offset={offset} /> : <Unavailable why={restriction()} />}
      </div>
    </div>
  );
}
