import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { post, type Long } from "../api";
import { Dialog, consoleRequest } from "../components/dialog";
import { Field, TextField } from "../components/field";
import { notify } from "../components/notices";
import { ShownLine } from "../components/shown_value";
import { Table } from "../components/table";
import { count } from "../numbers";
import { Refused, causeName, type Cause, type Letter, type Reason } from "./dead_letter_topic";

interface Plan {
  send: Long;
  passed_over: Long;
  topics: { topic: string; count: Long }[];
  refused: Reason[];
  first: (Letter & { to: string })[];
  scanned: Long;
  total: Long;
  stopped: string;
}

/** Sends letters back. Nothing is sent before a dry run has been shown. */
export function SendBack({ topic, cause, onClose }: { topic: string; cause: Cause | null; onClose: () => void }): JSX.Element {
  const [target, setTarget] = useState("");
  const [rate, setRate] = useState("100");
  const [start, setStart] = useState("rest");
  const [plan, setPlan] = useState<Plan | null>(null);
  const edit = (change: () => void) => {
    setPlan(null);
    change();
  };
  const base = `/dead-letters/${encodeURIComponent(topic)}`;
  const order = { target, cause: cause?.id ?? "", from_beginning: start === "all", rate };
  const submit = async (): Promise<void | "stay"> => {
    if (plan === null) {
      setPlan(await post<Plan>(`${base}/plan`, order));
      return "stay";
    }
    await post(`${base}/send`, order);
    return notify("Sending back has started.");
  };
  return (
    <Dialog
      title={cause === null ? `Send back letters of ${topic}` : `Send back letters: ${causeName(cause)}`}
      action={plan === null ? "Show what would be sent" : "Send back"}
      dangerous={plan !== null}
      disabled={plan !== null && plan.send === "0" && plan.stopped === ""}
      command={consoleRequest(`${base}/send`, order)}
      onSubmit={submit}
      onClose={onClose}
    >
      <TextField label="To topic" hint="Empty: each letter to the topic that it came from" value={target} onInput={(text) => edit(() => setTarget(text))} />
      <Field label="Start">
        <select value={start} onChange={(event) => edit(() => setStart(event.currentTarget.value))}>
          <option value="rest">where the last run ended</option>
          <option value="all">at the beginning: letters that were sent before are sent again</option>
        </select>
      </Field>
      <TextField label="Letters a second at most" type="number" value={rate} onInput={(text) => edit(() => setRate(text))} required />
      {plan !== null && <PlanText plan={plan} />}
    </Dialog>
  );
}

function PlanText({ plan }: { plan: Plan }): JSX.Element {
  return (
    <>
      <p role="status">
        {count(plan.send)} letters would be sent back{plan.topics.length > 0 && `: ${plan.topics.map((each) => `${count(each.count)} to ${each.topic}`).join(", ")}`}.
        {plan.passed_over !== "0" && ` ${count(plan.passed_over)} letters of other causes would be passed over; to send them later, start at the beginning.`}
        {plan.stopped !== "" && ` This is the plan of the first ${count(plan.scanned)} of ${count(plan.total)} offsets, because ${plan.stopped}; sending goes on to the end.`}
      </p>
      <Refused reasons={plan.refused} />
      {plan.first.length > 0 && (
        <Table
          label="First letters"
          sortParam="none"
          rows={plan.first}
          id={(row) => `${row.partition}:${row.offset}`}
          columns={[
            { key: "place", title: "Record", cell: (row) => `${row.partition} / ${count(row.offset)}` },
            { key: "to", title: "To", cell: (row) => row.to },
            { key: "value", title: "Value", cell: (row) => <ShownLine of={row.value} /> },
          ]}
        />
      )}
    </>
  );
}
