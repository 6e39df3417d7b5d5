import { Slider } from "@mantine/core";
import { useState } from "react";
import { memoryOf, partAsked, writePath, type JobFile } from "../../lib/jobfile/jobFile";
import { Field, type FieldError } from "./fields";
import { SLIDER } from "./slider";
import css from "./submit.module.css";

interface Props {
  gpus: JobFile;
  onChange: (gpus: JobFile) => void;
  errors: FieldError[];
}

const MARKS = [5, 25, 50, 75, 95].map((value) => ({ value, label: value }));
const OUTSIDE = { field: "gpus.share", message: "A whole number of percent, from 1 to 99, or a part as 0.25." };

/** Percent as they are typed, or a part of 1 as job files have it; null where it is neither. */
function percentOf(text: string): number | null {
  const part = /^0?[.,](\d{1,2})$/.exec(text.trim());
  const percent = part?.[1] ? Number(part[1].padEnd(2, "0")) : /^\d{1,2}$/.test(text.trim()) ? Number(text) : 0;
  return percent >= 1 ? percent : null;
}

/** A part of one GPU: how much of it, and how much of its memory. */
export function PartFields({ gpus, onChange, errors }: Props) {
  const [typed, setTyped] = useState<string | null>(null);
  const share = partAsked(gpus);
  const set = (percent: number) => onChange(writePath(gpus, "share", percent / 100));
  const shown = typed ?? String(share).replace(/ %$/, "");
  const wrong = percentOf(shown) === null;
  const type = (text: string) => {
    setTyped(text);
    const percent = percentOf(text);
    // What is no share stays in the file, as no number, which is refused for it, instead of the share before.
    if (percent === null) onChange({ ...gpus, share: `${text} %` });
    else set(percent);
  };
  return (
    <>
      <Field label="Share of one GPU" path="gpus.share" errors={wrong ? [OUTSIDE] : errors} hint="Other jobs may have the rest of it.">
        {(props) => (
          <div className={css.share}>
            <Slider {...SLIDER} min={5} max={95} step={5} marks={MARKS} value={typeof share === "number" ? share : 50} onChange={(percent) => { setTyped(null); set(percent); }} thumbLabel="Share of one GPU in steps of 5" />
            <span className="inw pad">
              <input {...props} name="gpus.share" className="in" inputMode="numeric" value={shown} onChange={(event) => type(event.target.value)} onBlur={() => wrong || setTyped(null)} />
              <span className="u">%</span>
            </span>
          </div>
        )}
      </Field>
      <Field label="GPU memory" path="gpus.memory" errors={errors} hint="Empty: its share of the smallest allowed GPU's memory.">
        {(props) => <input {...props} name="gpus.memory" className="in" placeholder="6GiB" value={String(gpus.memory ?? "")} onChange={(event) => onChange(writePath(gpus, "memory", memoryOf(event.target.value)))} />}
      </Field>
    </>
  );
}
