import type { DrainedJob } from "../../api/types";
import { JobRef } from "../../components/JobRef";
import { useNow } from "../../lib/clock";
import { count, dateTime, moment, relative } from "../../lib/format";
import { sentenceOf } from "../../lib/isolated";
import { inOrder } from "./drains";

const WORDS = { ends: ["ends there", "chip"], moves: ["moves", "chip o"], lost: ["will be lost", "chip bad"] } as const;

/** Who is still on a node, and what becomes of each. */
export function DrainJobs({ jobs }: { jobs: DrainedJob[] }) {
  const now = useNow(10_000);
  if (jobs.length === 0) return null;
  return (
    <ul className="list">
      {inOrder(jobs).map((one) => (
        <li key={one.job.number} style={{ padding: "6px 0", borderTop: "1px solid var(--line)", fontSize: 12, lineHeight: "18px" }}>
          <div style={{ display: "flex", gap: 8, alignItems: "center", flexWrap: "wrap" }}>
            <JobRef number={one.job.number} name={one.job.name} project={one.job.project} />
            <span className="sub">{count(one.gpus, "GPU")}</span>
            {one.outcome && <span className={WORDS[one.outcome][1]}>{WORDS[one.outcome][0]}</span>}
            {one.expected_end_at && <End at={new Date(one.expected_end_at)} now={now} />}
          </div>
          {one.text && <div className="sub">{sentenceOf(one.text)}</div>}
        </li>
      ))}
    </ul>
  );
}

function End({ at, now }: { at: Date; now: Date }) {
  return <span className="sub" style={{ marginLeft: "auto" }} title={dateTime(at)}>expected end {moment(at, now)}, {relative(at, now)}</span>;
}
