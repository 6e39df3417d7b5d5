import { useRef } from "react";
import type { ParsedYaml } from "../../lib/jobfile/jobFile";
import type { FieldError } from "./fields";
import css from "./submit.module.css";

interface Props {
  text: string;
  onChange: (text: string) => void;
  parsed: ParsedYaml;
  errors: FieldError[];
}

const KEY = /^(\s*(?:- )?)([\w.-]+)(:)(.*)$/;

function Coloured({ line }: { line: string }) {
  const comment = /(^|\s)#.*$/.exec(line);
  const code = comment ? line.slice(0, comment.index) : line;
  const match = KEY.exec(code);
  return (
    <>
      {match ? <>{match[1]}<span className={css.key}>{match[2]}</span>{match[3]}{match[4]}</> : code}
      {comment && <span className={css.comment}>{line.slice(comment.index)}</span>}
    </>
  );
}

/** A plain text area over a coloured copy of itself; what is wrong stands at its line. */
export default function YamlTab({ text, onChange, parsed, errors }: Props) {
  const back = useRef<HTMLDivElement>(null);
  const at = new Map<number, string[]>();
  const put = (line: number, message: string) => at.set(line, [...(at.get(line) ?? []), message]);
  for (const problem of parsed.problems) put(problem.line, problem.message);
  for (const error of errors) put(parsed.lineOf(error.field) ?? 1, `${error.field}: ${error.message}`);
  const lines = text.split("\n");
  return (
    <div className={css.yaml}>
      <div ref={back} className={`mono ${css.back}`} aria-hidden>
        {lines.map((line, i) => (
          <div key={i} className={at.has(i + 1) ? css.wrong : ""}>
            <span className={css.no}>{i + 1}</span>
            <Coloured line={line} />
            {at.has(i + 1) && <span className={css.says}>{at.get(i + 1)?.join("; ")}</span>}
            {"\n"}
          </div>
        ))}
      </div>
      <textarea
        className={`mono ${css.front}`} spellCheck={false} wrap="off" aria-label="Job file in YAML" aria-invalid={at.size > 0} aria-describedby="yaml-errors" rows={Math.max(lines.length + 1, 20)}
        value={text} onChange={(event) => onChange(event.target.value)}
        onScroll={(event) => { if (back.current) back.current.style.transform = `translateX(${-event.currentTarget.scrollLeft}px)`; }}
      />
      <div id="yaml-errors" className="vh" role="status">{[...at].map(([line, messages]) => `Line ${line}: ${messages.join("; ")}`).join(". ")}</div>
    </div>
  );
}
