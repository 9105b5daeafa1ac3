import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { patch, put, useData } from "../api";
import { Dialog, kafkaTool, quoted } from "../components/dialog";
import { TextField } from "../components/field";
import { notify } from "../components/notices";

/** A topic gets more partitions; it cannot have fewer. */
export function AddPartitions({ topic, onClose }: { topic: string; onClose: () => void }): JSX.Element {
  const info = useData<{ partitions: unknown[] }>(`/topics/${encodeURIComponent(topic)}`);
  const now = info.data?.partitions.length;
  const [total, setTotal] = useState("");
  const submit = async () => {
    await patch(`/topics/${encodeURIComponent(topic)}/partitions`, { partitions: total });
    notify(`Topic ${topic} has ${total} partitions.`);
  };
  return (
    <Dialog title={`Add partitions to ${topic}`} action="Add" command={`headrace topics add-partitions ${quoted(topic)} ${total || "N"}`} onSubmit={submit} onClose={onClose}>
      <p>{now === undefined ? "" : `The topic has ${now} partitions now. `}Partitions cannot be removed. Records with the same key may go to another partition from then on.</p>
      <TextField label="Partitions in total" type="number" value={total} onInput={setTotal} required />
    </Dialog>
  );
}

interface MoveReplicasProps {
  topic: string;
  partition: number;
  replicas: number[];
  onClose: () => void;
}

/** New replicas for a partition. The cluster copies the data in the background. */
export function MoveReplicas({ topic, partition, replicas, onClose }: MoveReplicasProps): JSX.Element {
  const [text, setText] = useState(replicas.join(", "));
  const wanted = text.split(/[\s,]+/).filter(Boolean);
  const submit = async () => {
    await put(`/reassignments/${encodeURIComponent(topic)}/${partition}`, { replicas: wanted });
    notify(`The replicas of ${topic}-${partition} are moving.`);
  };
  return (
    <Dialog title={`Move the replicas of ${topic}-${partition}`} action="Move" command={reassignmentLine(topic, partition, wanted.map(Number), "--execute")} onSubmit={submit} onClose={onClose}>
      <TextField label="Brokers, the preferred leader first" value={text} onInput={setText} required />
      <p class="muted">The page Brokers, Reassignments shows the progress, and can cancel it.</p>
    </Dialog>
  );
}

export function reassignmentLine(topic: string, partition: number, replicas: number[], action: "--execute" | "--cancel"): string {
  const plan = JSON.stringify({ version: 1, partitions: [{ topic, partition, replicas }] });
  return `${kafkaTool("kafka-reassign-partitions", "--reassignment-json-file", "/dev/stdin", action)} <<< ${quoted(plan)}`;
}
