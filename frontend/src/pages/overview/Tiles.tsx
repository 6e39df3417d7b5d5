import type { ReactNode } from "react";
import { useHistory } from "../../api/hooks";
import type { ClusterState } from "../../lib/live/blanks";
import { Sparkline } from "./Sparkline";
import { duration, fixed, integer, money, variance, withUnit } from "../../lib/format";
import type { JobView } from "../../lib/live/liveContext";
import { DotStrip } from "./DotStrip";
import css from "./overview.module.css";

interface TileProps {
  label: string;
  value: string;
  unit?: string;
  detail: string;
  spark: ReactNode;
  children?: ReactNode;
  className?: string | undefined;
}

function Tile({ label, value, unit, detail, spark, children, className = "" }: TileProps) {
  return (
    <div className={`panel kpi ${className}`} role="group" aria-label={label}>
      <div className="l">{label}</div>
      <div className="v">{value}{unit && <small>{unit}</small>}</div>
      <div className="d">{detail}</div>
      <div className="sparkbox">{spark}</div>
      {children}
    </div>
  );
}

export function Tiles({ cluster, jobs, now }: { cluster: ClusterState; jobs: Map<number, JobView>; now: Date }) {
  const history = useHistory(120);
  const points = history.data?.points ?? [];
  const { tiles } = cluster;
  const { currency } = cluster.cluster;
  const month = now.toLocaleDateString("en-GB", { month: "long" });
  const oldest = tiles.oldest_wait_since_at ? `oldest waits ${duration((now.getTime() - Date.parse(tiles.oldest_wait_since_at)) / 1000)}` : "nothing waits";
  const spend = tiles.spend_month === null ? "" : `${month} ${money(tiles.spend_month, currency)}`;
  const budget = tiles.budget_month === null ? "" : ` of ${money(tiles.budget_month, currency, 0)}`;
  return (
    <div className={`cols ${css.tiles}`}>
      <Tile
        label="Utilisation" value={tiles.utilisation === null ? "–" : fixed(tiles.utilisation * 100, 0)} unit="%"
        detail={`${integer(tiles.gpus_busy)} of ${integer(tiles.gpus_total)} GPUs have a job${tiles.gpus_others > 0 ? `, ${integer(tiles.gpus_others)} more by others` : ""}`}
        spark={<Sparkline values={[...points.map((p) => p.utilisation), tiles.utilisation]} />}
      />
      <Tile
        label="Queue" value={integer(tiles.queued)} unit={tiles.queued === 1 ? "job" : "jobs"} detail={oldest}
        spark={<Sparkline step values={[...points.map((p) => p.queued), tiles.queued]} />}
      />
      <Tile
        label="Slowdown variance" className={css.fair} value={tiles.variance === null ? "–" : variance(tiles.variance)}
        detail={tiles.v_bound === null ? "no bound in this policy" : `bound ${variance(tiles.v_bound)}, last 2 h`}
        spark={<Sparkline values={[...points.map((p) => p.variance), tiles.variance]} bound={tiles.v_bound} />}
      >
        <DotStrip className={css.strip ?? ""} jobs={jobs} shares={tiles.relative_throughputs} mean={tiles.mean_relative_throughput} />
      </Tile>
      <Tile
        label="Spend" value={tiles.spend_per_hour === null ? "–" : money(tiles.spend_per_hour, currency)} unit={withUnit("", "/h").trim()}
        detail={spend + budget || "no prices set"}
        spark={<Sparkline values={[...points.map((p) => (p.spend_per_hour === null ? null : Number(p.spend_per_hour))), Number(tiles.spend_per_hour ?? NaN)]} />}
      />
    </div>
  );
}
