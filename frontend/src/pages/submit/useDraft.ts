import { useMemo, useState } from "react";
import type { Session } from "../../api/types";
import { parseYaml, readPath, toYaml, writePath, type JobFile } from "../../lib/jobfile/jobFile";
import { randomKey } from "../../lib/randomKey";

const KEY = "evenkeel-draft";

function blank(session: Session): JobFile {
  const project = session.projects[0]?.key;
  return { ...(project ? { project } : {}), gpus: { min: 1, max: 4 }, total_steps: 2000 };
}

function stored(): JobFile | null {
  try {
    const value: unknown = JSON.parse(sessionStorage.getItem(KEY) ?? "null");
    return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as JobFile) : null;
  } catch {
    return null;
  }
}

function store(file: JobFile | null): void {
  try {
    if (file) sessionStorage.setItem(KEY, JSON.stringify(file));
    else sessionStorage.removeItem(KEY);
  } catch {
    // Storage is off: the draft lasts as long as the page.
  }
}

export interface Draft {
  file: JobFile;
  text: string;
  key: string;
  /** How often another file took its place. */
  begun: number;
  get: (path: string) => unknown;
  set: (path: string, value: unknown) => void;
  /** A program of the catalogue, or none: then the command counts. Never both. */
  chooseModel: (name: string | undefined) => void;
  setText: (text: string) => void;
  showText: () => void;
  /** Another file in its place. */
  begin: (file: JobFile) => void;
  clear: () => void;
}

/** One job file behind both tabs, of a new job or of `again`, which is to be repeated with changes. Its Idempotency-Key stays while it does: sending it twice makes one job. */
export function useDraft(session: Session, again?: JobFile): Draft {
  const [file, setFile] = useState<JobFile>(() => again ?? stored() ?? blank(session));
  const [text, setTextState] = useState(() => toYaml(file));
  const [begun, setBegun] = useState(0);
  const key = useMemo(randomKey, [file, text]);
  const replace = (next: JobFile) => {
    setFile(next);
    if (!again) store(next); // the draft of a new job is not lost to the repetition of another
  };
  return {
    file, text, key, begun,
    get: (path) => readPath(file, path),
    set: (path, value) => replace(writePath(file, path, value)),
    chooseModel: (name) => replace(name ? writePath(writePath(file, "command", undefined), "model_type", name) : writePath(file, "model_type", undefined)),
    setText: (next) => {
      setTextState(next);
      const parsed = parseYaml(next).file;
      if (parsed) replace(parsed);
    },
    showText: () => setTextState(toYaml(file)),
    begin: (next) => {
      replace(next);
      setTextState(toYaml(next));
      setBegun(begun + 1);
    },
    clear: () => {
      const next = again ?? blank(session);
      setFile(next);
      setTextState(toYaml(next));
      if (!again) store(null);
    },
  };
}
