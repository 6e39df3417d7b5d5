import { JOB_STATES, type JobState } from "../lib/job/jobState";
import { StateGlyph } from "./icons";

export function StateChip({ state }: { state: JobState }) {
  const badge = JOB_STATES[state];
  return (
    <span className="st" style={{ color: badge.colour }}>
      <StateGlyph glyph={badge.glyph} />
      {badge.word}
    </span>
  );
}

export function Emulated() {
  return <span className="chip o" title="Virtual accelerators: training is real, its pace follows the catalogue">emulated</span>;
}
