import { useEffect, useRef } from "react";

export type Keymap = Record<string, (event: KeyboardEvent) => void>;

function typing(target: EventTarget | null): boolean {
  if (target instanceof HTMLInputElement && target.type === "checkbox") return false;
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}

/** Single keys and sequences ("g o"); silent while somebody types, while a dialog is open, or with a modifier held. */
export function useKeys(map: Keymap): void {
  const held = useRef(map);
  held.current = map;
  useEffect(() => {
    let prefix = "";
    let timer: ReturnType<typeof setTimeout> | undefined;
    const onKey = (event: KeyboardEvent) => {
      if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
      if (document.querySelector('[role="dialog"]')) return;
      const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
      const action = held.current[prefix ? `${prefix} ${key}` : key];
      const starts = !prefix && Object.keys(held.current).some((combo) => combo.startsWith(`${key} `));
      clearTimeout(timer);
      prefix = "";
      if (action) {
        event.preventDefault();
        action(event);
      } else if (starts) {
        prefix = key;
        timer = setTimeout(() => (prefix = ""), 1200);
      }
    };
    window.addEventListener("keydown", onKey);
    return () => {
      clearTimeout(timer);
      window.removeEventListener("keydown", onKey);
    };
  }, []);
}

/** The row that has the focus. */
export function focusedRow(): HTMLElement | null {
  return document.activeElement?.closest<HTMLElement>("main [data-row]") ?? null;
}

/** J and K walk the rows marked `data-row` of a page; Enter follows the link inside by itself. */
export function walkRows(step: 1 | -1): void {
  const rows = [...document.querySelectorAll<HTMLElement>("main [data-row]")];
  if (rows.length === 0) return;
  const at = rows.findIndex((row) => row.contains(document.activeElement));
  const next = rows[at < 0 ? (step > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, at + step))];
  next?.querySelector<HTMLElement>("a")?.focus();
  next?.scrollIntoView({ block: "nearest" });
}
