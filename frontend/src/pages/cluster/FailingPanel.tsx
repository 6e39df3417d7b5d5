import { Link } from "react-router";
import { usePages, rowsOf } from "../../api/pages";
import type { FailingItem } from "../../api/types";
import { More } from "../../components/More";
import { Loadable, Panel, Skeleton } from "../../components/Panel";
import { useNow } from "../../lib/clock";
import { clock, count, relative } from "../../lib/format";
import { sentenceOf } from "../../lib/isolated";

/** For administrators: what the portal fails to process, and when it tries again. */
export function FailingPanel() {
  const query = usePages<FailingItem>("failing-items", { limit: 20 }, { everyMs: 10_000 });
  const shown = query.data ? rowsOf(query.data) : [];
  return (
    <Panel title="Failing items" meta={shown.length > 0 ? `${count(shown.length, "item")}${query.hasNextPage ? " and more" : ""}` : undefined}>
      <Loadable query={query} what="The failing items" skeleton={<Skeleton height={26} count={2} />}>
        {(data) => rowsOf(data).length === 0
          ? <p className="empty">No item fails: every job, run, node and file is processed.</p>
          : <ul className="list">{rowsOf(data).map((item) => <Row key={`${item.loop} ${item.name} ${item.since_at}`} item={item} />)}</ul>}
      </Loadable>
      <More query={query} label="More items" />
    </Panel>
  );
}

function Row({ item }: { item: FailingItem }) {
  const now = useNow(10_000);
  const next = new Date(item.next_attempt_at);
  return (
    <li style={{ borderTop: "1px solid var(--line)", padding: "8px 14px" }}>
      <div style={{ fontWeight: 500, overflowWrap: "anywhere" }}>
        {item.job ? <Link className="link" to={`/jobs/${item.job.number}`}>{sentenceOf(item.name)}</Link> : sentenceOf(item.name)}
        {item.cluster && <span className="sub" style={{ marginLeft: 8 }}>cluster {item.cluster}</span>}
      </div>
      <div className="sub" style={{ margin: 0 }}>
        Fails to {item.task}. First failure {relative(new Date(item.since_at), now)}, {count(item.failures, "failure")} so far; next attempt {next > now ? `at ${clock(next, true)}` : "soon"}.
      </div>
      <div style={{ fontSize: 12, lineHeight: "18px", overflowWrap: "anywhere" }}>{sentenceOf(item.error)}</div>
    </li>
  );
}
