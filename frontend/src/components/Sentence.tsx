import type { Part } from "../lib/sentence/sentence";
import { sentenceOf } from "../lib/isolated";

export function Sentence({ parts }: { parts: Part[] }) {
  return (
    <h1 className="say">
      {parts.map((part, i) => (part.strong ? <b key={i}>{sentenceOf(part.text)}</b> : <span key={i}>{sentenceOf(part.text)}</span>))}
    </h1>
  );
}
