import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError } from "../api";
import { session } from "../session";

interface DialogProps {
  title: string;
  /** Text of the button that submits. */
  action: string;
  /** Whether the action destroys something. */
  dangerous?: boolean;
  /** The command line that does the same. */
  command?: string;
  disabled?: boolean;
  /** The dialog closes after it, unless the result is "stay": then it has shown something new. */
  onSubmit: () => Promise<void | "stay">;
  onClose: () => void;
  children: ComponentChildren;
}

/** A form above the page. An error of its action is shown in it, and what was entered stays. */
export function Dialog({ title, action, dangerous = false, command, disabled = false, onSubmit, onClose, children }: DialogProps): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null);
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    dialog.current?.showModal();
    return () => dialog.current?.close();
  }, []);
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setError("");
    try {
      if ((await onSubmit()) !== "stay") return onClose();
      setBusy(false);
    } catch (problem) {
      setError(problem instanceof ApiError ? problem.message : String(problem));
      setBusy(false);
    }
  };
  return (
    <dialog ref={dialog} class="dialog" aria-labelledby="dialog-title" onCancel={onClose} onClose={onClose}>
      <form onSubmit={submit}>
        <h2 id="dialog-title">{title}</h2>
        {children}
        {command !== undefined && <CliLine command={command} />}
        {error !== "" && (
          <p class="error" role="alert">
            {error}
          </p>
        )}
        <div class="dialog-buttons">
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class={dangerous ? "primary danger" : "primary"} disabled={busy || disabled}>
            {busy ? "Working…" : action}
          </button>
        </div>
      </form>
    </dialog>
  );
}

/** The command line that does the same as a form. */
export function CliLine({ command }: { command: string }): JSX.Element {
  return (
    <p class="cli">
      <span>On the command line: </span>
      <code>{command}</code>
    </p>
  );
}

/** A line of one of Kafka's own tools, for what `headrace` has no command for. */
export function kafkaTool(name: string, ...rest: string[]): string {
  return [`${name}.sh`, "--bootstrap-server", quoted(session.value.data?.bootstrap ?? ""), ...rest].join(" ");
}

/** A request to this console, for what only it can do. */
export function consoleRequest(address: string, body: unknown): string {
  return `curl --json ${quoted(JSON.stringify(body))} ${quoted(`${window.location.origin}/api${address}`)}`;
}

/** Quotes a word for a shell. */
export function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}
