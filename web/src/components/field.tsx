import type { ComponentChildren, JSX } from "preact";

interface FieldProps {
  label: string;
  hint?: string;
  children: ComponentChildren;
}

/** A label with its input. */
export function Field({ label, hint, children }: FieldProps): JSX.Element {
  return (
    <label class="field">
      <span class="field-label">{label}</span>
      {children}
      {hint !== undefined && <small>{hint}</small>}
    </label>
  );
}

interface TextFieldProps {
  label: string;
  value: string;
  onInput: (value: string) => void;
  hint?: string;
  placeholder?: string;
  required?: boolean;
  type?: "text" | "number" | "search" | "password" | "url";
}

export function TextField({ label, value, onInput, hint, placeholder, required = false, type = "text" }: TextFieldProps): JSX.Element {
  return (
    <Field label={label} {...(hint === undefined ? {} : { hint })}>
      <input
        type={type as "text"}
        value={value}
        required={required}
        placeholder={placeholder ?? ""}
        autocomplete="off"
        spellcheck={false}
        onInput={(event) => onInput(event.currentTarget.value)}
      />
    </Field>
  );
}

/** A search field for a list; its text is in the address. */
export function Filter({ label, value, onInput }: { label: string; value: string; onInput: (value: string) => void }): JSX.Element {
  return (
    <input
      type="search"
      class="filter"
      aria-label={label}
      placeholder={label}
      value={value}
      spellcheck={false}
      onInput={(event) => onInput(event.currentTarget.value)}
    />
  );
}
