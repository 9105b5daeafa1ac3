import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { post, useData } from "../api";
import { Dialog, consoleRequest } from "../components/dialog";
import { Field } from "../components/field";
import { notify } from "../components/notices";
import { Shown } from "../components/states";
import { bytes, count } from "../numbers";
import type { Letter } from "./dead_letter_topic";

interface EditedText {
  format: "text" | "hex" | "large" | "masked";
  text: string;
  bytes: number;
}

interface LetterInfo extends Letter {
  done: boolean;
  stage: string | null;
  refused: string | null;
  resend: { topic: string; partition: number | null; key: EditedText | null; value: EditedText | null } | null;
}

/** One letter as it would be sent back; its key and value can be changed first. */
export function EditLetter({ topic, letter, onClose }: { topic: string; letter: Letter; onClose: () => void }): JSX.Element {
  const address = `/dead-letters/${encodeURIComponent(topic)}/${letter.partition}/${letter.offset}`;
  const [target, setTarget] = useState("");
  const info = useData<LetterInfo>(`${address}?target=${encodeURIComponent(target)}`);
  const [edits, setEdits] = useState<Record<string, string>>({});
  const resend = info.data?.resend ?? null;
  const body: Record<string, unknown> = { target };
  for (const name of ["key", "value"] as const) {
    const text = edits[name];
    if (text !== undefined) body[name] = { format: resend?.[name]?.format ?? "text", text };
  }
  const submit = async () => {
    const sent = await post<{ topic: string }>(address, body);
    notify(`The letter was sent to ${sent.topic}.`);
  };
  return (
    <Dialog title={`Edit and send partition ${letter.partition}, offset ${count(letter.offset)}`} action="Send" command={consoleRequest(address, body)} disabled={resend === null} onSubmit={submit} onClose={onClose}>
      <Field label="To topic" hint="Empty: the topic that it came from">
        <input type="text" value={target} autocomplete="off" spellcheck={false} onChange={(event) => setTarget(event.currentTarget.value)} />
      </Field>
      <Shown of={info}>
        {(data) => (
          <>
            {data.done && <p class="error">This letter was sent or passed over before.</p>}
            {data.refused !== null && <p class="error">It cannot be sent back: {data.refused}.</p>}
            {data.resend !== null && (
              <>
                <p>
                  To topic {data.resend.topic}
                  {data.resend.partition !== null && `, partition ${data.resend.partition}`}. The headers of the failure are removed; a header counts how often it was sent back ({count(data.resends)} so far).
                </p>
                {(["key", "value"] as const).map((name) => (
                  <Edited key={name} name={name} of={data.resend![name]} text={edits[name]} onInput={(text) => setEdits({ ...edits, [name]: text })} />
                ))}
              </>
            )}
          </>
        )}
      </Shown>
    </Dialog>
  );
}

function Edited({ name, of, text, onInput }: { name: "key" | "value"; of: EditedText | null; text: string | undefined; onInput: (text: string) => void }): JSX.Element {
  const label = name === "key" ? "Key" : "Value";
  if (of?.format === "large" || of?.format === "masked") {
    return (
      <p>
        {label}: {bytes(of.bytes)}, {of.format === "large" ? "too large to edit" : "not shown because it has masked fields"}; it is sent unchanged.
      </p>
    );
  }
  const hint = of === null ? "The record has none; leave it empty to send none" : of.format === "hex" ? "Not a text: hexadecimal digits" : `${bytes(of.bytes)} of text`;
  return (
    <Field label={label} hint={hint}>
      <textarea class="mono" rows={name === "key" ? 1 : 6} spellcheck={false} value={text ?? of?.text ?? ""} onInput={(event) => onInput(event.currentTarget.value)} />
    </Field>
  );
}
