import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { EditorView } from "@codemirror/view";
import { Echo } from "./echo";

interface EditorProps {
  label: string;
  value: string;
  onInput: (value: string) => void;
  readOnly?: boolean;
}

/** An editor for JSON. The library is loaded when the first editor is shown; until then, and for screen readers, it is a text area. */
export function Editor({ label, value, onInput, readOnly = false }: EditorProps): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView | null>(null);
  const echo = useRef(new Echo());
  const input = useRef(onInput);
  const [ready, setReady] = useState(false);
  input.current = onInput;
  useEffect(() => {
    let ended = false;
    void import("./codemirror").then(({ jsonEditor }) => {
      if (ended || box.current === null) return;
      view.current = jsonEditor(box.current, label, value, readOnly, (text) => {
        echo.current.report(text);
        input.current(text);
      });
      setReady(true);
    });
    return () => {
      ended = true;
      view.current?.destroy();
    };
  }, []);
  useEffect(() => {
    const current = view.current;
    if (!echo.current.isOwn(value) && current !== null && current.state.doc.toString() !== value) current.dispatch({ changes: { from: 0, to: current.state.doc.length, insert: value } });
  }, [value]);
  return (
    <div class="editor">
      <div ref={box} />
      {!ready && <textarea aria-label={label} rows={8} value={value} readOnly={readOnly} onInput={(event) => onInput(event.currentTarget.value)} />}
    </div>
  );
}

/** Two texts beside each other, with their differences marked. */
export function Difference({ before, after }: { before: string; after: string }): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    let end: (() => void) | undefined;
    let ended = false;
    void import("./codemirror").then(({ difference }) => {
      if (!ended && box.current !== null) end = difference(box.current, before, after);
    });
    return () => {
      ended = true;
      end?.();
    };
  }, [before, after]);
  return <div class="editor" ref={box} role="group" aria-label="Difference between the two versions" />;
}
