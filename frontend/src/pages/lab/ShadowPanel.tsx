import { Link } from "react-router";
import { rowsOf } from "../../api/pages";
import { useShadowDecisions } from "../../api/rolloutHooks";
import type { RolloutDetail, ShadowDecision } from "../../api/types";
import { More } from "../../components/More";
import { Loadable, Panel, Skeleton } from "../../components/Panel";
import { clock, count, dateTime, integer, number, percent, variance } from "../../lib/format";
import { decisionWords, gang, roundsWords } from "./rolloutWords";
import { Name } from "../../components/Name";

/** What the candidate would have done, beside what was done. */
export function ShadowPanel({ rollout }: { rollout: RolloutDetail }) {
  const open = rollout.phase === "shadow";
  const { shadow } = rollout;
  const query = useShadowDecisions(rollout.id, open);
  return (
    <>
      <Panel title="In the shadow" meta="it sees what the live policy led to, never what its own decisions would have led to">
        <div className="pb" style={{ display: "grid", gap: 8 }} aria-live={open ? "polite" : undefined}>
          <span>{totalsWords(rollout)}</span>
          {shadow.error && <div className="fault" role="status" style={{ margin: 0 }}>{count(shadow.failed, "round")} without an answer; the last: {shadow.error}</div>}
        </div>
        {shadow.rounds > 0 && <Totals rollout={rollout} />}
      </Panel>
      <Panel title="Decisions" meta="newest first; rounds in a row in which the same jobs differ alike are one">
        <Loadable query={query} what="The decisions" skeleton={<Skeleton height={30} count={3} />}>
          {(data) => rowsOf(data).length === 0 ? <p className="empty">{open ? "It waits for the next round of the live policy." : "None is kept."}</p> : <>{rowsOf(data).map((one, i) => <Decision key={one.id} one={one} opened={i === 0 && one.different > 0} />)}</>}
        </Loadable>
        <More query={query} label="Older decisions" />
      </Panel>
    </>
  );
}

function totalsWords({ shadow }: RolloutDetail): string {
  if (shadow.rounds === 0) return "It has looked on at no round yet.";
  const same = `It has looked on at ${count(shadow.rounds, "round")}; in ${percent(shadow.same / shadow.rounds)} of them every job would have had the same.`;
  const missed = shadow.skipped > 0 ? ` ${count(shadow.skipped, "round")} went by while it was busy.` : "";
  return `${same}${missed} A plan took it ${number((shadow.seconds ?? 0) * 1000)} ms on average.`;
}

function Totals({ rollout: { shadow } }: { rollout: RolloutDetail }) {
  const rows: [string, (side: typeof shadow.live) => string][] = [
    ["GPUs in use after a round, mean", (side) => (side.gpus === null ? "–" : number(side.gpus))],
    ["Variance of relative throughputs, mean", (side) => (side.variance === null ? "–" : variance(side.variance))],
    ["Starts, all rounds", (side) => integer(side.starting)],
    ["Jobs preempted, all rounds", (side) => integer(side.preempted)],
  ];
  return (
    <div className="tw" tabIndex={0}>
      <table className="t">
        <thead><tr><th scope="col">Figure</th><th scope="col" className="ra">Live policy</th><th scope="col" className="ra">In the shadow</th></tr></thead>
        <tbody>{rows.map(([label, say]) => <tr key={label}><td style={{ whiteSpace: "normal" }}>{label}</td><td className="ra">{say(shadow.live)}</td><td className="ra">{say(shadow.candidate)}</td></tr>)}</tbody>
      </table>
      <p className="pb sub" style={{ whiteSpace: "normal" }}>Its starts and preemptions have no effect, so it repeats them in the next round: sums count the same move several times.</p>
    </div>
  );
}

function Decision({ one, opened }: { one: ShadowDecision; opened: boolean }) {
  return (
    <details open={opened} style={{ borderTop: "1px solid var(--line)", padding: "8px 14px" }}>
      <summary style={{ cursor: "pointer" }}><b style={{ fontWeight: 600 }}>{roundsWords(one)}</b> <span className="sub" title={dateTime(new Date(one.last_at))}>{clock(new Date(one.last_at), true)}</span> {decisionWords(one)}</summary>
      {one.jobs.length > 0 && (
        <div className="tw" tabIndex={0} style={{ marginTop: 8 }}>
          <table className="t cards">
            <thead><tr><th scope="col">Job</th><th scope="col">Has</th><th scope="col">Live policy</th><th scope="col">In the shadow</th><th scope="col">Why, in the shadow</th></tr></thead>
            <tbody>
              {one.jobs.map((job) => (
                <tr key={job.number}>
                  <td className="wide"><Link to={`/jobs/${job.number}`}>#{job.number} <Name>{job.name}</Name></Link></td>
                  <td data-l="Has">{gang(job.now)}</td>
                  <td data-l="Live policy">{gang(job.live)}</td>
                  <td data-l="In the shadow">{gang(job.candidate)}</td>
                  <td className="whole" data-l="Why, in the shadow" style={{ whiteSpace: "normal" }}>{job.why}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </details>
  );
}
