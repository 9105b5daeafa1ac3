import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { post, remove, useData, type Long } from "../api";
import { Dialog, quoted } from "../components/dialog";
import { notify } from "../components/notices";
import { Badge, Shown } from "../components/states";
import { Table, byNumber, byText } from "../components/table";
import { count } from "../numbers";
import { Link, path } from "../router";
import { mayAdminister } from "../session";
import { durationText } from "../time";

interface Open {
  id: string;
  state: string;
  producer_id: Long;
  epoch: number;
  timeout_ms: number;
  age_ms: number | null;
  partitions: string[];
}

interface Hold {
  producer_id: Long;
  epoch: number;
  start: Long;
  id: string | null;
  state: string | null;
  hanging: boolean;
}

interface Held {
  topic: string;
  partition: number;
  last_stable: Long;
  end: Long;
  hidden: Long;
  holds: Hold[];
}

type Aborting = { id: string } | { topic: string; partition: number; start: Long };

export default function Transactions(): JSX.Element {
  const open = useData<{ transactions: Open[] }>("/transactions", 5000);
  const held = useData<{ partitions: Held[] }>("/held-partitions", 10_000);
  const [aborting, setAborting] = useState<Aborting | null>(null);
  return (
    <div class="page">
      <div class="page-head">
        <h1>Transactions</h1>
      </div>
      <h2>Open transactions</h2>
      <Shown of={open}>
        {(data) => (
          <Table
            label="Open transactions"
            rows={data.transactions}
            id={(row) => row.id}
            empty="No transaction is open."
            columns={[
              { key: "id", title: "Transactional id", cell: (row) => <code>{row.id}</code>, compare: byText((row) => row.id) },
              { key: "state", title: "State", cell: (row) => row.state },
              { key: "age", title: "Age", cell: (row) => (row.age_ms === null ? "unknown" : <Badge kind={row.age_ms > row.timeout_ms ? "bad" : ""}>{durationText(row.age_ms)}</Badge>), compare: byNumber((row) => row.age_ms), number: true },
              { key: "timeout", title: "Timeout", cell: (row) => durationText(row.timeout_ms), number: true, optional: true },
              { key: "producer", title: "Producer", cell: (row) => `${row.producer_id}, epoch ${row.epoch}`, optional: true },
              { key: "partitions", title: "Partitions", cell: (row) => row.partitions.join(", ") },
              { key: "abort", title: "Action", cell: (row) => mayAdminister() && <button type="button" class="link" aria-label={`Abort ${row.id}`} onClick={() => setAborting({ id: row.id })}>Abort</button> },
            ]}
          />
        )}
      </Shown>
      <h2>What readers of committed records do not see</h2>
      <Shown of={held}>
        {(data) => (
          <Table
            label="Held partitions"
            sortParam="held"
            rows={data.partitions}
            id={(row) => `${row.topic}-${row.partition}`}
            empty="No partition is held back: the last stable offset is the end everywhere."
            columns={[
              { key: "place", title: "Partition", cell: (row) => <Link to={path("topics", row.topic)}>{`${row.topic}-${row.partition}`}</Link>, compare: byText((row) => row.topic) },
              { key: "stable", title: "Last stable offset", cell: (row) => count(row.last_stable), number: true },
              { key: "hidden", title: "Records not visible", cell: (row) => count(row.hidden), compare: byNumber((row) => BigInt(row.hidden)), number: true },
              {
                key: "holds",
                title: "Held by",
                cell: (row) =>
                  row.holds.map((hold) => (
                    <div key={hold.start}>
                      {hold.hanging ? <Badge kind="bad">hanging</Badge> : <code>{hold.id}</code>} from offset {count(hold.start)}
                      {mayAdminister() && (
                        <>
                          {" "}
                          <button type="button" class="link" aria-label={`Abort the transaction at ${row.topic}-${row.partition} offset ${hold.start}`} onClick={() => setAborting(hold.id === null ? { topic: row.topic, partition: row.partition, start: hold.start } : { id: hold.id })}>
                            Abort
                          </button>
                        </>
                      )}
                    </div>
                  )),
              },
            ]}
          />
        )}
      </Shown>
      {aborting !== null && (
        <Dialog
          title="Abort transaction"
          action="Abort"
          dangerous
          command={"id" in aborting ? `headrace transactions abort ${quoted(aborting.id)} --yes` : `headrace transactions abort --topic ${quoted(aborting.topic)} --partition ${aborting.partition} --start-offset ${aborting.start} --yes`}
          onClose={() => setAborting(null)}
          onSubmit={async () => {
            if ("id" in aborting) await remove(`/transactions/${encodeURIComponent(aborting.id)}`);
            else await post("/held-partitions/abort", aborting);
            notify("The transaction was aborted.");
            open.reload();
            held.reload();
          }}
        >
          <p>
            {"id" in aborting
              ? `The records that ${aborting.id} has written in its open transaction are discarded, and its producer is fenced.`
              : "No coordinator knows this transaction. Its records in the partition are discarded."}
          </p>
        </Dialog>
      )}
    </div>
  );
}
