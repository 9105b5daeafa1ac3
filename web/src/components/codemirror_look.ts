// The look of all editors, and where they are put.

import { HighlightStyle, syntaxHighlighting } from "@codemirror/language";
import { EditorView } from "@codemirror/view";
import { tags } from "@lezer/highlight";

export const look = EditorView.theme({
  "&": { backgroundColor: "var(--surface)", color: "var(--text)", fontSize: "13px" },
  ".cm-content": { fontFamily: "var(--mono)", caretColor: "var(--text)" },
  ".cm-gutters": { backgroundColor: "var(--raised)", color: "var(--muted)", border: "0" },
  "&.cm-focused": { outline: "2px solid var(--accent)" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "transparent" },
  ".cm-collapsedLines": { color: "var(--muted)", background: "var(--raised)" },
  ".cm-changedLine": { backgroundColor: "var(--warning-surface) !important" },
  ".cm-selectionBackground": { backgroundColor: "var(--accent-surface) !important" },
  ".cm-tooltip": { backgroundColor: "var(--surface)", color: "var(--text)", border: "1px solid var(--line)", borderRadius: "6px" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul": { fontFamily: "var(--mono)", maxHeight: "16em" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li[aria-selected]": { backgroundColor: "var(--accent-surface)", color: "var(--text)" },
  ".cm-completionDetail": { color: "var(--muted)" },
});

export const colours = syntaxHighlighting(
  HighlightStyle.define([
    { tag: tags.propertyName, color: "var(--accent)" },
    { tag: tags.string, color: "var(--ok)" },
    { tag: tags.number, color: "var(--warning)" },
    { tag: [tags.bool, tags.null], color: "var(--bad)" },
    { tag: [tags.keyword, tags.typeName], color: "var(--accent)", fontWeight: "600" },
    { tag: tags.comment, color: "var(--muted)", fontStyle: "italic" },
  ]),
);

/** The page's policy allows no style elements. In a shadow root the library uses constructed style sheets, which need none. */
export function shadow(parent: HTMLElement): ShadowRoot {
  const host = document.createElement("div");
  parent.replaceChildren(host);
  return host.attachShadow({ mode: "open" });
}
