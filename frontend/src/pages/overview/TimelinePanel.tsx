import { useElementSize } from "@mantine/hooks";
import { memo, useState } from "react";
import { useTimeline } from "../../api/hooks";
import type { ClusterTimeline } from "../../api/types";
import { Loadable, Panel, Skeleton } from "../../components/Panel";
import { clock } from "../../lib/format";
import { Timeline } from "./Timeline";
import { TimelineCanvas } from "./TimelineCanvas";

const SPANS = [
  { minutes: 10, label: "10 min" },
  { minutes: 30, label: "30 min" },
  { minutes: 120, label: "2 h" },
  { minutes: 1440, label: "24 h" },
];
const MOST_SVG_GPUS = 100;

/** The shortest span that shows all of the last two hours. */
function fitting(timeline: ClusterTimeline | undefined, now: Date): number {
  if (!timeline || timeline.holds.length === 0) return 30;
  const first = Math.min(...timeline.holds.map((hold) => Date.parse(hold.from_at)));
  const age = (now.getTime() - first) / 60_000;
  return age <= 9.5 ? 10 : age <= 29 ? 30 : 120;
}

export function TimelinePanel({ now }: { now: Date }) {
  const [chosen, setChosen] = useState<number | null>(null);
  const recent = useTimeline(120, () => new Date(Date.now() - 120 * 60_000), chosen === null || chosen <= 120);
  const long = useTimeline(1440, () => new Date(Date.now() - 1440 * 60_000), chosen === 1440);
  const minutes = chosen ?? fitting(recent.data, now);
  const query = minutes > 120 ? long : recent;
  // The picture moves by pixels, not by seconds: about one step in a thousand of its span.
  const step = minutes * 60;
  const until = Math.ceil(now.getTime() / step) * step;
  const from = new Date(until - minutes * 60_000);
  return (
    <Panel
      title="Allocation" meta={<span className="only-wide">one line per GPU, {clock(from)} to now; finished jobs faded</span>}
      right={
        <div className="seg" role="group" aria-label="Time span">
          {SPANS.map((span) => (
            <button key={span.minutes} type="button" aria-pressed={span.minutes === minutes} onClick={() => setChosen(span.minutes)}>{span.label}</button>
          ))}
        </div>
      }
    >
      <Loadable query={query} what="The timeline" skeleton={<Skeleton height={300} />}>
        {(timeline) => <Sized timeline={timeline} from={from.getTime()} now={until} />}
      </Loadable>
    </Panel>
  );
}

const Sized = memo(function Sized({ timeline, from, now }: { timeline: ClusterTimeline; from: number; now: number }) {
  const { ref, width } = useElementSize();
  const gpus = timeline.nodes.reduce((sum, node) => sum + node.gpus, 0);
  const Drawing = gpus > MOST_SVG_GPUS ? TimelineCanvas : Timeline;
  return (
    <div className="pb">
      <div ref={ref} style={{ minHeight: 120, maxHeight: 640, overflowX: "hidden", overflowY: "auto" }} tabIndex={gpus > MOST_SVG_GPUS ? 0 : undefined}>
        {timeline.nodes.length === 0 && <p className="empty" style={{ padding: 0 }}>No node has reported yet.</p>}
        {width > 0 && timeline.nodes.length > 0 && <Drawing timeline={timeline} from={from} now={now} width={width} />}
      </div>
    </div>
  );
});
