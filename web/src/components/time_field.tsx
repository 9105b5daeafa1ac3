import type { JSX } from "preact";
import { zoneText } from "../time";
import { TextField } from "./field";

interface TimeFieldProps {
  /** What the time means: "Time", "From". */
  label: string;
  value: string;
  onInput: (value: string) => void;
  required?: boolean;
}

/** A time in the zone of the switch; `parseTime` reads it. */
export function TimeField({ label, value, onInput, required = false }: TimeFieldProps): JSX.Element {
  return <TextField label={`${label} (${zoneText()}, or with an offset)`} value={value} onInput={onInput} placeholder="2026-11-16 14:03:00" required={required} />;
}
