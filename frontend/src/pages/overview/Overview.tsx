import type { Session } from "../../api/types";
import { Sentence } from "../../components/Sentence";
import { Skeleton } from "../../components/Panel";
import { useNow } from "../../lib/clock";
import { useCluster, useClusterJobs } from "../../lib/live/liveContext";
import { overviewSentence } from "../../lib/sentence/sentence";
import { TopBar } from "../../shell/TopBar";
import { Accelerators } from "./Accelerators";
import { EventFeed } from "./EventFeed";
import { QueuePanel } from "./QueuePanel";
import { RunningTable } from "./RunningTable";
import { Tiles } from "./Tiles";
import { TimelinePanel } from "./TimelinePanel";
import css from "./overview.module.css";

export function Overview({ session }: { session: Session }) {
  const cluster = useCluster();
  const jobs = useClusterJobs();
  const now = useNow(5000);
  return (
    <>
      <TopBar title="Overview" />
      <div className="page">
        {cluster ? <Sentence parts={overviewSentence(cluster, jobs, now)} /> : <Waiting />}
        {cluster && (
          <>
            {cluster.cluster.problem && !cluster.cluster.engine_away_since_at && <p className="fault" role="alert" style={{ margin: 0 }}>{cluster.cluster.problem}</p>}
            <Tiles cluster={cluster} jobs={jobs} now={now} />
            <div className={`cols ${css.top}`}>
              <Accelerators cluster={cluster} jobs={jobs} now={now} />
              <QueuePanel cluster={cluster} jobs={jobs} now={now} />
            </div>
            <RunningTable jobs={jobs} session={session} now={now} mean={cluster.tiles.mean_relative_throughput} />
            <div className={`cols ${css.bottom}`}>
              <TimelinePanel now={now} />
              <EventFeed />
            </div>
          </>
        )}
      </div>
    </>
  );
}

/** The page's geometry while the first snapshot is on its way. */
function Waiting() {
  return (
    <div aria-busy="true" aria-label="Loading" style={{ display: "grid", gap: 12 }}>
      <Skeleton height={22} width="70%" />
      <div className={`cols ${css.tiles}`}>
        <Skeleton height={92} /><Skeleton height={92} /><Skeleton height={92} /><Skeleton height={92} />
      </div>
      <div className={`cols ${css.top}`}>
        <Skeleton height={380} /><Skeleton height={380} />
      </div>
      <Skeleton height={300} />
    </div>
  );
}
