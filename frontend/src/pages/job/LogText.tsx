import stripAnsi from "strip-ansi";
import { memo } from "react";

const SHOWN = 3000;
const TIME = /^\[?(?:\d{4}-\d\d-\d\d[T ])?\d\d:\d\d:\d\d(?:[.,]\d+)?Z?\]?\s*/;

export function levelOf(line: string): "error" | "warn" | "notice" | "" {
  if (/\b(error|critical|fatal|traceback|exception|\w+Error)\b/i.test(line)) return "error";
  if (/\bwarn(ing)?\b/i.test(line)) return "warn";
  if (/\b(notice|checkpoint|resumed?)\b/i.test(line)) return "notice";
  return "";
}

function Marked({ text, search }: { text: string; search: string }) {
  if (!search) return <>{text}</>;
  const parts: string[] = [];
  const low = text.toLowerCase();
  const wanted = search.toLowerCase();
  let from = 0;
  for (let at = low.indexOf(wanted); at >= 0; at = low.indexOf(wanted, from)) {
    parts.push(text.slice(from, at), text.slice(at, at + wanted.length));
    from = at + wanted.length;
  }
  parts.push(text.slice(from));
  return <>{parts.map((part, i) => (i % 2 === 1 ? <mark key={i}>{part}</mark> : part))}</>;
}

const Line = memo(function Line({ line, search }: { line: string; search: string }) {
  const time = TIME.exec(line)?.[0] ?? "";
  return (
    <div className={levelOf(line)}>
      {time && <span className="lt">{time}</span>}
      <Marked text={line.slice(time.length) || " "} search={search} />
    </div>
  );
});

/** Longer lines stay as they are: looking for codes in them may take as long as their length squared. */
const LONGEST = 4000;
const plain = (line: string) => (line.length > LONGEST ? line : stripAnsi(line));

/** The last lines of a log, coloured by level; a terminal's colour codes are left out. */
export const LogText = memo(function LogText({ text, search }: { text: string; search: string }) {
  const lines = text.replace(/\n$/, "").split("\n");
  const first = Math.max(0, lines.length - SHOWN);
  return <>{lines.slice(first).map((line, i) => <Line key={first + i} line={plain(line)} search={search} />)}</>;
});
