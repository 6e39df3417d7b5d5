import type { Part } from "../lib/sentence";

export function Sentence({ parts }: { parts: Part[] }) {
  return (
    <h1 className="say">
      {parts.map((part, i) => (part.strong ? <b key={i}>{part.text}</b> : <span key={i}>{part.text}</span>))}
    </h1>
  );
}
