import { Link } from "react-router";
import type { Event } from "../../api/types";
import { Name } from "../../components/Name";
import { sentenceOf } from "../../lib/isolated";

/** The event's sentence with its job as a link; the job is put in front where the sentence does not name it. */
export function EventText({ event, linked = true, admin = false }: { event: Event; linked?: boolean; admin?: boolean }) {
  const { job, text } = event;
  const round = event.kind === "round" && admin && typeof event.detail.round === "number" ? event.detail.round : null;
  if (!job) return <span>{linked && round !== null ? <Link to={`/lab/rounds/${round}`}>{sentenceOf(text)}</Link> : sentenceOf(text)}</span>;
  const tag = `#${job.number}`;
  const label = <b>{tag}{job.name && <> <Name>{job.name}</Name></>}</b>;
  const reference = linked && job.name ? <Link to={`/jobs/${job.number}`}>{label}</Link> : label;
  const at = text.indexOf(tag);
  if (at < 0) return <span>{linked ? <>{reference} </> : null}{sentenceOf(text)}</span>;
  let rest = text.slice(at + tag.length);
  if (job.name && rest.startsWith(` ${job.name}`)) rest = rest.slice(job.name.length + 1);
  return <span>{sentenceOf(text.slice(0, at))}{reference}{sentenceOf(rest)}</span>;
}
