import { signal } from "@preact/signals";
import type { JSX } from "preact";

interface Notice {
  id: number;
  text: string;
}

const notices = signal<Notice[]>([]);
let last = 0;

/** Tells that something was done, for some seconds. */
export function notify(text: string): void {
  const id = ++last;
  notices.value = [...notices.value, { id, text }];
  window.setTimeout(() => {
    notices.value = notices.value.filter((each) => each.id !== id);
  }, 6000);
}

export function Notices(): JSX.Element {
  return (
    <div class="notices" role="status" aria-live="polite">
      {notices.value.map((each) => (
        <p key={each.id}>{each.text}</p>
      ))}
    </div>
  );
}
