import { memo, useMemo, useRef, useState } from "react";
import { Link } from "react-router";
import { useSession } from "../../api/hooks";
import type { Event } from "../../api/types";
import { Icon, StateGlyph } from "../../components/icons";
import { Panel } from "../../components/Panel";
import { eventMark } from "../../lib/job/eventIcon";
import { clock, count, dateTime } from "../../lib/format";
import { jobMark } from "../../lib/highlight";
import { useCluster, useProjectStates } from "../../lib/live/liveContext";
import { EventText } from "./EventText";

const SHOWN = 60;

function useEvents(): Event[] {
  const cluster = useCluster();
  const projects = useProjectStates();
  const clusterEvents = cluster?.events;
  return useMemo(() => {
    const all = new Map<string, Event>();
    for (const events of [clusterEvents ?? {}, ...projects.map((project) => project.events ?? {})]) {
      for (const event of Object.values(events)) all.set(String(event.id), event);
    }
    return [...all.values()].sort((a, b) => Date.parse(b.at) - Date.parse(a.at)).slice(0, SHOWN);
  }, [clusterEvents, projects]);
}

/** Newest first. While the pointer or the focus is inside, new events wait above a button. */
export function EventFeed() {
  const latest = useEvents();
  const admin = useSession().data?.user?.is_admin ?? false;
  const [held, setHeld] = useState(false);
  const frozen = useRef(latest);
  if (!held) frozen.current = latest;
  const shown = frozen.current;
  const known = new Set(shown.map((event) => event.id));
  const waiting = held ? latest.filter((event) => !known.has(event.id)).length : 0;
  return (
    <Panel title="Events" right={<span className="sub">{held ? "paused while you read" : "following"}</span>}>
      {waiting > 0 && <button type="button" className="more" onClick={() => setHeld(false)}>{count(waiting, "new event")}</button>}
      {shown.length === 0 ? (
        <p className="empty">Nothing has happened yet. <Link to="/submit">Submit a job</Link></p>
      ) : (
        <ol
          className="list feed scroll" style={{ flex: "1 1 280px", height: 0, minHeight: 280 }} tabIndex={0} aria-label="Events, newest first"
          onPointerEnter={() => setHeld(true)} onPointerLeave={() => setHeld(false)}
        >
          {shown.map((event) => <Row key={event.id} event={event} admin={admin} />)}
        </ol>
      )}
    </Panel>
  );
}

const Row = memo(function Row({ event, admin }: { event: Event; admin: boolean }) {
  const mark = eventMark(event);
  const at = new Date(event.at);
  return (
    <li className="ev jx" {...(event.job ? jobMark(event.job.number) : {})}>
      <time dateTime={event.at} title={dateTime(at)}>{clock(at, true)}</time>
      <span style={{ color: mark.colour }}>{"glyph" in mark ? <StateGlyph glyph={mark.glyph} /> : <Icon name={mark.icon} size={14} />}</span>
      <EventText event={event} admin={admin} />
    </li>
  );
});
