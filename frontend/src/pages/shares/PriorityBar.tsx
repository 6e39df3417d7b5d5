import type { Factor } from "../../api/types";
import { fixed, integer, trimmed } from "../../lib/format";
import { tone } from "../../lib/tone";

const WORDS: Record<string, string> = {
  age: "waiting", assoc: "project", fair_share: "fair share", job_size: "size", partition: "partition", qos: "level",
};

export const factorWord = (name: string) => WORDS[name] ?? name;
const shown = (factors: Factor[]) => factors.filter((factor) => factor.weight > 0);

/** What a priority is made of, each part as wide as its points; `most`: the points of the whole width. */
export function PriorityBar({ factors, most, height = 8 }: { factors: Factor[]; most: number; height?: number }) {
  const parts = shown(factors);
  const words = parts.map((factor) => `${factorWord(factor.name)} ${integer(Math.round(factor.points))}`).join(", ");
  return (
    <div role="img" aria-label={words || "nothing counts"} title={words} style={{ display: "flex", height, borderRadius: 2, overflow: "hidden", background: "var(--sunken)", minWidth: 80 }}>
      {parts.map((factor, i) => <i key={factor.name} style={{ width: `${most > 0 ? (100 * factor.points) / most : 0}%`, background: tone(i) }} />)}
    </div>
  );
}

export function PriorityParts({ factors, site, nice }: { factors: Factor[]; site: number; nice: number }) {
  return (
    <table className="t flush">
      <thead><tr><th scope="col">Part</th><th scope="col" className="ra">Factor</th><th scope="col" className="ra">Weight</th><th scope="col" className="ra">Points</th></tr></thead>
      <tbody>
        {shown(factors).map((factor, i) => (
          <tr key={factor.name}>
            <td><i aria-hidden style={{ display: "inline-block", width: 8, height: 8, borderRadius: 2, marginRight: 6, background: tone(i) }} />{factorWord(factor.name)}</td>
            <td className="ra">{fixed(factor.factor, 4)}</td>
            <td className="ra sub">{trimmed(factor.weight)}</td>
            <td className="ra">{fixed(factor.points, 1)}</td>
          </tr>
        ))}
        {site > 0 && <tr><td>set by an administrator</td><td /><td /><td className="ra">{integer(site)}</td></tr>}
        {nice > 0 && <tr><td>nice</td><td /><td /><td className="ra">{"\u2212"}{integer(nice)}</td></tr>}
      </tbody>
    </table>
  );
}
