import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { ApiError, post, type Long } from "../api";
import { Dialog, quoted } from "../components/dialog";
import { Field, TextField } from "../components/field";
import { notify } from "../components/notices";
import { Table } from "../components/table";
import { TimeField } from "../components/time_field";
import { count } from "../numbers";
import { notATime, parseTime } from "../time";
import type { GroupInfo } from "./group";

interface Change {
  topic: string;
  partition: number;
  from: Long | null;
  to: Long;
  difference: Long | null;
  limited: boolean;
}

const OPTIONS: Record<string, string> = { beginning: "--to-earliest", end: "--to-latest", offset: "--to-offset", time: "--to-time", shift: "--shift-by" };

/** New offsets for a group. Nothing is written before the change of every partition has been shown. */
export function ResetOffsets({ group, onClose }: { group: GroupInfo; onClose: () => void }): JSX.Element {
  const topics = [...new Set(group.partitions.map((row) => row.topic))];
  const [to, setTo] = useState("beginning");
  const [value, setValue] = useState("");
  const [topic, setTopic] = useState("");
  const [plan, setPlan] = useState<Change[] | null>(null);
  const edit = (change: () => void) => {
    setPlan(null);
    change();
  };
  const target = () => {
    if (to !== "time") return value;
    const moment = parseTime(value);
    if (moment === null) throw new ApiError(0, notATime(value));
    return String(moment);
  };
  const submit = async (): Promise<void | "stay"> => {
    const base = `/groups/${encodeURIComponent(group.name)}`;
    if (plan === null) {
      const found = await post<{ changes: Change[] }>(`${base}/reset-plan`, { to, value: target(), topics: topic === "" ? null : [topic] });
      setPlan(found.changes);
      return "stay";
    }
    await post(`${base}/reset`, { changes: plan });
    return notify(`The offsets of ${group.name} were reset.`);
  };
  const again = plan?.reduce((total, each) => total + (each.difference !== null && each.difference.startsWith("-") ? -BigInt(each.difference) : 0n), 0n) ?? 0n;
  const skipped = plan?.reduce((total, each) => total + (each.difference !== null && !each.difference.startsWith("-") ? BigInt(each.difference) : 0n), 0n) ?? 0n;
  const scope = topic === "" ? "--all-topics" : `--topic ${quoted(topic)}`;
  // The command line reads a time without an offset in the zone of its machine.
  const moment = to === "time" ? parseTime(value) : null;
  const commandValue = moment === null ? value : new Date(moment).toISOString();
  const option = `${OPTIONS[to]}${to === "beginning" || to === "end" ? "" : ` ${quoted(commandValue || "VALUE")}`}`;
  return (
    <Dialog
      title={`Reset offsets of ${group.name}`}
      action={plan === null ? "Show what changes" : `Reset ${plan.length} partitions`}
      dangerous={plan !== null}
      disabled={plan !== null && plan.length === 0}
      command={`headrace groups reset-offsets ${quoted(group.name)} ${scope} ${option} --yes`}
      onSubmit={submit}
      onClose={onClose}
    >
      {group.members.length > 0 && <p class="error">The group has active members. Stop its consumers first.</p>}
      <Field label="Topic">
        <select value={topic} onChange={(event) => edit(() => setTopic(event.currentTarget.value))}>
          <option value="">all topics of the group</option>
          {topics.map((name) => (
            <option key={name}>{name}</option>
          ))}
        </select>
      </Field>
      <Field label="To">
        <select value={to} onChange={(event) => edit(() => setTo(event.currentTarget.value))}>
          <option value="beginning">the beginning</option>
          <option value="end">the end</option>
          <option value="time">a time</option>
          <option value="offset">an offset</option>
          <option value="shift">a shift by records</option>
        </select>
      </Field>
      {to === "time" && <TimeField label="Time" value={value} onInput={(text) => edit(() => setValue(text))} required />}
      {to === "offset" && <TextField label="Offset" value={value} onInput={(text) => edit(() => setValue(text))} required />}
      {to === "shift" && <TextField label="Records; a negative number moves back" value={value} onInput={(text) => edit(() => setValue(text))} required />}
      {plan !== null && (
        <>
          <p role="status">
            {again > 0n && `The group would read ${count(String(again))} records again. `}
            {skipped > 0n && `It would skip ${count(String(skipped))} records. `}
            {again === 0n && skipped === 0n && "Nothing would change for the offsets that are known."}
          </p>
          <Table
            label="Changes"
            sortParam="none"
            rows={plan}
            id={(row) => `${row.topic}-${row.partition}`}
            empty="The group has no offsets to reset."
            columns={[
              { key: "place", title: "Partition", cell: (row) => `${row.topic}-${row.partition}` },
              { key: "from", title: "Now", cell: (row) => (row.from === null ? "none" : count(row.from)), number: true },
              { key: "to", title: "New", cell: (row) => count(row.to), number: true },
              { key: "difference", title: "Difference", cell: (row) => (row.difference === null ? "new" : count(row.difference)), number: true },
            ]}
          />
        </>
      )}
    </Dialog>
  );
}
