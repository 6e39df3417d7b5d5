import { fixed, integer, trimmed } from "../lib/format";
import { madeOf, partsOf, takenOff, type Made, type Part } from "../lib/job/priority";
import { tone } from "../lib/charts/tone";

const FADED = "color-mix(in srgb, var(--surface) 55%, transparent)";

/** What a priority is made of, each part as wide as its points; `most`: the points of the whole width. What is taken off is faded. */
export function PriorityBar({ made, most, height = 8 }: { made: Made; most: number; height?: number }) {
  const parts = partsOf(made);
  const words = madeOf(made);
  const width = (points: number) => (most > 0 ? (100 * points) / most : 0);
  const heap = width(parts.reduce((sum, part) => sum + part.points, 0));
  const taken = Math.min(heap, width(takenOff(made)));
  return (
    <div role="img" aria-label={words || "nothing counts"} title={words} style={{ position: "relative", display: "flex", height, borderRadius: 2, overflow: "hidden", background: "var(--sunken)", minWidth: 80 }}>
      {parts.map((part) => <i key={part.name} style={{ width: `${width(part.points)}%`, background: tone(part.fill), boxShadow: "inset -1px 0 var(--surface)" }} />)}
      {taken > 0 && <i style={{ position: "absolute", top: 0, bottom: 0, left: `${heap - taken}%`, width: `${taken}%`, minWidth: 3, background: FADED, borderLeft: "2px solid var(--bad)" }} />}
    </div>
  );
}

const swatch = { display: "inline-block", width: 12, height: 10, borderRadius: 2, boxShadow: "inset 0 0 0 1px var(--line-2)" };

export function PriorityLegend({ parts, taken }: { parts: Part[]; taken: boolean }) {
  return (
    <div className="legend">
      {parts.map((part) => <span key={part.name}><i style={{ ...swatch, background: tone(part.fill) }} />{part.word}</span>)}
      {taken && <span><i style={{ ...swatch, borderLeft: "2px solid var(--bad)" }} />taken off, by nice</span>}
    </div>
  );
}

export function PriorityParts({ made }: { made: Made }) {
  const { factors, site, nice } = made;
  const dot = (part: Part) => <i aria-hidden style={{ ...swatch, marginRight: 6, background: tone(part.fill) }} />;
  return (
    <table className="t flush">
      <thead><tr><th scope="col">Part</th><th scope="col" className="ra">Factor</th><th scope="col" className="ra">Weight</th><th scope="col" className="ra">Points</th></tr></thead>
      <tbody>
        {partsOf(made).map((part) => {
          const factor = factors.find((one) => one.name === part.name);
          return (
            <tr key={part.name}>
              <td colSpan={factor ? 1 : 3}>{dot(part)}{part.word}</td>
              {factor && <><td className="ra">{fixed(factor.factor, 4)}</td><td className="ra sub">{trimmed(factor.weight)}</td></>}
              <td className="ra">{factor ? fixed(part.points, 1) : integer(part.points)}</td>
            </tr>
          );
        })}
        {site < 0 && <tr><td colSpan={3}>priority of the job file</td><td className="ra">{"\u2212"}{integer(-site)}</td></tr>}
        {nice > 0 && <tr><td colSpan={3}>nice</td><td className="ra">{"\u2212"}{integer(nice)}</td></tr>}
      </tbody>
    </table>
  );
}
