import { dateTime } from "../lib/format";
import { useCluster } from "../lib/live/liveContext";

/** Under the top bar for as long as the cluster's engine does not answer. */
export function EngineBar() {
  const head = useCluster()?.cluster;
  if (!head?.engine_away_since_at) return null;
  return (
    <div className="banner warn" role="status" data-testid="engine-away">
      <span>
        {head.engine} has not answered since {dateTime(new Date(head.engine_away_since_at))}. What runs goes on; nothing is started, stopped or resized until it answers.
        {head.problem && <> <span className="sub">{head.problem}</span></>}
      </span>
    </div>
  );
}
