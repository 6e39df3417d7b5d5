import { useDebouncedValue } from "@mantine/hooks";
import { useEffect, useRef, useState } from "react";
import type { JobDetail } from "../../api/types";
import { Panel } from "../../components/Panel";
import { Icon } from "../../components/icons";
import { useLogs } from "../../api/logs";
import { bytes } from "../../lib/format";
import { hasEnded } from "../../lib/job/jobState";
import { LogText } from "./LogText";
import css from "./job.module.css";

const NEAR_END_PX = 24;

export function LogsPanel({ job }: { job: JobDetail }) {
  const [rank, setRank] = useState(0);
  const [search, setSearch] = useState("");
  const [settled] = useDebouncedValue(search.trim(), 250);
  const [follow, setFollow] = useState(true);
  const log = useLogs(job.number, rank, settled, !hasEnded(job.state));
  const box = useRef<HTMLPreElement>(null);
  const ranks = log.ranks.length > 0 ? log.ranks : [0];
  useEffect(() => {
    if (follow && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [follow, log.text]);
  const onScroll = () => {
    const pre = box.current;
    if (pre) setFollow(pre.scrollHeight - pre.scrollTop - pre.clientHeight < NEAR_END_PX);
  };
  const tools = (
    <div className={css.tools}>
      {ranks.length <= 8 ? (
        <div className="seg small" role="group" aria-label="Rank">
          {ranks.map((entry) => <button key={entry} type="button" aria-pressed={entry === rank} onClick={() => setRank(entry)}>{entry === ranks[0] ? `Rank ${entry}` : entry}</button>)}
        </div>
      ) : (
        <select className="in" style={{ height: 26, fontSize: 12, width: "auto" }} aria-label="Rank" value={rank} onChange={(event) => setRank(Number(event.target.value))}>
          {ranks.map((entry) => <option key={entry} value={entry}>Rank {entry}</option>)}
        </select>
      )}
      <input className={`in ${css.find}`} type="search" placeholder="Find in log" aria-label="Find in log" value={search} onChange={(event) => setSearch(event.target.value)} />
      <button type="button" className="btn sm plain" aria-pressed={follow} onClick={() => setFollow(!follow)}>{hasEnded(job.state) ? (follow ? "at the end" : "to the end") : follow ? "following" : "follow"}</button>
      <button type="button" className="btn sm ico" onClick={() => void log.download(job, rank)} aria-label="Download the log" title="Download the log"><Icon name="download" size={14} /></button>
    </div>
  );
  return (
    <Panel title="Logs" meta={log.size > 0 ? `rank ${rank}, ${bytes(log.size)}` : `rank ${rank}`} right={tools}>
      {log.error && <div className="fault" role="alert">The log could not be read: {log.error}<button type="button" className="btn sm" onClick={log.retry}>Retry</button></div>}
      {log.earlier && <button type="button" className="more" onClick={log.loadEarlier}>Earlier lines</button>}
      <pre ref={box} className="log" tabIndex={0} onScroll={onScroll} aria-label={`Log of rank ${rank}`}>
        {log.text ? <LogText text={log.text} search={settled} /> : <span className="lt">{settled ? "No line has this text." : log.loading ? "" : "Nothing written yet."}</span>}
      </pre>
    </Panel>
  );
}
