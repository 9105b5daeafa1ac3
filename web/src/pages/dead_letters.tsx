import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { useData, type Long } from "../api";
import { TextField } from "../components/field";
import { Badge, Shown } from "../components/states";
import { Table, byNumber, byText } from "../components/table";
import { count } from "../numbers";
import { Link, navigate, path } from "../router";
import { DeadLetterTopic, type Job } from "./dead_letter_topic";

interface Row {
  name: string;
  letters: Long | null;
  left: Long | null;
  job: Job | null;
}

/** `/dead-letters` and `/dead-letters/TOPIC`. */
export default function DeadLetters({ parts }: { parts: string[] }): JSX.Element {
  return parts[0] === undefined ? <TopicList /> : <DeadLetterTopic key={parts[0]} topic={parts[0]} />;
}

function TopicList(): JSX.Element {
  const topics = useData<{ topics: Row[] }>("/dead-letters", 5000);
  const [other, setOther] = useState("");
  return (
    <div class="page">
      <div class="page-head">
        <h1>Dead letters</h1>
      </div>
      <Shown of={topics}>
        {(data) => (
          <Table
            label="Dead-letter topics"
            rows={data.topics}
            id={(row) => row.name}
            sort="-left"
            empty="No topic has a name such as orders-dlq, orders.DLT, dead-letters, errors or quarantine."
            columns={[
              { key: "name", title: "Topic", cell: (row) => <Link to={path("dead-letters", row.name)}>{row.name}</Link>, compare: byText((row) => row.name) },
              { key: "left", title: "Not sent back", cell: (row) => known(row.left), compare: byNumber((row) => (row.left === null ? null : BigInt(row.left))), number: true },
              { key: "letters", title: "Letters", cell: (row) => known(row.letters), compare: byNumber((row) => (row.letters === null ? null : BigInt(row.letters))), number: true },
              { key: "job", title: "Sending", cell: (row) => row.job !== null && <Badge kind={row.job.state === "failed" ? "bad" : ""}>{row.job.state}</Badge> },
            ]}
          />
        )}
      </Shown>
      <form
        class="toolbar"
        onSubmit={(event) => {
          event.preventDefault();
          if (other !== "") navigate(path("dead-letters", other));
        }}
      >
        <TextField label="Another topic that holds dead letters" value={other} onInput={setOther} required />
        <button type="submit">Show</button>
      </form>
      <p class="muted">
        The numbers are differences of offsets: they also count transaction markers and records that were compacted away. Recognised are letters of Kafka Connect, Kafka Streams, Spring, SmallRye and
        Headrace's quarantine.
      </p>
    </div>
  );
}

function known(value: Long | null): string {
  return value === null ? "unknown" : count(value);
}
