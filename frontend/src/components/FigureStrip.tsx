import type { Figure } from "../lib/job/jobView";
import { sentenceOf } from "../lib/isolated";

/** Figures side by side, each with its label above and what it means below. */
export function FigureStrip({ figures }: { figures: Figure[] }) {
  return (
    <section className="panel strip" aria-label="Figures">
      {figures.map((figure) => (
        <div key={figure.label} className="fig">
          <div className="l">{figure.label}</div>
          <div className="v">{figure.value}{figure.unit && <small>{figure.unit}</small>}</div>
          <div className="d" title={figure.detail && sentenceOf(figure.detail)}>{figure.detail && sentenceOf(figure.detail)}</div>
        </div>
      ))}
    </section>
  );
}
