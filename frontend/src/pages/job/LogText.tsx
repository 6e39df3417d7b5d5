import stripAnsi from "strip-ansi";
import { memo, useState } from "react";

const SHOWN = 3000;
/** Characters of a line that are shown until more is asked for; looking for codes in more may take as long as its square. */
const LONGEST = 4000;
const TIME = /^\[?(?:\d{4}-\d\d-\d\d[T ])?\d\d:\d\d:\d\d(?:[.,]\d+)?Z?\]?\s*/;
/** What turns the direction of text, or is not seen at all, and the controls that strip-ansi leaves. */
// eslint-disable-next-line no-control-regex
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

export function levelOf(line: string): "error" | "warn" | "notice" | "" {
  if (/\b(error|critical|fatal|traceback|exception|\w+Error)\b/i.test(line)) return "error";
  if (/\bwarn(ing)?\b/i.test(line)) return "warn";
  if (/\b(notice|checkpoint|resumed?)\b/i.test(line)) return "notice";
  return "";
}

/** What a terminal shows of a line: of the states of a progress bar the last. */
export function lastState(line: string): string {
  const body = line.replace(/\r+$/, "");
  return body.slice(body.lastIndexOf("\r") + 1);
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

const plain = (line: string) => stripAnsi(line).replace(UNSEEN, "");

const Line = memo(function Line({ line, search }: { line: string; search: string }) {
  const [whole, setWhole] = useState(false);
  const cut = line.length > LONGEST && !whole;
  const text = line.length > LONGEST ? (cut ? plain(line.slice(0, LONGEST)) : line.replace(UNSEEN, "")) : plain(line);
  const time = TIME.exec(text)?.[0] ?? "";
  return (
    <div className={levelOf(text.slice(0, LONGEST))}>
      {time && <span className="lt">{time}</span>}
      <Marked text={text.slice(time.length) || " "} search={search} />
      {cut && <button type="button" className="more" onClick={() => setWhole(true)}>… {(line.length - LONGEST).toLocaleString("en")} more characters</button>}
    </div>
  );
});

/** The last lines of a log as a terminal shows them, coloured by level; its codes are left out. */
export const LogText = memo(function LogText({ text, search }: { text: string; search: string }) {
  const lines = text.replace(/\n$/, "").split("\n");
  const first = Math.max(0, lines.length - SHOWN);
  return <>{lines.slice(first).map((line, i) => <Line key={first + i} line={lastState(line)} search={search} />)}</>;
});
