import type { JSX, RefObject } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Echo } from "./echo";
import type { SqlEditor as Loaded, SqlNames } from "./sql_codemirror";

interface SqlEditorProps {
  value: string;
  names: SqlNames;
  onInput: (value: string) => void;
  onRun: () => void;
  /** The library's editor, when it is there. */
  editor: RefObject<Loaded | null>;
}

const LABEL = "SQL statements";

/** The editor for SQL. Until its library is loaded it is a text area. */
export function SqlEditor({ value, names, onInput, onRun, editor }: SqlEditorProps): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const echo = useRef(new Echo());
  const latest = useRef({ value, names, onInput, onRun });
  const [ready, setReady] = useState(false);
  latest.current = { value, names, onInput, onRun };
  useEffect(() => {
    let ended = false;
    void import("./sql_codemirror").then(({ sqlEditor }) => {
      if (ended || box.current === null) return;
      const now = latest.current;
      const report = (text: string) => {
        echo.current.report(text);
        latest.current.onInput(text);
      };
      editor.current = sqlEditor(box.current, LABEL, now.value, () => latest.current.names, report, () => latest.current.onRun());
      setReady(true);
    });
    return () => {
      ended = true;
      editor.current?.view.destroy();
      editor.current = null;
    };
  }, []);
  useEffect(() => {
    const view = editor.current?.view;
    if (!echo.current.isOwn(value) && view !== undefined && view.state.doc.toString() !== value) view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: value } });
  }, [value, ready]);
  return (
    <div class="editor">
      <div ref={box} />
      {!ready && <textarea aria-label={LABEL} rows={8} value={value} onInput={(event) => onInput(event.currentTarget.value)} />}
    </div>
  );
}
